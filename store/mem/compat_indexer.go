package mem

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

var _ cache.Indexer = (*lease)(nil)

// Add stores an object.
func (s *lease) Add(obj interface{}) error {
	it, err := s.itemOfAny(obj)
	if err != nil {
		return err
	}
	return s.update(func(next *state) error {
		it, err := next.extend(it)
		if err != nil {
			return err
		}
		next.set(it)
		next.follow(obj)
		return nil
	})
}

// Update stores an object, as Add does.
func (s *lease) Update(obj interface{}) error { return s.Add(obj) }

// Delete removes an object, if it exists. It also accepts tombstones and
// cache.ExplicitKey.
func (s *lease) Delete(obj interface{}) error {
	key, err := store.KeyOf(cache.DeletionHandlingMetaNamespaceKeyFunc, obj)
	if err != nil {
		return err
	}
	return s.update(func(next *state) error {
		next.delete(key)
		next.follow(obj)
		return nil
	})
}

// follow sets the last resource version to that of an object, if it has metadata.
func (st *state) follow(obj interface{}) {
	if m, err := meta.Accessor(obj); err == nil {
		st.lastRV = m.GetResourceVersion()
	}
}

// itemOfAny is like newItem but accepts any type.
func (s *lease) itemOfAny(obj interface{}) (*item, error) {
	object, ok := obj.(runtime.Object)
	if !ok {
		return nil, &store.ObjectError{Err: fmt.Errorf("%T is not a runtime.Object", obj)}
	}
	return s.newItem("", object)
}

// Replace replaces all objects by a list.
func (s *lease) Replace(list []interface{}, rv string) error {
	items := make([]*item, len(list))
	for i, obj := range list {
		var err error
		if items[i], err = s.itemOfAny(obj); err != nil {
			return err
		}
	}
	return s.update(func(next *state) error {
		next.clear()
		for _, it := range items {
			it, err := next.extend(it)
			if err != nil {
				return err
			}
			next.set(it)
		}
		next.complete(rv)
		if rv == "" {
			next.lastRV = ""
			next.checkpoint = store.Checkpoint{Reason: "list had no resource version", Time: time.Now()}
		}
		return nil
	})
}

// Resync does nothing, as in client-go.
func (s *lease) Resync() error { return nil }

// Bookmark moves the checkpoint to rv. It does nothing if rv is empty or after Close.
func (s *lease) Bookmark(rv string) {
	if rv == "" {
		return
	}
	// The only error is ErrClosed, and the method has no error result.
	_ = s.update(func(next *state) error {
		next.complete(rv)
		return nil
	})
}

// LastStoreSyncResourceVersion returns the resource version of the last written object,
// batch, list or bookmark.
func (s *lease) LastStoreSyncResourceVersion() string {
	st, _ := s.view()
	return st.lastRV
}

// List returns the objects in key order.
func (s *lease) List() []interface{} {
	list, _ := s.TryList()
	return list
}

// TryList is like List but returns store.ErrClosed.
func (s *lease) TryList() ([]interface{}, error) {
	st, err := s.view()
	if err != nil {
		return nil, err
	}
	list := make([]interface{}, 0, st.objects.Len())
	st.objects.Scan(func(_ string, it *item) bool {
		list = append(list, it.object)
		return true
	})
	return list, nil
}

// ListKeys returns the keys in order.
func (s *lease) ListKeys() []string {
	keys, _ := s.TryListKeys()
	return keys
}

// TryListKeys is like ListKeys but returns store.ErrClosed.
func (s *lease) TryListKeys() ([]string, error) {
	st, err := s.view()
	if err != nil {
		return nil, err
	}
	return st.objects.Keys(), nil
}

// Get returns the object with the key of obj.
func (s *lease) Get(obj interface{}) (item interface{}, exists bool, err error) {
	key, err := store.KeyOf(cache.DeletionHandlingMetaNamespaceKeyFunc, obj)
	if err != nil {
		return nil, false, err
	}
	return s.GetByKey(key)
}

// GetByKey returns the object with a key.
func (s *lease) GetByKey(key string) (item interface{}, exists bool, err error) {
	st, err := s.view()
	if it, ok := st.objects.Get(key); ok {
		return it.object, true, nil
	}
	return nil, false, err
}

// Index returns the objects that share an index value with obj, without duplicates.
func (s *lease) Index(indexName string, obj interface{}) ([]interface{}, error) {
	st, ix, err := s.index(indexName)
	if err != nil {
		return nil, err
	}
	values, err := ix.valuesOf(obj)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, value := range values {
		for _, it := range ix.items(value) {
			found[it.key] = true
		}
	}
	list := make([]interface{}, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		it, _ := st.objects.Get(key)
		list = append(list, it.object)
	}
	return list, nil
}

// ByIndex returns the objects with an index value, in key order.
func (s *lease) ByIndex(indexName, indexedValue string) ([]interface{}, error) {
	_, ix, err := s.index(indexName)
	if err != nil {
		return nil, err
	}
	items := ix.items(indexedValue)
	list := make([]interface{}, len(items))
	for i, it := range items {
		list[i] = it.object
	}
	return list, nil
}

// IndexKeys returns the keys of the objects with an index value, in order.
func (s *lease) IndexKeys(indexName, indexedValue string) ([]string, error) {
	_, ix, err := s.index(indexName)
	if err != nil {
		return nil, err
	}
	items := ix.items(indexedValue)
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.key
	}
	return keys, nil
}

// index returns the named index and its state.
func (s *lease) index(name string) (*state, inverted, error) {
	st, err := s.view()
	if err != nil {
		return nil, inverted{}, err
	}
	ix, err := st.index(name)
	return st, ix, err
}

// ListIndexFuncValues returns the values of an index in order; nil if the index does not
// exist.
func (s *lease) ListIndexFuncValues(indexName string) []string {
	values, _ := s.TryListIndexFuncValues(indexName)
	return values
}

// TryListIndexFuncValues is like ListIndexFuncValues but returns an error.
func (s *lease) TryListIndexFuncValues(indexName string) ([]string, error) {
	_, ix, err := s.index(indexName)
	if err != nil {
		return nil, err
	}
	return ix.distinct(), nil
}

// GetIndexers returns the index functions in a map that the caller owns.
func (s *lease) GetIndexers() cache.Indexers {
	st, _ := s.view()
	indexers := make(cache.Indexers, len(st.inverted))
	for _, ix := range st.inverted {
		indexers[ix.name] = ix.fn
	}
	return indexers
}

// AddIndexers adds all index functions or, on an error, none. It calls them for the
// stored objects. Meanwhile other writers wait; readers do not.
func (s *lease) AddIndexers(newIndexers cache.Indexers) error {
	return s.update(func(next *state) error {
		for _, name := range slices.Sorted(maps.Keys(newIndexers)) {
			if _, err := next.index(name); err == nil {
				return fmt.Errorf("add index %q: %w", name, errTwice)
			}
			if newIndexers[name] == nil {
				return fmt.Errorf("add index %q: no function", name)
			}
			ix := fromFunc(name, newIndexers[name])
			ix.entries = newEntries()
			next.inverted = append(next.inverted, ix)
		}
		return next.extendAll()
	})
}
