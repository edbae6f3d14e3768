package bolt

import (
	"context"
	"errors"
	"iter"

	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/listing"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
)

// relist is a list of a scope. A listing.List makes it a store.Relist, and it is the
// Content of that List.
//
// If the scope has no list yet, objects are written directly to the objects bucket.
// phaseLoading hides them, and the manifest marks them as incomplete: the next start
// drops incomplete objects. Otherwise differing objects are staged, in memory and then in
// the staging bucket of the file.
type relist struct {
	*listing.List
	s       *scopeStore
	indexes *indexes.Set // the scope's indexes at the start
	packer  *pack.Packer
	wrote   bool // something was or may have been written

	// scopeStore.mu protects the fields below.
	whole bool             // the whole list was loaded
	left  []*overlay.Entry // what is left to the committer when the list is applied
	lost  error            // what was written is lost
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
	r := &relist{s: s, indexes: s.indexes, packer: s.packer.Load()}
	r.List = listing.New(r, s.listBegun(r), s.db.opts.Logger.WithValues("scope", s.scope.String()))
	return r, nil
}

// Parts implements store.Relist.
func (r *relist) Parts(rv string) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		for b, err := range r.List.Parts(rv) {
			r.waitForRoom()
			if !yield(b, err) {
				return
			}
		}
	}
}

// waitForRoom bounds the pending changes if a relist makes changes faster than the disk
// writes them. A transaction holds several times their bytes: whole pages, and the states
// before for the log. Therefore the bound is lower than CommitBytes. waitForRoom waits
// for one commit attempt, and not at all after a failed one.
func (r *relist) waitForRoom() {
	s := r.s
	s.mu.Lock()
	full := s.overlay.Bytes() > s.db.opts.CommitBytes/2 && s.commitErr == nil
	s.mu.Unlock()
	if full {
		_ = s.flushOnce(context.Background()) // commitErr has its error
	}
}

// Lost implements listing.Content.
func (r *relist) Lost() error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.lost
}

// Prepare implements listing.Content.
func (r *relist) Prepare(obj runtime.Object) (e *overlay.Entry, err error) {
	r.s.mu.Lock()
	indexes := r.s.indexes
	r.s.mu.Unlock()
	if e, err = r.s.codec.PrepareListed(indexes, obj); err != nil {
		return nil, err
	}
	e.Object, e.Encoded = nil, store.Entry{}
	return e, nil
}

// Same implements listing.Content.
func (r *relist) Same(e *overlay.Entry, obj runtime.Object) (same bool, err error) {
	same, isVersion, err := r.same(e)
	if err != nil || same || !isVersion {
		return same, err // an object of another resource version differs
	}
	return r.s.scope.SameButKind(obj, func() (bool, error) {
		e, err := r.Prepare(obj)
		if err != nil {
			return false, err
		}
		same, _, err := r.same(e)
		return same, err
	})
}

// same reports whether the content has the object of an entry, and whether it has its
// resource version.
func (r *relist) same(e *overlay.Entry) (same, isVersion bool, err error) {
	err = r.s.read("header "+e.Key, func(sn *snapshot) error {
		// A damaged object counts as different, so that this list replaces it.
		h, err := sn.Header(e.Key)
		if err == nil && h != nil && !sn.Overlay.Has(e.Key) {
			err = r.s.codec.Check(e.Key, sn.Objects.Get([]byte(e.Key)))
		}
		isVersion = err == nil && h != nil && h.RV == e.Head.RV
		same = err == nil && h != nil && h.SameContent(e.Head)
		return nil
	})
	return same, isVersion, r.giveUp(err)
}

// Keys implements listing.Content.
func (r *relist) Keys(after string, n int) (keys []string, err error) {
	err = r.s.read("keys", func(sn *snapshot) (err error) {
		if keys, err = sn.Keys(after, n); err != nil {
			err = r.s.db.corrupt("scope "+r.s.scope.String(), err)
		}
		return err
	})
	return keys, r.giveUp(err)
}

