package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"os"

	"github.com/tidwall/btree"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

const (
	// stagingBytes is how many bytes of differing objects a relist writes to the staging
	// bucket in one transaction. The same amount is collected in memory meanwhile.
	stagingBytes = 8 << 20
	// loadBytes is the corresponding number for a first list.
	loadBytes = 8 << 20
	// partChanges and partBytes bound one batch of Parts.
	partChanges = 256
	partBytes   = 1 << 20
)

// relist implements store.Relist. One goroutine drives it.
//
// If the scope has no list yet, objects are written directly to the objects bucket.
// phaseLoading hides them, and the manifest marks them as incomplete: the next start
// drops incomplete objects. Otherwise differing objects are staged, in memory and then in
// the staging bucket of the file.
//
// A goroutine writes either of them, at most one goroutine at a time. It ends after its
// transaction. The list continues meanwhile.
type relist struct {
	s       *scopeStore
	direct  bool
	indexes *indexes.Set // the scope's indexes at the start
	packer  *pack.Packer
	// seen are the listed keys; those whose object was added have true
	seen    map[string]bool
	added   int // of seen
	staged  *btree.Map[string, *overlay.Entry]
	bytes   int                                // of staged
	limit   int                                // size at which staged is written
	writing *btree.Map[string, *overlay.Entry] // by the goroutine; nil if there is none
	written chan error                         // its result
	sent    bool                               // something was passed to the goroutine
	spilled bool                               // the staging bucket contains entries
	wrote   bool                               // something was or may have been written
	closed  bool

	// scopeStore.mu protects the fields below.
	whole bool             // the whole list was loaded
	left  []*overlay.Entry // what is left to the committer when the list is applied
	lost  error            // what was written is lost
}

