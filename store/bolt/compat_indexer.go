package bolt

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// These are the methods of cache.Indexer; the rest of the package is typed.
var _ cache.Indexer = (*Store)(nil)

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// Add implements cache.Store.
func (s *Store) Add(obj interface{}) error { return s.put(obj) }

// Update implements cache.Store.
func (s *Store) Update(obj interface{}) error { return s.put(obj) }

func (s *Store) put(obj interface{}) error {
	o, err := asObject(obj)
	if err != nil {
		return err
	}
	if err := s.Apply(store.Batch{Changes: []store.Change{{Object: o}}}); err != nil {
		return err
	}
	s.sawObject(o)
	return nil
}

// sawObject follows client-go's rule for LastStoreSyncResourceVersion: it is the resource
// version of the last written object, even if it is not the newest.
func (s *Store) sawObject(obj runtime.Object) {
	if accessor, err := meta.Accessor(obj); err == nil {
		s.mu.Lock()
		s.storeRV = accessor.GetResourceVersion()
		s.mu.Unlock()
	}
}

func asObject(obj interface{}) (runtime.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok || o == nil {
		return nil, &store.ObjectError{Err: fmt.Errorf("a %T is no runtime.Object", obj)}
	}
	return o, nil
}

// Delete implements cache.Store.
func (s *Store) Delete(obj interface{}) error {
	key, err := store.KeyOf(cache.DeletionHandlingMetaNamespaceKeyFunc, obj)
	if err != nil {
		return err
	}
	if err := s.Apply(store.Batch{Changes: []store.Change{{Key: key}}}); err != nil {
		return err
	}
	if o, ok := obj.(runtime.Object); ok {
		s.sawObject(o)
	}
	return nil
}

// Replace implements cache.Store.
func (s *Store) Replace(list []interface{}, rv string) error {
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	byKey := map[string]store.Change{}
	for _, obj := range list {
		o, err := asObject(obj)
		if err != nil {
			return err
		}
		key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, o)
		if err != nil {
			return err
		}
		byKey[key] = store.Change{Key: key, Object: o}
	}
	stored, err := s.TryListKeys()
	if err != nil {
		return err // else the objects that are not in the list would stay
	}
	for _, key := range stored {
		if _, kept := byKey[key]; !kept {
			byKey[key] = store.Change{Key: key}
		}
	}
	b := store.Batch{RV: rv}
	for _, key := range sortedKeys(byKey) {
		b.Changes = append(b.Changes, byKey[key])
	}
	if err := s.applyBatch(b); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.storeRV = rv; rv == "" {
		s.setCheckpointLocked(store.Checkpoint{Reason: "replaced without a resource version"})
		s.db.tell(false)
	}
	return nil
}

// Resync implements cache.Store. It does nothing.
func (s *Store) Resync() error { return nil }

// Bookmark implements cache.Store.
func (s *Store) Bookmark(rv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.writable || s.lost != nil { // a lost scope has no checkpoint
		return
	}
	if rv == "" {
		s.storeRV = ""
		return
	}
	s.setCheckpointLocked(store.Checkpoint{RV: rv})
	s.db.tell(false)
}

// LastStoreSyncResourceVersion implements cache.Store.
func (s *Store) LastStoreSyncResourceVersion() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.storeRV
}

// Get implements cache.Store.
func (s *Store) Get(obj interface{}) (item interface{}, exists bool, err error) {
	key, err := store.KeyOf(cache.DeletionHandlingMetaNamespaceKeyFunc, obj)
	if err != nil {
		return nil, false, err
	}
	return s.GetByKey(key)
}

// GetByKey implements cache.Store.
func (s *Store) GetByKey(key string) (item interface{}, exists bool, err error) {
	obj, ok, err := s.get(key)
	if err != nil || !ok {
		return nil, false, err
	}
	return obj, true, nil
}

// List implements cache.Store. It answers from one snapshot. If it cannot return every
// object, it returns nil and Err returns the reason.
func (s *Store) List() []interface{} {
	out, _ := s.TryList()
	return out
}

// TryList implements store.Store.
func (s *Store) TryList() ([]interface{}, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	if out, ok := s.listDecoded(); ok {
		return out, nil
	}
	out, err := s.objects(s.pick(store.Query{}, "", nil, true))
	if err != nil {
		return nil, s.noteUnread(err)
	}
	if !s.db.readOnly {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.readErr = nil // a relist has replaced the damaged objects
	}
	return out, nil
}

