package delivery

import "fmt"

// Status describes one handler.
type Status struct {
	Type          string // of the handler
	Waiting       int    // notifications, without those in delivery
	BytesInFile   int64  // spilled
	BytesInMemory int64  // of the other notifications, without decoded objects
	Synced        bool
}

func (r *Registration) statusLocked() Status {
	s := Status{Type: fmt.Sprintf("%T", r.handler), Synced: r.HasSynced()}
	s.Waiting, s.BytesInFile, s.BytesInMemory = r.waiting.size()
	for _, n := range r.walked {
		s.Waiting++
		s.BytesInMemory += int64(n.encodedBytes())
	}
	return s
}

// KeyBytes is the approximate memory of one key.
const KeyBytes = 70

// size returns the number of queued notifications, and their bytes in files and in
// memory.
func (b *backlog) size() (n int, inFiles, inMemory int64) {
	n = len(b.first) + len(b.last)
	inMemory = int64(b.firstBytes + b.lastBytes)
	for _, c := range b.chunks {
		n += len(c.keys)
		if c.file == nil {
			inMemory += int64(c.bytes)
			continue
		}
		inFiles += c.size
		inMemory += int64(KeyBytes * len(c.keys))
	}
	return n, inFiles, inMemory
}

// Waiting returns the number of queued notifications behind those of the cursor.
func (r *Registration) Waiting() int {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	n, _, _ := r.waiting.size()
	return n
}
