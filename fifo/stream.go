package fifo

import "k8s.io/client-go/tools/cache"

// entry is one delta of the stream, or a bookmark, which has no delta type and no key.
type entry struct {
	key   string
	delta cache.Delta
	rv    string
}

func (e *entry) isBookmark() bool { return e.delta.Type == "" }

// stream holds entries by their position, which counts all entries ever pushed. It is not safe for concurrent use.
type stream struct {
	entries []entry
	head    int    // index of the first entry in entries
	first   uint64 // its position
}

func (s *stream) len() int { return len(s.entries) - s.head }

// end is the position of the next entry to be pushed.
func (s *stream) end() uint64 { return s.first + uint64(s.len()) }

// at returns the entry at a position from first up to end, valid until the next push or drop.
func (s *stream) at(position uint64) *entry { return &s.entries[s.head+int(position-s.first)] }

func (s *stream) push(e entry) {
	// Use the room before the head again if that moves no more entries than were dropped since.
	if len(s.entries) == cap(s.entries) && s.head > s.len() {
		n := copy(s.entries, s.entries[s.head:])
		clear(s.entries[n:])
		s.entries, s.head = s.entries[:n], 0
	}
	s.entries = append(s.entries, e)
}

// drop removes the first n entries.
func (s *stream) drop(n int) {
	clear(s.entries[s.head : s.head+n]) // lets their objects go
	s.head += n
	s.first += uint64(n)
	if s.len() == 0 {
		s.entries, s.head = s.entries[:0], 0
		if cap(s.entries) > maxIdle {
			s.entries = nil
		}
	}
}

// maxIdle is how many entries an empty stream keeps room for; a large Replace must not hold its memory for ever.
const maxIdle = 8192
