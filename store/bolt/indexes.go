package bolt

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
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
}

// applied sets what an entry says. It says nothing of an index that was added since it
// was made: that was computed from all objects.
func (x *indexing) applied(e *overlay.Entry) {
	for name, m := range x.inMemory {
		if e.Head == nil || e.Indexes == nil || e.Indexes.Has(name) {
			m.Set(e.Key, e.Values(name))
		}
	}
}

func (x *indexing) forget() {
	for name := range x.inMemory {
		x.inMemory[name] = indexes.NewMemory()
	}
}

func (x *indexing) Lost(error) { x.forget() }

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
	next := current.Clone()
	maps.Copy(next.Volatile, newIndexers)
	return from(s, func(s *state) error { return s.indexesBuilt(next, built) })
}
