package store

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
)

// CacheIndexer is a Store in the form of a cache.Indexer. It is safe for concurrent use.
//
// The contract of cache.Indexer applies with these differences: List and ListKeys are in
// key order; if an index function fails or panics, the write returns an error and changes
// nothing; GetIndexers returns a copy; each read may decode a new copy of an object.
// Writes do not move the Checkpoint, except Replace and Bookmark, whose resource version
// applies to the whole scope.
type CacheIndexer struct {
	env IndexerEnv

	// writing serializes the writes, because Replace reads before it writes.
	writing sync.Mutex

	// mu protects the fields below.
	mu      sync.Mutex
	wrote   string     // the resource version of the last write or checkpoint
	then    Checkpoint // the checkpoint after that write
	readErr error      // the result of Err
}

// IndexerEnv connects a CacheIndexer to a store that is exchanged and repaired while the
// CacheIndexer is used: an informer's. All fields must be set.
type IndexerEnv struct {
	// Store returns the store to use. It is called once for each call.
	Store func() Store
	// Write applies the changes of one call to the store that Store has returned for it.
	Write func(Store, Batch) error
	// Whole calls read for a method that cannot return an error. It may wait until the
	// cause of an error is repaired, and call read again.
	Whole func(read func(Store) error) error
	// Noted receives the error of each other read, or nil, and returns what the caller
	// gets.
	Noted func(error) error
	// Handed receives each object that a caller gets.
	Handed func(obj any)
	// AddIndexers adds index functions.
	AddIndexers func(cache.Indexers) error
}

// Indexer returns a cache.Indexer for a store. A caller that calls Replace must write
// through one CacheIndexer only: Replace reads what is stored before it writes.
func Indexer(s Store) *CacheIndexer {
	return IndexerOf(IndexerEnv{
		Store:       func() Store { return s },
		Write:       Store.Apply,
		Whole:       func(read func(Store) error) error { return read(s) },
		Noted:       func(err error) error { return err },
		Handed:      func(any) {},
		AddIndexers: s.AddIndexes,
	})
}

// IndexerOf returns a cache.Indexer for the store of env.
func IndexerOf(env IndexerEnv) *CacheIndexer { return &CacheIndexer{env: env} }

var _ cache.Indexer = (*CacheIndexer)(nil)

// Err returns the error of the last List, ListKeys or ListIndexFuncValues, of any
// goroutine: these methods cannot return it. It is nil if the last one succeeded.
func (x *CacheIndexer) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.readErr
}

// whole runs a read of a method that cannot return an error, and returns the result: nil
// after an error, and never nil otherwise, as client-go's indexer.
func whole[T any](x *CacheIndexer, read func(Store) ([]T, error)) (out []T) {
	err := x.env.Whole(func(s Store) (err error) {
		out, err = read(s)
		return err
	})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.readErr = err
	return notNil(out, err)
}

func notNil[T any](out []T, err error) []T {
	switch {
	case err != nil:
		return nil
	case out == nil:
		return []T{}
	}
	return out
}

// handed converts objects to the form of cache.Indexer.
func (x *CacheIndexer) handed(objects []runtime.Object) []any {
	if objects == nil {
		return nil
	}
	out := make([]any, len(objects))
	for i, obj := range objects {
		out[i] = obj
		x.env.Handed(obj)
	}
	return out
}

// List implements cache.Store. It answers as of one moment. If it cannot return every
// object, it returns nil, and Err returns the reason.
func (x *CacheIndexer) List() []any {
	return x.handed(whole(x, func(s Store) ([]runtime.Object, error) { return s.Objects(Query{}) }))
}

// ListKeys implements cache.Store. It reports errors as List does.
func (x *CacheIndexer) ListKeys() []string {
	return whole(x, func(s Store) ([]string, error) { return s.Keys(Query{}) })
}

// ListIndexFuncValues implements cache.Indexer. The values are sorted. It reports errors
// as List does.
func (x *CacheIndexer) ListIndexFuncValues(indexName string) []string {
	return whole(x, func(s Store) ([]string, error) { return s.Values(indexName) })
}