// Relist implements store.Store.
func (s *scopeStore) Relist() (store.Relist, error) {
	s.mu.Lock()
	old := s.relist
	s.mu.Unlock()
	if old != nil {
		if err := old.Close(); err != nil {
			return nil, err
		}
	}
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	leftover := s.isLoading()
	s.mu.Unlock()
	if leftover { // from a first list that could not be dropped
		if err := s.discardLoad(true); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != roleWriter {
		return nil, store.ErrClosed
	}
	r := &relist{
		s: s, indexes: s.indexes, packer: s.packer.Load(), seen: map[string]bool{}, staged: &btree.Map[string, *overlay.Entry]{},
		written: make(chan error, 1),
	}
	r.direct = s.listBegun(r)
	if r.limit = stagingBytes; r.direct {
		r.limit = loadBytes
	}
	return r, nil
}

// Add implements store.Relist.
func (r *relist) Add(obj runtime.Object) error {
	if err := r.check(); err != nil {
		return err
	}
	r.s.mu.Lock()
	indexes := r.s.indexes
	r.s.mu.Unlock()
	e, err := r.s.codec.PrepareListed(indexes, obj)
	if err != nil {
		var bad *store.ObjectError
		if errors.As(err, &bad) && bad.Key != "" {
			r.Keep(bad.Key)
		}
		return err
	}
	e.Object, e.Encoded = nil, store.Entry{}
	isAdded, again := r.seen[e.Key]
	if !isAdded {
		r.added++
	}
	r.seen[e.Key] = true
	if !r.direct {
		same, err := r.isStored(e)
		if err != nil {
			return r.giveUp(err)
		}
		if same && (!again || r.unstage(e.Key)) {
			return nil
		}
	}
	r.stage(e)
	if r.bytes < r.limit {
		return nil
	}
	r.awaitWritten()
	if r.bytes < r.limit {
		return nil
	}
	r.writing, r.sent = r.staged, true
	r.reset()
	go func() { r.written <- r.write(r.writing.Values()) }()
	return nil
}

// awaitWritten waits for the goroutine that writes. A full or broken disk must not keep
// the list from being served: the entries that were not written stay in memory, and the
// next attempt begins when their size has doubled.
func (r *relist) awaitWritten() {
	if r.writing == nil {
		return
	}
	err := <-r.written
	failed := r.writing
	if r.writing = nil; err == nil {
		r.spilled = !r.direct
		return
	}
	r.s.db.opts.Logger.Error(err, "Could not write a list, keeping it in memory", "scope", r.s.scope.String())
	failed.Scan(func(key string, e *overlay.Entry) bool {
		if _, newer := r.staged.Get(key); !newer {
			r.stage(e)
		}
		return true
	})
	r.limit = 2 * r.bytes
}

// write writes staged entries.
func (r *relist) write(entries []*overlay.Entry) error {
	if r.direct {
		return r.load(entries, true)
	}
	return r.spill(entries)
}

// check returns an error if the relist cannot continue, because it was closed or because
// what it has written is lost.
func (r *relist) check() error {
	if r.closed {
		return store.ErrClosed
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.lost
}

func (r *relist) isLost() bool {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.lost != nil
}

// giveUp starts a new file if the list cannot be compared with damaged content: the next
// list would meet the same damage.
func (r *relist) giveUp(err error) error {
	d := r.s.db
	if !boltfile.IsDamage(err) {
		return err
	}
	d.file.Lock()
	defer d.file.Unlock()
	if r.isLost() || d.isClosed() {
		return err
	}
	return errors.Join(err, d.file.Reopen(true, err))
}

// Keep implements store.Relist.
func (r *relist) Keep(name string) {
	if key := record.FileKey(name); !r.seen[key] { // true says that it was added
		r.seen[key] = false
	}
}

// Remove implements store.Relist. An entry that may already be in the file is deleted
// there by staging a deletion.
func (r *relist) Remove(name string) {
	key := record.FileKey(name)
	if r.seen[key] {
		r.added--
	}
	delete(r.seen, key)
	if old, there := r.staged.Delete(key); there {
		r.bytes -= old.Size()
	}
	if r.sent {
		r.stage(&overlay.Entry{Key: key, Name: name})
	}
}

func (r *relist) stage(e *overlay.Entry) {
	if old, replaced := r.staged.Set(e.Key, e); replaced {
		r.bytes -= old.Size()
	}
	r.bytes += e.Size()
}

// unstage drops a staged earlier version of a key that the list then contained unchanged.
// It returns false if that version may already be on its way to the file.
func (r *relist) unstage(key string) bool {
	if r.spilled || r.writing != nil {
		return false
	}
	if old, there := r.staged.Delete(key); there {
		r.bytes -= old.Size()
	}
	return true
}

func (r *relist) isStored(e *overlay.Entry) (same bool, err error) {
	err = r.s.read("header "+e.Key, func(sn *snapshot) error {
		// A damaged object counts as different, so that this list replaces it.
		h, err := sn.Header(e.Key)
		if err == nil && h != nil && !sn.Overlay.Has(e.Key) {
			err = r.s.codec.Check(e.Key, sn.Objects.Get([]byte(e.Key)))
		}
		same = err == nil && h != nil && h.SameContent(e.Head)
		return nil
	})
	return same, err
}

// load writes staged objects of a first list.
func (r *relist) load(entries []*overlay.Entry, train bool) error {
	s := r.s
	bytes := int64(0)
	r.wrote = true
	packed, err := r.packer.PackList(entries, train)
	if err != nil {
		return err
	}
	err = s.db.update("first list of "+s.scope.String(), func(tx *bbolt.Tx) (err error) {
		if r.isLost() {
			return nil // the list has to start again in the new file
		}
		w, err := s.writer(tx)
		if err != nil {
			return err
		}
		if w.Scope.Bucket(layout.Former) != nil && !s.db.hasRoom(tx, packed) {
			return bbolterrors.ErrMaxSizeReached // dropping that takes room, too
		}
		// A server lists in key order, so new keys are appended.
		w.Append()
		for i, e := range entries {
			if err := w.Put(e, packed[i], w.Before(e.Key)); err != nil {
				return err
			}
		}
		bytes = w.Manifest.Bytes
		w.Manifest.Complete = false
		return w.End()
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.lost != nil {
		return r.lost
	}
	for name, m := range s.inMemory {
		for _, e := range entries {
			m.Set(e.Key, e.Values(name))
		}
	}
	s.storedBytes = bytes
	return nil
}

// roomToDrop are the bytes of the pages that a transaction takes which drops a bucket.
const roomToDrop = 256 << 10

// hasRoom reports whether a file that is bounded has room for records, and roomToDrop
// beside them. It estimates how much of their pages bbolt fills, and knows that bbolt
// extends a file by AllocSize more than it needs, or not at all.
func (d *DB) hasRoom(tx *bbolt.Tx, records []record.Packed) bool {
	if d.opts.MaxBytes <= 0 {
		return true
	}
	file, err := os.Stat(d.file.Path())
	if err != nil {
		return true
	}
	need := int64(roomToDrop)
	for _, p := range records {
		need += int64(len(p.Bytes)) * 3 / 2
	}
	free := int64(tx.DB().Stats().FreePageN) * int64(tx.DB().Info().PageSize)
	end := max(file.Size(), int64(d.opts.MaxBytes-tx.DB().AllocSize))
	return need <= free+end-tx.Size()
}

// endLoad writes the rest of a first list. What the disk does not accept is left to the
// committer. So is a small list without a dictionary, for a second time: it is written as
// it is, because the training takes longer than such a list, and the committer compresses
// it while readers read it from memory.
func (r *relist) endLoad() error {
	r.awaitWritten()
	s, entries := r.s, r.staged.Values()
	again := !r.sent && len(entries) >= codec.MinSamples && r.packer.CanTrain()
	err := r.load(entries, !again)
	s.mu.Lock()
	if r.lost != nil {
		defer s.mu.Unlock()
		return r.lost
	}
	r.whole = true
	if again || err != nil {
		r.left = entries
	}
	r.reset()
	added := s.indexes != r.indexes
	s.mu.Unlock()
	if added {
		r.indexAgain()
	}
	return nil
}

// leftEntries returns what a first list has left to the committer, with the values of all
// indexers. The caller must hold writerMu.
func (s *scopeStore) leftEntries() ([]*overlay.Entry, error) {
	s.mu.Lock()
	r, indexes := s.relist, s.indexes
	var left []*overlay.Entry
	if r != nil {
		left = r.left
	}
	s.mu.Unlock()
	if r == nil || indexes == r.indexes {
		return left, nil
	}
	for i, e := range left {
		if e.Head == nil || e.Indexes == indexes {
			continue
		}
		again, err := s.codec.PrepareEntry(indexes, s.codec.Pending(e))
		if err != nil {
			return nil, err
		}
		again.Object, again.Encoded = nil, store.Entry{}
		left[i] = again
	}
	return left, nil
}

// loading is the list that is going on.
type loading struct{ relist *relist }

// listed ends the loading of a list that is applied. It returns nil if there is none.
func (l *loading) listed() *relist {
	if l.relist != nil {
		l.relist.left = nil
	}
	return l.relist
}

// Lost ends the list, because it may have lost a part.
func (l *loading) Lost(cause error) {
	if l.relist != nil {
		l.relist.lost = cause
	}
}

// indexAgain computes the entries of indexers that were added during the load, from all
// objects.
func (r *relist) indexAgain() {
	s := r.s
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	indexes := s.indexes
	s.mu.Unlock()
	built, err := s.computeVolatile(indexes.Volatile, true, nil)
	if err != nil {
		s.db.opts.Logger.Error(err, "An index that was added during the first list is not whole", "scope", s.scope.String())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.inMemory, built)
}

func (r *relist) reset() {
	r.staged, r.bytes = &btree.Map[string, *overlay.Entry]{}, 0
}

// spill writes staged entries to the staging bucket. The first call of a relist drops
// what an earlier relist may have left there.
func (r *relist) spill(entries []*overlay.Entry) error {
	s := r.s
	if s.needsBucket() {
		return errors.New("nothing of the scope is in the file yet")
	}
	r.wrote = true
	packed, err := r.packer.Pack(seal.InStaging, entries)
	if err != nil {
		return err
	}
	return s.db.update("staging of "+s.scope.String(), func(tx *bbolt.Tx) (err error) {
		if r.isLost() {
			return nil // else it would be in a file that was wiped
		}
		scope := s.bucket(tx)
		if scope == nil {
			return s.db.corrupt("scope "+s.scope.String(), errors.New("missing"))
		}
		if err := s.seal.Persist(tx); err != nil {
			return err
		}
		if !r.spilled && scope.Bucket(layout.Staging) != nil {
			if err := scope.DeleteBucket(layout.Staging); err != nil {
				return err
			}
		}
		b, err := scope.CreateBucketIfNotExists(layout.Staging)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if e.Head == nil {
				if err := b.Delete([]byte(e.Key)); err != nil {
					return err
				}
				continue
			}
			v, err := encodeStaged(e, s.codec.ID(), packed[i])
			if err != nil {
				return err
			}
			if err := b.Put([]byte(e.Key), v); err != nil {
				return err
			}
		}
		return nil
	})
}

// A staged entry is the length of its header, its header and its record. Its dictionary
// and its data key may be missing in the file, because only this process reads it.
func encodeStaged(e *overlay.Entry, codecID byte, p record.Packed) ([]byte, error) {
	head, err := e.Stored(p).Encode(e.Key)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(nil, uint64(len(head)))
	b = append(b, head...)
	return append(b, p.Record(codecID).Encode(e.Key)...), nil
}

func (s *scopeStore) decodeStaged(key string, b []byte) (*overlay.Entry, error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, record.ErrShort
	}
	b = b[w:]
	head, err := s.seal.Header(seal.InStaging, key, b[:n])
	if err != nil {
		return nil, err
	}
	rec, err := record.Decode(key, b[n:])
	if err != nil {
		return nil, err
	}
	payload, err := s.seal.AppendPayload(nil, seal.InStaging, key, rec)
	if err != nil {
		return nil, err
	}
	name := key
	if head.Name != "" {
		name = head.Name
	}
	return &overlay.Entry{Key: key, Name: name, Head: head, Payload: record.Packed{Dictionary: rec.Dictionary, Bytes: payload}}, nil
}

// Close implements store.Relist.
func (r *relist) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.awaitWritten()
	s := r.s
	s.mu.Lock()
	s.relist = nil
	unfinished := s.isLoading()
	s.mu.Unlock()
	if unfinished {
		return s.discardLoad(r.wrote)
	}
	if !r.wrote {
		return nil
	}
	return s.dropStaging()
}

// waitForRoom bounds the pending changes if a relist makes changes faster than the disk
// writes them. A transaction holds several times their bytes: whole pages, and the states
// before for the log. Therefore the bound is lower than CommitBytes. waitForRoom waits
// for one commit attempt, and not at all after a failed one.
func (s *scopeStore) waitForRoom() {
	s.mu.Lock()
	full := s.overlay.Bytes() > s.db.opts.CommitBytes/2 && s.commitErr == nil
	s.mu.Unlock()
	if full {
		_ = s.flushOnce(context.Background()) // commitErr has its error
	}
}

// discardLoad drops what an unfinished first list has written.
func (s *scopeStore) discardLoad(wrote bool) error {
	if wrote {
		s.mu.Lock()
		why := s.checkpoint.Reason
		s.mu.Unlock()
		if err := s.startEmpty(true, why); mayGoOn(err) {
			s.db.opts.Logger.Error(err, "Could not drop a list that did not end, the next write does", "scope", s.scope.String())
			s.forgetAttempts() // what they may have written has to be dropped
			s.setNoBucket(true)
		} else if err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listBroken()
	return nil
}
