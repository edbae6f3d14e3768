package informer

import (
	"errors"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// indexer is the informer's store under a name that does not change: the store in memory
// before Run, the opened store afterwards.
type indexer struct{ inf *Informer }

var _ cache.Indexer = (*indexer)(nil)

func (x *indexer) store() store.Store { return *x.inf.current.Load() }

// watched adds objects that callers receive to the mutation detector.
func (x *indexer) watched(objs []interface{}) []interface{} {
	for _, obj := range objs {
		x.inf.mutations.AddObject(obj)
	}
	return objs
}

// Add implements cache.Store.
func (x *indexer) Add(obj interface{}) error { return x.store().Add(obj) }

// Update implements cache.Store.
func (x *indexer) Update(obj interface{}) error { return x.store().Update(obj) }

// Delete implements cache.Store.
func (x *indexer) Delete(obj interface{}) error { return x.store().Delete(obj) }

// whole reads for methods that return no error. If stored objects are damaged or were
// wiped and the informer runs, it waits until a new list has repaired them, instead of
// returning fewer objects.
func whole[T any](x *indexer, read func(store.Store) (T, error)) T {
	for {
		lists := x.inf.lists.Load()
		out, err := read(x.store())
		if err == nil || !isMended(err) || !x.inf.waitForList(err, lists) {
			return out
		}
	}
}

// List implements cache.Store. It may wait for a list.
func (x *indexer) List() []interface{} { return x.watched(whole(x, store.Store.TryList)) }

// isMended reports whether a new list repairs the cause of a read error.
func isMended(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrWiped)
}

// noticed returns the error of a read, and requests a list if that repairs the cause.
func (inf *Informer) noticed(err error) error {
	if isMended(err) {
		inf.mu.Lock()
		defer inf.mu.Unlock()
		if inf.opened && !inf.ended {
			inf.loseLocked(inf.ctx, err)
		}
	}
	return err
}

// ListKeys implements cache.Store. It may wait for a list.
func (x *indexer) ListKeys() []string { return whole(x, store.Store.TryListKeys) }

// LastStoreSyncResourceVersion implements cache.Store.
func (x *indexer) LastStoreSyncResourceVersion() string {
	return x.store().LastStoreSyncResourceVersion()
}

// Bookmark implements cache.Store.
func (x *indexer) Bookmark(rv string) { x.store().Bookmark(rv) }

// Get implements cache.Store.
func (x *indexer) Get(obj interface{}) (item interface{}, exists bool, err error) {
	item, exists, err = x.store().Get(obj)
	x.inf.mutations.AddObject(item)
	return item, exists, x.inf.noticed(err)
}

// GetByKey implements cache.Store.
func (x *indexer) GetByKey(key string) (item interface{}, exists bool, err error) {
	item, exists, err = x.store().GetByKey(key)
	x.inf.mutations.AddObject(item)
	return item, exists, x.inf.noticed(err)
}

// Replace implements cache.Store.
func (x *indexer) Replace(list []interface{}, rv string) error { return x.store().Replace(list, rv) }

// Resync implements cache.Store.
func (x *indexer) Resync() error { return x.store().Resync() }

// Index implements cache.Indexer.
func (x *indexer) Index(indexName string, obj interface{}) ([]interface{}, error) {
	objs, err := x.store().Index(indexName, obj)
	return x.watched(objs), x.inf.noticed(err)
}

// IndexKeys implements cache.Indexer.
func (x *indexer) IndexKeys(indexName, indexedValue string) ([]string, error) {
	keys, err := x.store().IndexKeys(indexName, indexedValue)
	return keys, x.inf.noticed(err)
}

// ListIndexFuncValues implements cache.Indexer. It may wait for a list.
func (x *indexer) ListIndexFuncValues(indexName string) []string {
	return whole(x, func(s store.Store) ([]string, error) { return s.TryListIndexFuncValues(indexName) })
}

// ByIndex implements cache.Indexer.
func (x *indexer) ByIndex(indexName, indexedValue string) ([]interface{}, error) {
	objs, err := x.store().ByIndex(indexName, indexedValue)
	return x.watched(objs), x.inf.noticed(err)
}

// GetIndexers implements cache.Indexer.
func (x *indexer) GetIndexers() cache.Indexers { return x.store().GetIndexers() }

// AddIndexers implements cache.Indexer.
func (x *indexer) AddIndexers(newIndexers cache.Indexers) error {
	return x.inf.AddIndexers(newIndexers)
}