// noteUnread stores for Err the reason why a method without an error result could not
// answer.
func (s *Store) noteUnread(err error) error {
	if errors.Is(err, store.ErrClosed) {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readErr = err
	return err
}

// ListKeys implements cache.Store. It reports errors as List does.
func (s *Store) ListKeys() []string {
	keys, _ := s.TryListKeys()
	return keys
}

// TryListKeys implements store.Store.
func (s *Store) TryListKeys() (keys []string, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	if err := s.Err(); err != nil && s.db.readOnly {
		return nil, err
	}
	err = s.read("keys", nil, func(sn *snapshot) (err error) {
		if keys, err = sn.keys("", -1); err != nil {
			err = s.db.corrupt("scope "+s.scope.String(), err)
		}
		return err
	})
	if err == nil {
		err = s.isWhole(len(keys))
	}
	if err != nil {
		return nil, s.noteUnread(err)
	}
	return keys, nil
}

// objects decodes entries in parallel.
func (s *Store) objects(entries []store.Entry, err error) ([]interface{}, error) {
	if err != nil {
		return nil, err
	}
	decoded, err := store.DecodeAll[runtime.Object](s, entries)
	if err != nil {
		return nil, err
	}
	out := make([]interface{}, len(decoded))
	for i, obj := range decoded {
		out[i] = obj
	}
	return out, nil
}

// Index implements cache.Indexer.
func (s *Store) Index(indexName string, obj interface{}) ([]interface{}, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	fn := s.indexes.indexers()[indexName]
	s.mu.Unlock()
	if fn == nil {
		return nil, s.noIndex(indexName)
	}
	values, err := index.Values(fn, obj)
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", indexName, err)
	}
	return s.byIndex(indexName, values)
}

// ByIndex implements cache.Indexer.
func (s *Store) ByIndex(indexName, indexedValue string) ([]interface{}, error) {
	return s.byIndex(indexName, []string{indexedValue})
}

func (s *Store) byIndex(name string, values []string) ([]interface{}, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	if out, ok := s.indexDecoded(name, values); ok {
		return out, nil
	}
	return s.objects(s.pick(store.Query{}, name, values, true))
}

// IndexKeys implements cache.Indexer. The keys are sorted.
func (s *Store) IndexKeys(indexName, indexedValue string) (keys []string, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	find, err := s.finder(indexName, []string{indexedValue})
	if err != nil {
		return nil, err
	}
	err = s.read("index "+indexName, find.locked, func(sn *snapshot) (err error) {
		if keys, err = find.keys(sn); err != nil {
			return err
		}
		for i, key := range keys {
			if keys[i], err = sn.name(key); err != nil {
				return s.db.corrupt("header "+key, err)
			}
		}
		return nil
	})
	return keys, err
}

// finder finds the file keys of some values of one index. locked runs at the moment of
// the snapshot, so that entries in memory are of the same moment.
type finder struct {
	locked func()
	keys   func(*snapshot) ([]string, error)
}

func (s *Store) finder(name string, values []string) (finder, error) {
	s.mu.Lock()
	_, isStored := s.indexes.stored[name]
	inMemory := s.inMemory[name] != nil
	s.mu.Unlock()
	switch {
	case inMemory:
		var keys []string
		locked := func() {
			if !s.loading {
				keys = s.inMemory[name].find(values)
			}
		}
		return finder{locked, func(*snapshot) ([]string, error) {
			slices.Sort(keys)
			return keys, nil
		}}, nil
	case isStored:
		stored := make([]string, len(values))
		for i, value := range values {
			var err error
			if stored[i], err = s.seal.indexValue(name, value); err != nil {
				return finder{}, err
			}
		}
		return finder{nil, func(sn *snapshot) ([]string, error) {
			if err := s.verifyIndex(sn, name); err != nil {
				return nil, err
			}
			if len(values) == 1 {
				return sn.indexKeys(name, values[0], stored[0]), nil
			}
			found := map[string]struct{}{}
			for i, value := range values {
				for _, key := range sn.indexKeys(name, value, stored[i]) {
					found[key] = struct{}{}
				}
			}
			return sortedKeys(found), nil
		}}, nil
	}
	return finder{}, s.noIndex(name)
}

func (s *Store) noIndex(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: %q; there are %q", store.ErrNoIndex, name, sortedKeys(s.indexes.indexers()))
}

// ListIndexFuncValues implements cache.Indexer. It reports errors as List does. The
// values are sorted.
func (s *Store) ListIndexFuncValues(indexName string) []string {
	values, _ := s.TryListIndexFuncValues(indexName)
	return values
}

// TryListIndexFuncValues implements store.Store.
func (s *Store) TryListIndexFuncValues(indexName string) (values []string, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	_, isStored := s.indexes.stored[indexName]
	m := s.inMemory[indexName]
	if err = s.lost; err == nil && m != nil && !s.loading {
		values = sortedKeys(m.keys)
	}
	s.mu.Unlock()
	switch {
	case s.db.isClosed():
		return nil, store.ErrClosed
	case s.db.readOnly && s.Err() != nil:
		return nil, s.Err()
	case err != nil:
		return nil, s.noteUnread(err)
	case m != nil:
		return values, nil
	case !isStored:
		return nil, s.noIndex(indexName)
	}
	err = s.read("index "+indexName, nil, func(sn *snapshot) (err error) {
		if err := s.verifyIndex(sn, indexName); err != nil {
			return err
		}
		values, err = s.indexValues(sn, indexName)
		return err
	})
	if err != nil {
		return nil, s.noteUnread(err)
	}
	return values, nil
}

// GetIndexers implements cache.Indexer. The map is a copy.
func (s *Store) GetIndexers() cache.Indexers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.indexes.indexers()
}
