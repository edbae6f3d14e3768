package delivery

import (
	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// cursor walks the stored objects in key order for one handler. Hub.mu protects its
// fields.
type cursor struct {
	walked   []queue.Notification // what it has read, delivered before what is queued
	streamed int                  // notifications taken from the queue since that
	at       string               // keys up to this one are appended
	early    map[string]struct{}  // keys after it that are already appended
	long     map[string]struct{}  // keys that it has passed, of those with longKey bytes
}

// longKey is from how many bytes on a key may come in another order than that of keys:
// see store.Query.After.
const longKey = 1 << 10

// begin moves the cursor before the first object.
func (c *cursor) begin() { c.at, c.early, c.long = "", map[string]struct{}{}, map[string]struct{}{} }

// walk appends notifications before what is queued.
func (c *cursor) walk(some ...queue.Notification) { c.walked = append(c.walked, some...) }

// take removes and returns up to limit of the notifications that were read.
func (c *cursor) take(limit int) []queue.Notification {
	n := min(limit, len(c.walked))
	batch := c.walked[:n:n]
	if c.walked = c.walked[n:]; len(c.walked) == 0 {
		c.walked = nil // releases the array
	}
	return batch
}

// drop drops what was read.
func (c *cursor) drop() { c.walked = nil }

// isEarly reports whether a change comes before the cursor has reached its object, for
// the first time. The cursor will skip the object.
func (c *cursor) isEarly(key string) bool {
	isPassed := key <= c.at
	if len(key) >= longKey {
		_, isPassed = c.long[key]
	}
	if isPassed {
		return false
	}
	if _, early := c.early[key]; early {
		return false
	}
	c.early[key] = struct{}{}
	return true
}

// isNext reports whether the cursor goes on, and not the queue.
func (c *cursor) isNext(queueIsEmpty bool) bool { return queueIsEmpty || c.streamed >= cursorEvery }

// load reads the next chunk of the stored objects and appends what add makes of them. It
// returns how many it has appended, and whether they were the last ones.
func (c *cursor) load(s Store, add func(store.Entry) queue.Notification) (n int, last bool, err error) {
	entries, err := s.Select(store.Query{After: c.at, Limit: CursorChunk})
	if err != nil {
		return 0, false, err
	}
	c.streamed = 0
	for _, e := range entries {
		if c.at = e.Key; len(e.Key) >= longKey {
			c.long[e.Key] = struct{}{}
		}
		if _, early := c.early[e.Key]; early {
			delete(c.early, e.Key)
			continue
		}
		c.walk(add(e))
		n++
	}
	if len(entries) == CursorChunk {
		return n, false, nil
	}
	c.early, c.long = nil, nil
	return n, true, nil
}

// size returns the number and the bytes of what was read and not taken.
func (c *cursor) size() (n int, bytes int64) {
	for _, n := range c.walked {
		bytes += int64(n.Bytes())
	}
	return len(c.walked), bytes
}
