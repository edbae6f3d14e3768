package bolt

import (
	"fmt"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// chunk is the number of objects that are read, decoded or written at a time.
const chunk = 256

// indexing is the state of a scope's indexes.
type indexing struct {
	indexes *indexes.Set // replaced, never changed
	// inMemory holds the entries of indexes.volatile, and of all indexes if every object
	// is kept decoded.
	inMemory map[string]*indexes.Memory
	// oldIndexes are indexes in the file that the next write drops; set to nil under
	// writeMu.
	oldIndexes []string
	indexErrs  map[string]error // results of verifyIndex, by name
}

func (x *indexing) applied(e *overlay.Entry) {
	for name, m := range x.inMemory {
		m.Set(e.Key, e.Values(name))
	}
}

func (x *indexing) forget() {
	for name := range x.inMemory {
		x.inMemory[name] = indexes.NewMemory()
	}
}

func (x *indexing) Lost(error) { x.forget() }

// rejects returns a function that passes the errors of index functions to
// Options.Rejected while the scope is opened.
func (s *scopeStore) rejects(key string) func(error) {
	return func(err error) {
		if s.opts.Rejected != nil {
			s.opts.Rejected(&store.ObjectError{Key: key, Err: err})
		}
	}
}

// reconcileIndexes changes the file's indexes to those of the options: it drops other
// indexes and builds missing and changed ones from the stored objects. If the disk is
// full, it keeps the latter in memory, and the next write drops their old entries from
// the file.
func (s *scopeStore) reconcileIndexes(m *record.Manifest) error {
	var drop, build []string
	for name, state := range m.Indexes {
		idx, wanted := s.indexes.Stored[name]
		if !wanted || state.Identity != idx.Identity() || !state.Ready {
			drop = append(drop, name)
		}
	}
	for name := range s.indexes.Stored {
		if _, there := m.Indexes[name]; !there || slices.Contains(drop, name) {
			build = append(build, name)
		}
	}
	if len(drop)+len(build) == 0 {
		return nil
	}
	err := s.db.update("indexes of "+s.scope.String(), func(tx *bbolt.Tx) error {
		w, err := s.writer(tx)
		if err != nil {
			return err
		}
		for _, name := range drop {
			if err := w.DropIndex(name); err != nil {
				return err
			}
		}
		s.sayDropped(drop)
		for _, name := range build {
			w.Manifest.Indexes[name] = record.IndexState{Identity: s.indexes.Stored[name].Identity()}
		}
		return w.End()
	})
	if err == nil && len(build) > 0 {
		err = s.buildIndexes(build)
	}
	if !mayGoOn(err) {
		return err
	}
	s.db.opts.Logger.Error(err, "Could not make indexes in the file, keeping them in memory until the next start", "scope", s.scope.String(), "indexes", build)
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &indexes.Set{Stored: maps.Clone(s.indexes.Stored), Volatile: maps.Clone(s.indexes.Volatile)}
	for _, name := range build {
		next.Volatile[name] = next.Stored[name].Func
		delete(next.Stored, name)
		s.inMemory[name] = indexes.NewMemory()
	}
	s.indexes, s.oldIndexes = next, append(drop, build...)
	s.progress.changed()
	s.db.tell(false)
	return nil
}

// sayDropped logs the indexes that are no longer requested, because queries by them
// worked before.
func (s *scopeStore) sayDropped(names []string) {
	for _, name := range names {
		if !s.indexes.Has(name) {
			s.db.opts.Logger.Info("Index is no longer kept", "index", name, "scope", s.scope.String())
		}
	}
}

// buildIndexes rewrites the headers and index entries of every object, in chunks, so that
// no user code runs inside a transaction. The indexes become ready with the last chunk;
// after a crash before that, the next start builds them again.
func (s *scopeStore) buildIndexes(names []string) error {
	losses, packer := s.countLosses(), s.packer.Load()
	for after, more := "", true; more; {
		entries, err := s.scanAs(false, after, chunk)
		if err != nil {
			return err
		}
		prepared := make([]*overlay.Entry, 0, len(entries))
		for _, e := range entries {
			obj, err := s.Decode(e)
			if err != nil {
				return err
			}
			p, err := s.codec.Prepare(s.indexes, e.Key, obj, s.rejects(e.Key))
			if err != nil {
				return err
			}
			prepared = append(prepared, p)
			after = e.Key
		}
		more = len(entries) == chunk
		packed, err := packer.Pack(seal.InScope, prepared)
		if err != nil {
			return err
		}
		err = s.db.update("indexes of "+s.scope.String(), func(tx *bbolt.Tx) error {
			if s.countLosses() != losses {
				return nil // the next read returns the cause
			}
			w, err := s.writer(tx)
			if err != nil {
				return err
			}
			for i, p := range prepared {
				if err := w.Put(p, packed[i], w.Before(p.Key)); err != nil {
					return err
				}
			}
			if !more {
				for _, name := range names {
					state := w.Manifest.Indexes[name]
					state.Ready, state.Since = true, w.Manifest.Log.Last
					w.Manifest.Indexes[name] = state
				}
			}
			return w.End()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fillIndexes computes or reads the entries of the indexes in memory.
func (s *scopeStore) fillIndexes() error {
	if len(s.indexes.Volatile) > 0 {
		built, err := s.computeVolatile(s.indexes.Volatile, false, s.rejects)
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.cause == nil { // else built is of lost content
			maps.Copy(s.inMemory, built)
		}
		s.mu.Unlock()
	}
	for name := range s.indexes.Stored {
		s.mu.Lock()
		m := s.inMemory[name]
		s.mu.Unlock()
		if m == nil {
			continue
		}
		err := s.read("index "+name, func(sn *snapshot) error {
			return sn.EachIndexed(name, m.Add)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// computeVolatile computes the entries of index functions; readAs explains loaded. If
// rejects is nil, a failing function ends it.
func (s *scopeStore) computeVolatile(indexers cache.Indexers, loaded bool, rejects func(key string) func(error)) (map[string]*indexes.Memory, error) {
	built := map[string]*indexes.Memory{}
	for name := range indexers {
		built[name] = indexes.NewMemory()
	}
	for after, more := "", true; more; {
		entries, err := s.scanAs(loaded, after, chunk)
		if err != nil {
			return nil, err
		}
		objects, err := store.DecodeAll[runtime.Object](s, entries)
		if err != nil {
			return nil, err
		}
		for i, e := range entries {
			var failed func(error)
			if rejects != nil {
				failed = rejects(e.Key)
			}
			for name, fn := range indexers {
				values, err := indexes.ValuesOf(name, fn, objects[i], failed)
				if err != nil {
					return nil, &store.ObjectError{Key: e.Key, Err: err}
				}
				built[name].Set(record.FileKey(e.Key), values)
			}
			after = e.Key
		}
		more = len(entries) == chunk
	}
	return built, nil
}

// AddIndexes implements store.Store.
func (s *scopeStore) AddIndexes(newIndexers cache.Indexers) error {
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	current, writable := s.indexes, s.role == roleWriter
	// The whole list is in the file and will be applied next.
	whole := s.relist != nil && s.relist.whole
	s.mu.Unlock()
	if !writable {
		return store.ErrClosed
	}
	for name, fn := range newIndexers {
		if fn == nil {
			return fmt.Errorf("index %q has no function", name)
		}
		if current.Has(name) {
			return fmt.Errorf("index %q exists already", name)
		}
	}
	built, err := s.computeVolatile(newIndexers, whole, nil)
	if err != nil {
		return err
	}
	next := &indexes.Set{Stored: current.Stored, Volatile: maps.Clone(current.Volatile)}
	maps.Copy(next.Volatile, newIndexers)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil { // built is of lost content
		return s.cause
	}
	s.indexes = next
	maps.Copy(s.inMemory, built)
	return nil
}
