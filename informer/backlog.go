package informer

import (
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// keptDecoded is how many notifications wait for a handler as objects. Those behind
// them wait encoded, which takes a third of the memory, and are decoded when the
// handler comes to them.
const keptDecoded = 1024

// limits bound what waits for handlers, in bytes.
type limits struct {
	first int   // of what waits encoded in memory before the rest goes to files
	chunk int   // of one file
	files int64 // of all files of an informer, beyond which it waits for its handlers
}

// The first notifications, a chunk that is cut, one that is written and one that is
// read take 32 MiB of memory at most for each handler.
var defaultLimits = limits{first: 4 << 20, chunk: 8 << 20, files: 1 << 30}

// backlog is what waits for one handler, oldest first: some in memory, chunks
// behind it, and what came last. Its fields are protected by Informer.mu.
type backlog struct {
	limits                *limits
	first, last           []notification
	firstBytes, lastBytes int
	chunks                []*chunk
}

func (b *backlog) isEmpty() bool { return len(b.first)+len(b.chunks)+len(b.last) == 0 }

// isLong reports whether what is added waits behind keptDecoded others.
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

// take returns up to limit of the oldest. Where there are none and the backlog is
// not empty, the first chunk has to be read.
func (b *backlog) take(limit int) []notification {
	if len(b.first) == 0 && len(b.chunks) == 0 {
		b.first, b.firstBytes, b.last, b.lastBytes = b.last, b.lastBytes, nil, 0
	}
	n := min(limit, len(b.first))
	taken := b.first[:n:n]
	if b.first = b.first[n:]; len(b.first) == 0 {
		b.first = nil // lets go of the array
	}
	for _, n := range taken {
		b.firstBytes -= n.encodedBytes()
	}
	return taken
}

// cut makes chunks of what came last, if it is enough, and returns those that the
// caller writes. What is not encoded, since it came before anybody knew that it would
// wait for long, stays in memory.
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

// encodedBytes is the memory that a notification takes, without its objects.
func (n notification) encodedBytes() int { return 128 + len(n.key) + len(n.old.Raw) + len(n.new.Raw) }

// slimmer has the encoded form of objects that are about to be told. It is filled
// outside the informer's lock and before any handler holds the objects.
type slimmer map[runtime.Object]store.Entry

// add encodes objects. What cannot be encoded stays as it is.
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

// noteBacklogLocked notes for the next batch whether encoded objects are wanted.
func (inf *Informer) noteBacklogLocked() {
	long := false
	for h := range inf.handlers {
		long = long || h.waiting.isLong()
	}
	inf.backlogged.Store(long)
}
