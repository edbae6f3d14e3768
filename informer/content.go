package informer

import (
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/store"
)

// content is the store that readers use now: the one in memory before Run, the opened one
// afterwards. Its methods may be called by any goroutine.
type content struct {
	state   *heal.State
	current atomic.Pointer[store.Store] // readers never wait for a lock

	// opening is held while the store is opened and while indexers are added, so that
	// none is lost between the store in memory and the opened one. It is before all other
	// locks.
	opening sync.Mutex
}

// present returns the store.
func (c *content) present() store.Store { return *c.current.Load() }

// set replaces the store.
func (c *content) set(s store.Store) { c.current.Store(&s) }

// noticed returns the error of a read, and requests a list if that repairs the cause.
func (c *content) noticed(err error) error { return c.state.Noticed(err) }

// whole reads the store. It blocks while a list repairs what the read needs.
func (c *content) whole(read func(store.Store) error) error {
	return c.state.Whole(func() error { return read(c.present()) })
}

// addIndexers indexes the stored objects. It blocks while the store is opened.
func (c *content) addIndexers(indexers cache.Indexers) error {
	c.opening.Lock()
	defer c.opening.Unlock()
	return c.present().AddIndexes(indexers)
}

// indexer returns the cache.Indexer of the store. handed is called with every object that
// it returns.
func (c *content) indexer(handed func(any), addIndexers func(cache.Indexers) error) *store.CacheIndexer {
	return store.IndexerOf(store.IndexerEnv{
		Store: c.present, Whole: c.whole, Noted: c.noticed,
		Handed: handed, AddIndexers: addIndexers,
	})
}
