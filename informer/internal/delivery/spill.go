package delivery

import (
	"bytes"
	"context"
	"crypto/cipher"
	"errors"
	"os"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/tempfile"
	"github.com/informctl/informctl/store"
)

// chunk is a part of a backlog. It is in memory until it is written to a file, and stays
// there if it cannot be written. Hub.mu protects its fields. The notifications in
// waiting do not change while they are written, so writing does not hold mu.
type chunk struct {
	keys    []waitingKey
	waiting []notification // nil if it is in the file
	bytes   int            // bytes of waiting while it is in memory
	writing bool
	file    *os.File // already unlinked
	size    int64
	seal    cipher.AEAD // encrypts the file
	dropped bool        // the queue no longer has it
}

// waitingKey describes a notification in a file, for the case that the file cannot be
// read.
type waitingKey struct {
	key     string // "" for the kind synced
	known   bool   // the handler knew the object before
	initial bool
	newer   bool
}

func keyOf(n notification) waitingKey {
	return waitingKey{n.key, n.kind != added, n.initial, n.newer}
}

// files counts the files of all backlogs. Hub.mu protects the fields.
type files struct {
	bytes        int64         // of spilled entries
	blocked      time.Duration // time spent in Room; see blockedLocked
	blockedSince time.Time     // start of the current wait; zero if there is none
	urgent       int           // calls of Urge that have not ended
}

// spilled is a notification in a file.
type spilled struct {
	Kind     kind
	Initial  bool
	Newer    bool
	Key      string
	OldKey   string
	NewKey   string
	Old, New []byte
}

// Spill writes queue entries that exceed the memory limit to files. It is called after
// Do, by one goroutine at a time.
func (h *Hub) Spill(ctx context.Context) {
	type cut struct {
		r *Registration
		c *chunk
	}
	var cuts []cut
	h.mu.Lock()
	for r := range h.handlers {
		for _, c := range r.waiting.cut() {
			cuts = append(cuts, cut{r, c})
		}
	}
	h.mu.Unlock()
	for _, cut := range cuts {
		file, size, seal, err := writeChunk(h.env.Dir(), cut.c)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What waits for a slow handler could not be written to a file, it stays in memory")
		}
		h.mu.Lock()
		cut.c.writing = false
		switch {
		case cut.c.dropped:
			if err == nil {
				_ = file.Close()
			}
		case err != nil:
			cut.c.size = int64(cut.c.bytes)
			h.files.bytes += cut.c.size // it counts although it stays in memory
		default:
			cut.c.waiting, cut.c.file, cut.c.size, cut.c.seal = nil, file, size, seal
			h.files.bytes += size
		}
		h.cond.Broadcast()
		h.mu.Unlock()
	}
}

// writeChunk writes a chunk to an unnamed file. It encrypts the file, whatever the scope,
// with a key that lives as long as the chunk: the entries may be Secrets, and no damage
// goes unnoticed.
func writeChunk(dir string, c *chunk) (file *os.File, size int64, seal cipher.AEAD, err error) {
	list := make([]spilled, len(c.waiting))
	for i, n := range c.waiting {
		list[i] = spilled{n.kind, n.initial, n.newer, n.key, n.old.Key, n.new.Key, n.old.Raw, n.new.Raw}
	}
	seal = codec.NewKey().AEAD()
	var encoded bytes.Buffer
	encoded.Grow(c.bytes + seal.Overhead()) // c.bytes is more than what is written
	if err := msgpack.NewEncoder(&encoded).Encode(list); err != nil {
		return nil, 0, nil, err
	}
	b := seal.Seal(encoded.Bytes()[:0], nil, encoded.Bytes(), nil)
	file, err = tempfile.Unnamed(dir, "informctl-waiting-*")
	if err != nil {
		return nil, 0, nil, err
	}
	if _, err := file.Write(b); err != nil {
		return nil, 0, nil, errors.Join(err, file.Close())
	}
	return file, int64(len(b)), seal, nil
}

