package delivery

import "github.com/informctl/informctl/informer/internal/delivery/queue"

// Status describes one handler.
type Status struct {
	Type          string // of the handler
	Waiting       int    // notifications, without those in delivery
	BytesInFile   int64  // spilled
	BytesInMemory int64  // of the other notifications, without decoded objects
	Synced        bool
}

// KeyBytes is the approximate memory of one key.
const KeyBytes = queue.KeyBytes

// Limits bound the handler queues, in bytes.
type Limits = queue.Limits

// Waiting returns the number of queued notifications behind those of the cursor.
func (r *Registration) Waiting() int {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	n, _, _ := r.waiting.Size()
	return n
}
