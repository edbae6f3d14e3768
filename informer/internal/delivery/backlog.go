package delivery

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// keptDecoded is the number of notifications in a handler queue that keep their objects
// decoded. Those behind them are encoded, which takes a third of the memory, and are
// decoded shortly before they are delivered.
const keptDecoded = 1024

// Limits bound the handler queues, in bytes.
type Limits struct {
	First int   // in memory, before the rest is spilled
	Chunk int   // of one file
	Files int64 // of all files; above it, Room waits for the handlers
}

// The first notifications, a chunk that is being cut, one that is being written and one
// that is being read take at most 24 MiB of memory per handler.
var defaultLimits = Limits{First: 4 << 20, Chunk: 4 << 20, Files: 1 << 30}

// backlog is the queue of one handler, oldest entries first: first in memory, then
// chunks, then last in memory. Hub.mu protects its fields.
type backlog struct {
	limits                *Limits
	first, last           []notification
	firstBytes, lastBytes int
	chunks                []*chunk
}

func (b *backlog) isEmpty() bool { return len(b.first)+len(b.chunks)+len(b.last) == 0 }

// isLong reports whether a new entry would have keptDecoded others before it.
func (b *backlog) isLong() bool { return len(b.first) >= keptDecoded || len(b.chunks)+len(b.last) > 0 }

func (b *backlog) add(n notification) {
	if b.firstBytes < b.limits.First && len(b.chunks)+len(b.last) == 0 {
		b.first = append(b.first, n)
		b.firstBytes += n.encodedBytes()
		return
	}
	b.last = append(b.last, n)
	b.lastBytes += n.encodedBytes()
}

// take returns up to limit of the oldest entries. If it returns none and the backlog is
// not empty, the first chunk must be loaded.
func (b *backlog) take(limit int) []notification {
	if len(b.first) == 0 && len(b.chunks) == 0 {
		b.first, b.firstBytes, b.last, b.lastBytes = b.last, b.lastBytes, nil, 0
	}
	n := min(limit, len(b.first))
	taken := b.first[:n:n]
	if b.first = b.first[n:]; len(b.first) == 0 {
		b.first = nil // releases the array
	}
	for _, n := range taken {
		b.firstBytes -= n.encodedBytes()
	}
	return taken
}

// cut splits last into chunks if it is large enough, and returns the chunks that the
// caller must write. Chunks with decoded entries, which were added before the queue was
// known to be long, stay in memory.
func (b *backlog) cut() (written []*chunk) {
	if b.lastBytes < b.limits.Chunk {
		return nil
	}
	begin, bytes, encoded := 0, 0, true
	for i, n := range b.last {
		bytes += n.encodedBytes()
		encoded = encoded && n.old.Object == nil && n.new.Object == nil
		if bytes < b.limits.Chunk && i+1 < len(b.last) {
			continue
		}
		c := &chunk{waiting: b.last[begin : i+1 : i+1], bytes: bytes, writing: encoded}
		for _, n := range c.waiting {
			c.keys = append(c.keys, keyOf(n))
		}
		b.chunks = append(b.chunks, c)
		if encoded {
			written = append(written, c)
		}
		begin, bytes, encoded = i+1, 0, true
	}
	b.last, b.lastBytes = nil, 0
	return written
}

// encodedBytes estimates the memory of a notification without its decoded objects.
func (n notification) encodedBytes() int { return 128 + 3*len(n.key) + len(n.old.Raw) + len(n.new.Raw) }

// Slim contains the encoded form of objects that are about to be appended to long queues.
// It is filled before any handler holds the objects.
type Slim struct {
	store   Store // nil if no queue is long
	encoded map[runtime.Object]store.Entry
}

// NewSlim returns a Slim for one call of Do. It stays empty if no queue is long.
func (h *Hub) NewSlim() Slim {
	if !h.backlogged.Load() {
		return Slim{}
	}
	return Slim{store: h.store, encoded: map[runtime.Object]store.Entry{}}
}

// Add encodes objects. Objects that cannot be encoded are left out. It must not be called
// while Do runs.
func (s Slim) Add(objects ...runtime.Object) {
	if s.store == nil {
		return
	}
	for _, obj := range objects {
		if obj == nil {
			continue
		}
		if e, err := s.store.Encode(obj); err == nil {
			s.encoded[obj] = e
		}
	}
}

func (s Slim) entry(e store.Entry) store.Entry {
	if encoded, ok := s.encoded[e.Object]; ok && e.Object != nil {
		return encoded
	}
	e.Cell = nil // else it would keep the object decoded
	return e
}

// noteBacklogLocked records for the next batch whether encoded objects are needed.
func (h *Hub) noteBacklogLocked() {
	long := false
	for r := range h.handlers {
		long = long || r.waiting.isLong()
	}
	h.backlogged.Store(long)
}