func readChunk(file *os.File, size int64, seal cipher.AEAD) ([]notification, error) {
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil {
		return nil, err
	}
	b, err := seal.Open(b[:0], nil, b, nil)
	if err != nil {
		return nil, err
	}
	var list []spilled
	if err := msgpack.Unmarshal(b, &list); err != nil {
		return nil, err
	}
	waiting := make([]notification, len(list))
	for i, n := range list {
		waiting[i] = notification{
			kind: n.Kind, initial: n.Initial, newer: n.Newer, key: n.Key,
			old: store.Entry{Key: n.OldKey, Raw: n.Old}, new: store.Entry{Key: n.NewKey, Raw: n.New},
		}
	}
	return waiting, nil
}

// loadChunkLocked loads the first chunk into first. It releases mu while it reads the
// file. It returns false if the chunk is still being written.
func (r *Registration) loadChunkLocked() bool {
	b := &r.waiting
	c := b.chunks[0]
	if c.writing {
		return false
	}
	waiting := c.waiting
	if file, size, seal := c.file, c.size, c.seal; file != nil {
		var err error
		r.hub.mu.Unlock()
		waiting, err = readChunk(file, size, seal)
		r.hub.mu.Lock()
		if c.dropped {
			return true
		}
		if err != nil {
			r.logger.Error(err, "What waited for a slow handler could not be read, it is told of the present state instead")
			return r.catchUpLocked()
		}
	}
	r.hub.closeChunkLocked(c)
	b.chunks = b.chunks[1:]
	b.first, b.firstBytes = waiting, 0
	for _, n := range waiting {
		b.firstBytes += n.encodedBytes()
	}
	return true
}

func (h *Hub) closeChunkLocked(c *chunk) {
	if c.file != nil {
		_ = c.file.Close() // nothing to flush
	}
	if c.size > 0 {
		h.files.bytes -= c.size
		c.file, c.size, c.seal = nil, 0, nil
		h.cond.Broadcast()
	}
}

// catchUpLocked replaces a backlog that cannot be read: the handler receives the present
// state of every object in it, once. It returns false if a chunk is still being written
// or the store cannot be read now. Nothing but the chunks and what is behind them waits.
func (r *Registration) catchUpLocked() bool {
	if !r.hub.isToldLocked() {
		return false // what the list has brought comes once more
	}
	var keys []waitingKey
	for _, c := range r.waiting.chunks {
		if c.writing {
			return false
		}
		keys = append(keys, c.keys...)
	}
	for _, n := range r.waiting.last {
		keys = append(keys, keyOf(n))
	}
	var now []notification
	told := map[string]struct{}{}
	for _, k := range keys {
		if _, twice := told[k.key]; twice {
			continue
		}
		told[k.key] = struct{}{}
		if k.key == "" {
			continue
		}
		e, ok, err := r.hub.store.Entry(k.key)
		switch {
		case err != nil:
			r.hub.env.Failed(err)
			return false
		case ok && k.known:
			now = append(now, notification{kind: updated, key: k.key, old: store.Entry{Key: k.key}, new: e})
		case ok:
			now = append(now, notification{kind: added, key: k.key, new: e, initial: k.initial, newer: k.newer})
		case k.known:
			now = append(now, notification{kind: vanished, key: k.key})
		}
	}
	if _, marked := told[""]; marked {
		now = append(now, notification{kind: synced})
	}
	r.dropWaitingLocked()
	// The states before are lost, so a handler that resumes must receive them once more
	// in the next process.
	r.resumed.handled, r.resumed.failed = r.resumed.handled+uint64(len(keys)), true
	for _, n := range now {
		if n.kind.isDeletion() {
			r.deletions++
		}
		r.queueLocked(n)
	}
	return true
}

// dropWaitingLocked drops the queued entries.
func (r *Registration) dropWaitingLocked() {
	for _, c := range r.waiting.chunks {
		c.dropped = true
		r.hub.closeChunkLocked(c)
	}
	r.waiting, r.deletions = backlog{limits: &r.hub.Limits}, 0
}