// Changes implements listing.Content.
func (r *relist) Changes(entries []*overlay.Entry) (changes []store.Change, err error) {
	for _, e := range entries {
		c, err := r.change(e)
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	err = r.s.read("headers", func(sn *snapshot) error {
		for i, e := range entries {
			// A damaged header is overwritten; its UID is not known.
			if h, err := sn.Header(e.Key); err == nil && h != nil {
				changes[i].Departs = h.IsAnother(e.Head)
			}
		}
		return nil
	})
	return changes, err
}

// change returns the change for a staged entry. The object stays encoded unless every
// object is kept decoded; the receiver decodes it. An entry that was read back from the
// file lacks the values of index functions without an identity, and an entry that was
// staged before an AddIndexes call lacks the values of the added functions: Prepare runs
// the functions again.
func (r *relist) change(e *overlay.Entry) (store.Change, error) {
	c := r.s.codec.Pending(e)
	if r.s.opts.DecodedBytes < 0 {
		obj, err := r.s.Decode(c)
		if err != nil {
			return store.Change{}, err
		}
		c, e.Object = store.Entry{Key: e.Name, Object: obj}, obj
	}
	if e.Indexes == nil && len(r.indexes.Volatile) == 0 {
		e.Indexes = r.indexes // staged entries were made with this set
	}
	return store.Change{Key: e.Name, Object: c.Object, Raw: c.Raw, Prepared: e}, nil
}

// giveUp starts a new file if the list cannot be compared with damaged content: the next
// list would meet the same damage. It opens a file again that has no handle, because only
// a write does, and there may be nothing to write.
func (r *relist) giveUp(err error) error {
	d := r.s.db
	if errors.Is(err, boltfile.ErrNoHandle) {
		return errors.Join(err, d.update("open again", func(*bbolt.Tx) error { return nil }))
	}
	if !boltfile.IsDamage(err) {
		return err
	}
	d.file.Lock()
	defer d.file.Unlock()
	if r.Lost() != nil || d.isClosed() {
		return err
	}
	return errors.Join(err, d.file.Reopen(true, err))
}

// Load implements listing.Content.
func (r *relist) Load(entries []*overlay.Entry) error { return r.load(entries, false) }

// load writes entries of a first list. isSmall is as for pack.Packer.PackList.
func (r *relist) load(entries []*overlay.Entry, isSmall bool) error {
	s := r.s
	bytes := int64(0)
	r.wrote = true
	packed, err := r.packer.PackList(entries, isSmall)
	if err != nil {
		return err
	}
	err = s.db.update("first list of "+s.scope.String(), func(tx *bbolt.Tx) (err error) {
		if r.Lost() != nil {
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
	return from(s, func(s *state) error { return s.partLoaded(r, entries, bytes) })
}

// LoadRest implements listing.Content. What the disk does not accept is left to the
// committer. So is a small list without a dictionary, for a second time: it is written as
// it is, because to train one for zstd takes longer than such a list, and the committer
// compresses it while readers read it from memory.
func (r *relist) LoadRest(entries []*overlay.Entry, isAll bool) error {
	err := r.load(entries, isAll)
	again := isAll && len(entries) >= codec.MinSamples && r.packer.CanTrain()
	if err == nil && !again {
		entries = nil
	}
	added, lost := r.loaded(entries, err == nil)
	if added {
		return r.indexAgain()
	}
	return lost
}

// loaded notes that the list is whole, and what is left to the committer. It reports
// whether indexes were added since the list began, or why the list is lost. An AddIndexes
// that runs ends before, or knows that the list is whole.
func (r *relist) loaded(left []*overlay.Entry, isInFile bool) (added bool, lost error) {
	s := r.s
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.lost != nil {
		return false, r.lost
	}
	r.whole, r.left = true, left
	for _, e := range left {
		e.InFile = isInFile
	}
	return s.indexes != r.indexes, nil
}

// loadedList is what is left to do when a first list is applied.
type loadedList struct {
	left    []*overlay.Entry // to the committer
	gone    []*overlay.Entry // of the former content, each as an entry that departs
	dropped int              // objects that are gone and exceed the bound of the log
}

// loadedList returns what is left to do for the loaded list. The caller must hold
// writerMu.
func (s *scopeStore) loadedList() (l loadedList, err error) {
	s.mu.Lock()
	r := s.relist
	s.mu.Unlock()
	if r == nil {
		return l, nil
	}
	if l.left, err = r.leftEntries(); err != nil {
		return l, err
	}
	if l.gone, l.dropped, err = r.departedFromFormer(l.left); err != nil {
		// Nothing can restore the deletions. The list must be served.
		s.db.opts.Logger.Error(err, "Not all that was deleted while no process ran can be told", "scope", s.scope.String())
		err = nil
	}
	return l, err
}

// leftEntries returns what a first list has left to the committer, with the values of all
// indexers. The caller must hold writerMu.
func (r *relist) leftEntries() ([]*overlay.Entry, error) {
	r.s.mu.Lock()
	left, indexes := r.left, r.s.indexes
	r.s.mu.Unlock()
	if indexes == r.indexes {
		return left, nil
	}
	for i, e := range left {
		if e.Head == nil || e.Indexes == indexes {
			continue
		}
		again, err := r.s.codec.PrepareEntry(indexes, r.s.codec.Pending(e))
		if err != nil {
			return nil, err
		}
		again.Object, again.Encoded = nil, store.Entry{}
		again.InFile = e.InFile // an indexer that was added has no entries in the file
		left[i] = again
	}
	return left, nil
}

// indexAgain computes the entries of indexers that were added during the load, from all
// objects. An object for which one fails is not in its index.
func (r *relist) indexAgain() error {
	s := r.s
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	indexes := s.indexes
	s.mu.Unlock()
	built, err := s.computeVolatile(indexes.Volatile, true, s.rejects)
	if err != nil {
		return err
	}
	// The error says that they are of lost content.
	s.locked(func(s *state) { _ = s.indexesBuilt(s.indexes, built) })
	return nil
}

// End implements listing.Content.
func (r *relist) End() error {
	s := r.s
	if unfinished := from(s, (*state).listEnded); unfinished {
		return s.discardLoad(r.wrote)
	}
	if !r.wrote {
		return nil
	}
	return s.dropStaging()
}

// discardLoad drops what an unfinished first list has written.
func (s *scopeStore) discardLoad(wrote bool) error {
	if wrote {
		why := from(s, func(s *state) string { return s.checkpoint.Reason })
		if err := s.startEmpty(true, why); mayGoOn(err) {
			s.db.opts.Logger.Error(err, "Could not drop a list that did not end, the next write does", "scope", s.scope.String())
			s.locked((*state).attemptsVoid)
			s.noBucket.Store(true)
		} else if err != nil {
			return err
		}
	}
	s.locked((*state).listBroken)
	return nil
}
