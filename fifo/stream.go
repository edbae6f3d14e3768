package fifo

import "k8s.io/client-go/tools/cache"

// entry is one delta of the stream, or a bookmark. A bookmark has no delta type and no
// key.
type entry struct {
	key   string
	delta cache.Delta
	rv    string
}

func (e *entry) isBookmark() bool { return e.delta.Type == "" }

// stream contains entries by position. The position counts all entries ever pushed.
// stream is not safe for concurrent use.
type stream struct {
	entries []entry
	head    int    // index of the first entry in entries
	first   uint64 // position of the first entry
}

func (s *stream) len() int { return len(s.entries) - s.head }

// end returns the position of the next entry to be pushed.
func (s *stream) end() uint64 { return s.first + uint64(s.len()) }

// at returns the entry at a position between first and end. The pointer is valid until
// the next push or drop.
func (s *stream) at(position uint64) *entry { return &s.entries[s.head+int(position-s.first)] }

func (s *stream) push(e entry) {
	// Reuse the room before the head if that moves no more entries than were dropped.
	if len(s.entries) == cap(s.entries) && s.head > s.len() {
		n := copy(s.entries, s.entries[s.head:])
		clear(s.entries[n:])
		s.entries, s.head = s.entries[:n], 0
	}
	s.entries = append(s.entries, e)
}

// drop removes the first n entries.
func (s *stream) drop(n int) {
	clear(s.entries[s.head : s.head+n]) // releases their objects
	s.head += n
	s.first += uint64(n)
	if s.len() == 0 {
		s.entries, s.head = s.entries[:0], 0
		if cap(s.entries) > maxIdle {
			s.entries = nil
		}
	}
}

// maxIdle is the capacity, in entries, that an empty stream keeps. It lets the queue
// release the memory of a large Replace.
const maxIdle = 8192