// Get implements cache.Store.
func (x *CacheIndexer) Get(obj any) (item any, exists bool, err error) {
	key, err := KeyOf(cache.DeletionHandlingMetaNamespaceKeyFunc, obj)
	if err != nil {
		return nil, false, err
	}
	return x.GetByKey(key)
}

// GetByKey implements cache.Store.
func (x *CacheIndexer) GetByKey(key string) (item any, exists bool, err error) {
	obj, ok, err := x.env.Store().Object(key)
	if err != nil || !ok {
		return nil, false, x.env.Noted(err)
	}
	x.env.Handed(obj)
	return obj, true, nil
}

// Index implements cache.Indexer.
func (x *CacheIndexer) Index(indexName string, obj any) ([]any, error) {
	s := x.env.Store()
	indexers := s.Indexers()
	fn := indexers[indexName]
	if fn == nil {
		if _, err := s.Values(indexName); err != nil {
			return nil, x.env.Noted(err)
		}
		return nil, NoIndex(indexName, indexers)
	}
	values, err := index.Values(fn, obj)
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", indexName, err)
	}
	return x.byIndex(s, indexName, values)
}

// ByIndex implements cache.Indexer.
func (x *CacheIndexer) ByIndex(indexName, indexedValue string) ([]any, error) {
	return x.byIndex(x.env.Store(), indexName, []string{indexedValue})
}

func (x *CacheIndexer) byIndex(s Store, name string, values []string) ([]any, error) {
	objects, err := ByIndex(s, name, values, Query{})
	return x.handed(notNil(objects, err)), x.env.Noted(err)
}

// IndexKeys implements cache.Indexer. The keys are sorted.
func (x *CacheIndexer) IndexKeys(indexName, indexedValue string) ([]string, error) {
	s := x.env.Store()
	if indexName == "" {
		return x.unnamedKeys(s, indexedValue)
	}
	keys, err := s.Keys(Query{Index: indexName, Values: []string{indexedValue}})
	return notNil(keys, err), x.env.Noted(err)
}

// unnamedKeys is IndexKeys for the index whose name is "".
func (x *CacheIndexer) unnamedKeys(s Store, value string) ([]string, error) {
	objects, err := ByIndex(s, "", []string{value}, Query{})
	if err != nil {
		return nil, x.env.Noted(err)
	}
	keys := make([]string, len(objects))
	for i, obj := range objects {
		if keys[i], err = KeyOf(cache.MetaNamespaceKeyFunc, obj); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// GetIndexers implements cache.Indexer. The map is a copy.
func (x *CacheIndexer) GetIndexers() cache.Indexers { return x.env.Store().Indexers() }

// AddIndexers implements cache.Indexer. It adds all index functions or, on an error,
// none.
func (x *CacheIndexer) AddIndexers(newIndexers cache.Indexers) error {
	return x.env.AddIndexers(newIndexers)
}

// Add implements cache.Store.
func (x *CacheIndexer) Add(obj any) error {
	o, err := asObject(obj)
	if err != nil {
		return err
	}
	return x.apply(Change{Object: o}, obj)
}

// Update implements cache.Store.
func (x *CacheIndexer) Update(obj any) error { return x.Add(obj) }

// Delete implements cache.Store. It also accepts tombstones and cache.ExplicitKey.
func (x *CacheIndexer) Delete(obj any) error {
	key, err := KeyOf(cache.DeletionHandlingMetaNamespaceKeyFunc, obj)
	if err != nil {
		return err
	}
	return x.apply(Change{Key: key}, obj)
}

func (x *CacheIndexer) apply(c Change, of any) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	s := x.env.Store()
	if err := x.env.Write(s, Batch{Changes: []Change{c}}); err != nil {
		return err
	}
	if m, err := meta.Accessor(of); err == nil {
		x.sawWrite(s, m.GetResourceVersion())
	}
	return nil
}

func asObject(obj any) (runtime.Object, error) {
	o, ok := obj.(runtime.Object)
	if !ok {
		return nil, &ObjectError{Err: fmt.Errorf("a %T is not a runtime.Object", obj)}
	}
	return o, nil
}

// Replace implements cache.Store. It writes only what differs by key. Without a resource
// version, the scope is listed again after it is opened the next time.
func (x *CacheIndexer) Replace(list []any, rv string) error {
	x.writing.Lock()
	defer x.writing.Unlock()
	s := x.env.Store()
	byKey := map[string]Change{}
	for _, obj := range list {
		o, err := asObject(obj)
		if err != nil {
			return err
		}
		key, err := KeyOf(cache.MetaNamespaceKeyFunc, o)
		if err != nil {
			return err
		}
		byKey[key] = Change{Key: key, Object: o}
	}
	stored, err := s.Keys(Query{})
	if err != nil {
		return err // else the objects that are not in the list would stay
	}
	for _, key := range stored {
		if _, listed := byKey[key]; !listed {
			byKey[key] = Change{Key: key}
		}
	}
	b := Batch{RV: rv, Reason: "replaced without a resource version"}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		b.Changes = append(b.Changes, byKey[key])
	}
	if err := x.env.Write(s, b); err != nil {
		return err
	}
	x.sawWrite(s, rv)
	return nil
}

