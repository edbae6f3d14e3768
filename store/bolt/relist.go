package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"

	"github.com/tidwall/btree"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

const (
	// stagingMemory is how much of what a relist found to differ waits in memory,
	// in bytes, before it goes to the staging bucket.
	stagingMemory = 32 << 20
	// loadBytes is how much of a first list is written in one transaction.
	loadBytes = 8 << 20
	// fillOfList is how full a first list's pages are made; bbolt's default is half,
	// for keys that come in no order.
	fillOfList = 0.9
	// partChanges and partBytes bound one batch of Parts.
	partChanges = 500
	partBytes   = 4 << 20
)

// relist implements store.Relist. One goroutine drives it.
//
// Where the scope has no list yet, what is added is written straight to the
// objects, while Store.loading hides them and the manifest says that they are
// incomplete: a start that finds that drops them. Otherwise what differs is
// staged, in memory and then in the file's staging bucket.
type relist struct {
	s       *Store
	direct  bool
	indexes *indexSet // those there were at the start
	seen    map[string]struct{}
	staged  *btree.Map[string, *entry]
	bytes   int  // of staged
	limit   int  // bytes at which staged is written
	spilled bool // staging bucket holds something
	loaded  int  // objects written directly
	wrote   bool // something was, or may have been
	closed  bool
}

