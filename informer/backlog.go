package informer

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// keptDecoded is the number of notifications in a handler queue that keep their objects
// decoded. Those behind them are encoded, which takes a third of the memory, and are
// decoded shortly before they are delivered.
const keptDecoded = 1024

// limits bound the handler queues, in bytes.
type limits struct {
	first int   // in memory, before the rest is spilled
	chunk int   // of one file
	files int64 // of all files; above it, the informer waits for its handlers
}

// The first notifications, a chunk that is being cut, one that is being written and one
// that is being read take at most 32 MiB of memory per handler.
var defaultLimits = limits{first: 4 << 20, chunk: 8 << 20, files: 1 << 30}

// backlog is the queue of one handler, oldest entries first: first in memory, then
// chunks, then last in memory. Informer.mu protects its fields.
type backlog struct {
	limits                *limits
	first, last           []notification
	firstBytes, lastBytes int
	chunks                []*chunk
}

func (b *backlog) isEmpty() bool { return len(b.first)+len(b.chunks)+len(b.last) == 0 }

// isLong reports whether a new entry would have keptDecoded others before it.
func (b *backlog) isLong() bool { return len(b.first) >= keptDecoded || len(b.chunks)+len(b.last) > 0 }

func (b *backlog) add(n notification) {
	if b.firstBytes < b.limits.first && len(b.chunks)+len(b.last) == 0 {
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
	if b.lastBytes < b.limits.chunk {
		return nil
	}
	begin, bytes, encoded := 0, 0, true
	for i, n := range b.last {
		bytes += n.encodedBytes()
		encoded = encoded && n.old.Object == nil && n.new.Object == nil
		if bytes < b.limits.chunk && i+1 < len(b.last) {
			continue
		}
		c := &chunk{waiting: b.last[begin : i+1 : i+1], bytes: bytes, writing: encoded}
		for _, n := range c.waiting {
			c.keys = append(c.keys, waitingKey{n.key, n.kind != added})
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
func (n notification) encodedBytes() int { return 128 + len(n.key) + len(n.old.Raw) + len(n.new.Raw) }

// slimmer maps objects that are about to be queued to their encoded form. It is filled
// without mu and before any handler holds the objects.
type slimmer map[runtime.Object]store.Entry

// add encodes objects. Objects that cannot be encoded are left out.
func (s slimmer) add(in store.Store, objects ...runtime.Object) {
	for _, obj := range objects {
		if obj == nil {
			continue
		}
		if e, err := in.Encode(obj); err == nil {
			s[obj] = e
		}
	}
}

func (s slimmer) entry(e store.Entry) store.Entry {
	if encoded, ok := s[e.Object]; ok && e.Object != nil {
		return encoded
	}
	return e
}

// noteBacklogLocked records for the next batch whether encoded objects are needed.
func (inf *Informer) noteBacklogLocked() {
	long := false
	for h := range inf.handlers {
		long = long || h.waiting.isLong()
	}
	inf.backlogged.Store(long)
}
