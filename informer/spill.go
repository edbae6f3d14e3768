package informer

import (
	"context"
	"crypto/cipher"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/tempfile"
	"github.com/informctl/informctl/store"
)

// chunk is a part of a backlog. It is in memory until it is written to a file, and stays
// there if it cannot be written. Informer.mu protects its fields. The notifications in
// waiting do not change while they are written, so writing does not hold mu.
type chunk struct {
	keys    []waitingKey
	waiting []notification // nil if it is in the file
	bytes   int            // bytes of waiting while it is in memory
	writing bool
	file    *os.File // already unlinked
	size    int64
	seal    cipher.AEAD // encrypts the file
}

// waitingKey describes a notification in a file, for the case that the file cannot be
// read.
type waitingKey struct {
	key   string // "" for the kind synced
	known bool   // the handler knew the object before
}

// spilled is a notification in a file.
type spilled struct {
	Kind     kind
	Initial  bool
	Key      string
	OldKey   string
	NewKey   string
	Old, New []byte
}

// spillBacklogs writes queue entries that exceed the memory limit to files. The goroutine
// that applies batches calls it without mu.
func (inf *Informer) spillBacklogs(ctx context.Context) {
	type cut struct {
		h *handler
		c *chunk
	}
	var cuts []cut
	inf.mu.Lock()
	for h := range inf.handlers {
		for _, c := range h.waiting.cut() {
			cuts = append(cuts, cut{h, c})
		}
	}
	inf.mu.Unlock()
	for _, cut := range cuts {
		file, size, seal, err := writeChunk(inf.spillDir(), cut.c.waiting)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What waits for a slow handler could not be written to a file, it stays in memory")
		}
		inf.mu.Lock()
		cut.c.writing = false
		switch {
		case cut.h.removed:
			if err == nil {
				_ = file.Close()
			}
		case err != nil:
			cut.c.size = int64(cut.c.bytes)
			inf.inFiles += cut.c.size // it counts although it stays in memory
		default:
			cut.c.waiting, cut.c.file, cut.c.size, cut.c.seal = nil, file, size, seal
			inf.inFiles += size
		}
		inf.cond.Broadcast()
		inf.mu.Unlock()
	}
}

// spillDir returns the directory of the database; "" means the system's temporary
// directory.
func (inf *Informer) spillDir() string {
	if path := inf.databasePath(); path != "" {
		return filepath.Dir(path)
	}
	return ""
}

// databasePath returns the path of the database, "" if the backend has no file.
func (inf *Informer) databasePath() string {
	if located, ok := inf.opts.Backend.(interface{ Path() string }); ok {
		return located.Path()
	}
	return ""
}

// writeChunk writes a chunk to an unnamed file. It encrypts the file, whatever the scope,
// with a key that lives as long as the chunk: the entries may be Secrets, and no damage
// goes unnoticed.
func writeChunk(dir string, waiting []notification) (file *os.File, size int64, seal cipher.AEAD, err error) {
	list := make([]spilled, len(waiting))
	for i, n := range waiting {
		list[i] = spilled{n.kind, n.initial, n.key, n.old.Key, n.new.Key, n.old.Raw, n.new.Raw}
	}
	b, err := msgpack.Marshal(list)
	if err != nil {
		return nil, 0, nil, err
	}
	seal = codec.NewKey().AEAD()
	b = seal.Seal(b[:0], nil, b, nil)
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
			kind: n.Kind, initial: n.Initial, key: n.Key,
			old: store.Entry{Key: n.OldKey, Raw: n.Old}, new: store.Entry{Key: n.NewKey, Raw: n.New},
		}
	}
	return waiting, nil
}

// loadChunkLocked loads the first chunk into first. It releases mu while it reads the
// file. It returns false if the chunk is still being written.
func (h *handler) loadChunkLocked() bool {
	b := &h.waiting
	c := b.chunks[0]
	if c.writing {
		return false
	}
	waiting := c.waiting
	if file, size, seal := c.file, c.size, c.seal; file != nil {
		var err error
		h.inf.mu.Unlock()
		waiting, err = readChunk(file, size, seal)
		h.inf.mu.Lock()
		if h.removed {
			return true
		}
		if err != nil {
			h.logger.Error(err, "What waited for a slow handler could not be read, it is told of the present state instead")
			return h.catchUpLocked()
		}
	}
	h.inf.closeChunkLocked(c)
	b.chunks = b.chunks[1:]
	b.first, b.firstBytes = waiting, 0
	for _, n := range waiting {
		b.firstBytes += n.encodedBytes()
	}
	return true
}

func (inf *Informer) closeChunkLocked(c *chunk) {
	if c.file != nil {
		_ = c.file.Close() // nothing to flush
	}
	if c.size > 0 {
		inf.inFiles -= c.size
		c.file, c.size, c.seal = nil, 0, nil
		inf.cond.Broadcast()
	}
}

// catchUpLocked replaces a backlog that cannot be read: the handler receives the present
// state of every object in it, once. It returns false if a chunk is still being written
// or the store cannot be read now.
func (h *handler) catchUpLocked() bool {
	var keys []waitingKey
	for _, c := range h.waiting.chunks {
		if c.writing {
			return false
		}
		keys = append(keys, c.keys...)
	}
	for _, n := range h.waiting.last {
		keys = append(keys, waitingKey{n.key, n.kind != added})
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
		e, ok, err := h.inf.store.Entry(k.key)
		switch {
		case err != nil:
			h.inf.loseLocked(h.inf.ctx, err)
			return false
		case ok && k.known:
			now = append(now, notification{kind: updated, key: k.key, old: e, new: e})
		case ok:
			now = append(now, notification{kind: added, key: k.key, new: e, initial: !h.inf.isSynced})
		case k.known:
			now = append(now, notification{kind: vanished, key: k.key})
		}
	}
	if _, marked := told[""]; marked {
		now = append(now, notification{kind: synced})
	}
	h.dropWaitingLocked()
	for _, n := range h.walked {
		if n.kind.isDeletion() {
			h.deletions++
		}
	}
	for _, n := range now {
		if n.kind.isDeletion() {
			h.deletions++
		}
		h.waiting.add(n)
	}
	return true
}

// dropWaitingLocked drops the queued entries.
func (h *handler) dropWaitingLocked() {
	for _, c := range h.waiting.chunks {
		h.inf.closeChunkLocked(c)
	}
	h.waiting, h.deletions = backlog{limits: &h.inf.limits}, 0
}

// waitForHandlers blocks while the spilled entries exceed their limit. It does not block
// before HasSynced or while a read waits for a list: a slow handler may wait for either.
func (inf *Informer) waitForHandlers(ctx context.Context) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	defer func() { inf.blocked, inf.blockedSince = inf.blockedLocked(), time.Time{} }()
	for inf.inFiles >= inf.limits.files && inf.isSynced && inf.waitingReads == 0 && ctx.Err() == nil {
		if inf.blockedSince.IsZero() {
			klog.FromContext(ctx).Info("Waiting for a slow handler", "waitingBytes", inf.inFiles)
			inf.blockedSince = time.Now()
		}
		inf.cond.Wait()
	}
}

// blockedLocked returns the total time that the informer has waited for handlers.
func (inf *Informer) blockedLocked() time.Duration {
	if inf.blockedSince.IsZero() {
		return inf.blocked
	}
	return inf.blocked + time.Since(inf.blockedSince)
}