// Relist implements store.Store.
func (s *Store) Relist() (store.Relist, error) {
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
	leftover := s.loading
	s.mu.Unlock()
	if leftover { // of a first list that the disk did not let go
		if err := s.discardLoad(true); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.writable {
		return nil, store.ErrClosed
	}
	r := &relist{
		s: s, indexes: s.indexes, seen: map[string]struct{}{}, staged: &btree.Map[string, *entry]{},
		direct: !s.listed,
	}
	if r.limit = stagingMemory; r.direct {
		r.limit = loadBytes
	}
	s.loading = r.direct
	s.relist = r
	return r, nil
}

// Add implements store.Relist.
func (r *relist) Add(obj runtime.Object) error {
	if r.closed {
		return store.ErrClosed
	}
	r.s.mu.Lock()
	indexes := r.s.indexes
	r.s.mu.Unlock()
	e, err := r.s.prepareObject(indexes, "", obj)
	if err != nil {
		var bad *store.ObjectError
		if errors.As(err, &bad) && bad.Key != "" {
			r.Keep(bad.Key)
		}
		return err
	}
	e.object = nil
	r.seen[e.key] = struct{}{}
	if !r.direct {
		same, err := r.isStored(e)
		if err != nil {
			return err
		}
		if same {
			r.unstage(e.key)
			return nil
		}
	}
	r.stage(e)
	if r.bytes < r.limit {
		return nil
	}
	write := r.spill
	if r.direct {
		write = r.load
	}
	if err := write(); err != nil {
		// A disk that is full or broken must not keep the list from being served:
		// it waits in memory, and the next attempt comes when it has doubled.
		r.s.db.opts.Logger.Error(err, "Could not write a list, keeping it in memory", "scope", r.s.scope.String())
		r.limit = 2 * r.bytes
	}
	return nil
}

// Keep implements store.Relist.
func (r *relist) Keep(key string) { r.seen[key] = struct{}{} }

func (r *relist) stage(e *entry) {
	if old, replaced := r.staged.Set(e.key, e); replaced {
		r.bytes -= old.size()
	}
	r.bytes += e.size()
}

// unstage drops an earlier version of a key that the list then had unchanged.
func (r *relist) unstage(key string) {
	if old, there := r.staged.Delete(key); there {
		r.bytes -= old.size()
	}
}

func (r *relist) isStored(e *entry) (same bool, err error) {
	err = r.s.read("header "+e.key, nil, func(sn *snapshot) error {
		if p, ok := sn.pending.Get(e.key); ok {
			same = p.head != nil && p.head.sameContent(e.head)
			return nil
		}
		if sn.headers == nil {
			return nil
		}
		b := sn.headers.Get([]byte(e.key))
		if b == nil {
			return nil
		}
		// What is damaged is not the same, so that this list mends it.
		h, err := decodeHeader(e.key, b)
		if err == nil {
			_, err = decodeRecord(e.key, sn.objects.Get([]byte(e.key)))
		}
		same = err == nil && h.sameContent(e.head)
		return nil
	})
	return same, err
}

// load writes staged objects of a first list.
func (r *relist) load() error {
	s := r.s
	loaded := 0
	r.wrote = true
	entries := r.staged.Values()
	packed := s.pack(entries)
	err := s.db.update("first list of "+s.scope.String(), func(tx *bbolt.Tx) (err error) {
		w, err := s.writer(tx)
		if err != nil {
			return err
		}
		// A server lists in key order, so what follows goes behind.
		w.headers.FillPercent, w.objects.FillPercent = fillOfList, fillOfList
		for i, e := range entries {
			if err := w.apply(e, packed[i]); err != nil {
				return err
			}
		}
		loaded = int(w.m.Objects.Count)
		w.m.Complete = false
		return w.m.write(w.scope)
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	r.staged.Scan(func(key string, e *entry) bool {
		for name, m := range s.inMemory {
			m.set(key, e.values(name))
		}
		return true
	})
	s.mu.Unlock()
	r.loaded = loaded
	r.reset()
	return nil
}

// endLoad writes the rest of a first list, or leaves it to the committer where
// the disk does not take it.
func (r *relist) endLoad() {
	err := r.load()
	s := r.s
	s.mu.Lock()
	s.length = r.loaded
	if err != nil {
		r.staged.Scan(func(_ string, e *entry) bool {
			s.insertLocked(e, false)
			return true
		})
		s.changedLocked()
		r.reset()
	}
	added := s.indexes != r.indexes
	s.mu.Unlock()
	if added {
		r.indexAgain()
	}
}

// indexAgain makes the entries of indexers that were added while the list was
// loaded, from all objects. They are visible from here on.
func (r *relist) indexAgain() {
	s := r.s
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	s.loading = false
	indexes := s.indexes
	s.mu.Unlock()
	built, err := s.computeVolatile(indexes.volatile)
	if err != nil {
		s.db.opts.Logger.Error(err, "An index that was added during the first list is not whole", "scope", s.scope.String())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.inMemory, built)
}

func (r *relist) reset() {
	r.staged, r.bytes = &btree.Map[string, *entry]{}, 0
}

// spill moves what is staged in memory to the staging bucket.
func (r *relist) spill() error {
	s := r.s
	entries := r.staged.Values()
	packed := s.pack(entries)
	err := s.db.update("staging of "+s.scope.String(), func(tx *bbolt.Tx) (err error) {
		scope := s.bucket(tx)
		if scope == nil {
			return s.db.corrupt("scope "+s.scope.String(), errors.New("missing"))
		}
		b, err := scope.CreateBucketIfNotExists(bucketStaging)
		if err != nil {
			return err
		}
		for i, e := range entries {
			v, err := encodeStaged(e, s.opts.Codec.ID(), packed[i])
			if err != nil {
				return err
			}
			if err := b.Put([]byte(e.key), v); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		r.spilled = true
		r.reset()
	}
	return err
}

// A staged entry is its header, with the length in front, and its record. Its
// dictionary may be one that the file has not: nobody reads it after this process.
func encodeStaged(e *entry, codecID byte, p packed) ([]byte, error) {
	head, err := e.head.encode(e.key)
	if err != nil {
		return nil, err
	}
	b := binary.AppendUvarint(nil, uint64(len(head)))
	b = append(b, head...)
	return append(b, record{codec: codecID, dictionary: p.dictionary, payload: p.payload}.encode(e.key)...), nil
}

func (s *Store) decodeStaged(key string, b []byte) (*entry, error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, errShort
	}
	b = b[w:]
	head, err := decodeHeader(key, b[:n])
	if err != nil {
		return nil, err
	}
	rec, err := decodeRecord(key, b[n:])
	if err != nil {
		return nil, err
	}
	payload, err := s.dictionaries.Load().unpack(packed{rec.dictionary, rec.payload}, nil)
	if err != nil {
		return nil, err
	}
	return &entry{key: key, head: head, payload: append([]byte(nil), payload...)}, nil
}

// Close implements store.Relist.
func (r *relist) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	s := r.s
	s.mu.Lock()
	s.relist = nil
	unfinished := s.loading
	s.mu.Unlock()
	if unfinished {
		return s.discardLoad(r.wrote)
	}
	if !r.spilled {
		return nil
	}
	return s.dropStaging()
}

// waitForRoom keeps what is pending bounded while a relist makes changes faster
// than the disk takes them. It waits for one commit and not for a disk that is
// broken.
func (s *Store) waitForRoom() {
	s.mu.Lock()
	full := s.pendingBytes > 2*s.db.opts.CommitBytes && s.commitErr == nil
	s.mu.Unlock()
	if full {
		_ = s.flushOnce(context.Background()) // its error stays in commitErr
	}
}

func (s *Store) endLoading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loading {
		s.loading, s.listed = false, true
		s.changedLocked()
		s.db.tell(false)
	}
}

// discardLoad drops what a first list that did not end has written.
func (s *Store) discardLoad(wrote bool) error {
	if wrote {
		s.mu.Lock()
		why := s.checkpoint.Reason
		s.mu.Unlock()
		if err := s.startEmpty(true, why); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.length, s.loading = 0, false
	s.pending, s.pendingBytes = &btree.Map[string, *entry]{}, 0
	for name := range s.inMemory {
		s.inMemory[name] = newMemoryIndex()
	}
	return nil
}