// Resync implements cache.Store. It does nothing.
func (x *CacheIndexer) Resync() error { return nil }

// Bookmark implements cache.Store.
func (x *CacheIndexer) Bookmark(rv string) {
	x.writing.Lock()
	defer x.writing.Unlock()
	s := x.env.Store()
	// The method cannot return an error, and a lost or closed scope has no checkpoint.
	if rv == "" || x.env.Write(s, Batch{RV: rv}) == nil {
		x.sawWrite(s, rv)
	}
}

// Applied notes that a batch was applied beside the CacheIndexer, after which the content
// is the server's at rv. The checkpoint may not have moved: see Batch.RV.
func (x *CacheIndexer) Applied(rv string) { x.sawWrite(x.env.Store(), rv) }

// sawWrite follows client-go's rule for LastStoreSyncResourceVersion: it is the resource
// version of the last written object, even if that is not the newest.
func (x *CacheIndexer) sawWrite(s Store, rv string) {
	then := s.Checkpoint()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wrote, x.then = rv, then
}

// LastStoreSyncResourceVersion implements cache.Store. It is the resource version of the
// last object, list or bookmark that was written: through the CacheIndexer, by a batch
// that has moved the checkpoint since, or as Applied was told.
func (x *CacheIndexer) LastStoreSyncResourceVersion() string {
	now := x.env.Store().Checkpoint()
	x.mu.Lock()
	defer x.mu.Unlock()
	if now.RV != "" && now != x.then {
		x.wrote, x.then = now.RV, now
	}
	return x.wrote
}

// ByIndex returns the objects that have one of values in an index and match q, which
// names no index. Order and errors are those of Reader.Objects; the error for an unknown
// index is ErrNoIndex. A Query cannot ask for the index whose name is "", which client-go
// allows: its function selects the objects then.
func ByIndex(s Reader, name string, values []string, q Query) ([]runtime.Object, error) {
	if name != "" {
		q.Index, q.Values = name, values
		return s.Objects(q)
	}
	indexers := s.Indexers()
	fn := indexers[name]
	if fn == nil {
		return nil, NoIndex(name, indexers)
	}
	objects, err := s.Objects(q)
	if err != nil {
		return nil, err
	}
	var found []runtime.Object
	for _, obj := range objects {
		has, err := index.Values(fn, obj)
		if err == nil && slices.ContainsFunc(has, func(v string) bool { return slices.Contains(values, v) }) {
			found = append(found, obj)
		}
	}
	return found, nil
}

// NoIndex returns an error that wraps ErrNoIndex and says which indexes there are.
func NoIndex(name string, indexers cache.Indexers) error {
	return fmt.Errorf("%w: %q; there are %q", ErrNoIndex, name, slices.Sorted(maps.Keys(indexers)))
}
