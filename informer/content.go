package informer

import (
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/store"
)

// content is the store that readers use now: the one in memory before Run, the opened one
// afterwards. Its methods may be called by any goroutine.
type content struct {
	state   *heal.State
	current atomic.Pointer[store.Store] // readers never wait for a lock
	// turn calls a function while the informer applies nothing.
	turn func(func() error) error
	// transform returns a function that makes of an object what is stored of it, nil if
	// the informer has no transform.
	transform func() func(runtime.Object) (runtime.Object, error)

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

// write stores what the program writes through the indexer. The next process lists if the
// server has not sent the objects since. A write that fails changes nothing.
func (c *content) write(s store.Store, b store.Batch) error {
	if !c.state.Life().IsOpened() {
		return s.Apply(b)
	}
	s = c.present()
	for i := range b.Changes {
		if obj := b.Changes[i].Object; obj != nil {
			// Others may read the program's object, and encoding writes into quantities.
			b.Changes[i].Object = copyOf(obj)
		}
	}
	if err := s.Prepare(&b); err != nil {
		return err
	}
	transformed := c.transformed(b.Changes)
	return c.turn(func() error {
		changes := b.Changes
		b.Changes = nil
		for i, change := range changes {
			held := isHeld(s, change)
			if obj := transformed[i]; !held && obj != nil && isStored(s, obj) {
				continue // an update has returned what the watch has brought
			}
			if b.Changes = append(b.Changes, change); held {
				continue // the server has sent it already
			}
			key, rv := change.Key, ""
			if m, err := meta.Accessor(change.Object); change.Object != nil && err == nil {
				key, rv = cache.MetaObjectToName(m).String(), m.GetResourceVersion()
			}
			if reason := c.state.Written(key, rv); reason != "" {
				b.RV, b.Reason = "", reason
			}
		}
		if b.RV != "" && c.state.Holds(b.RV) {
			b.RV, b.Reason = "", ""
		}
		if b.Reason != "" && s.Checkpoint().Reason == store.ForeignContent {
			b.Reason = store.ForeignContent // the next process drops what there is
		}
		if len(b.Changes) == 0 && b.RV == "" && b.Reason == "" {
			return nil
		}
		return s.Apply(b)
	})
}

// copyOf returns a copy of an object, or the object itself if it has values that have no
// copy: an unstructured one with Go types that JSON has not.
func copyOf(obj runtime.Object) (out runtime.Object) {
	defer func() {
		if recover() != nil {
			out = obj
		}
	}()
	return obj.DeepCopyObject()
}

// transformed returns what the transform makes of the objects of changes; nil where there
// is none or it fails.
func (c *content) transformed(changes []store.Change) []runtime.Object {
	out := make([]runtime.Object, len(changes))
	transform := c.transform()
	if transform == nil {
		return out
	}
	for i, change := range changes {
		if change.Object == nil {
			continue
		}
		if obj, err := transform(copyOf(change.Object)); err == nil {
			out[i] = obj
		}
	}
	return out
}

// isHeld reports whether a store is as after a change.
func isHeld(s store.Store, change store.Change) bool {
	if change.IsDeletion() {
		_, is, err := s.Entry(change.Key)
		return err == nil && !is
	}
	return isStored(s, change.Object)
}

// isStored reports whether a store has an object as it is.
func isStored(s store.Store, obj runtime.Object) bool {
	_, same, err := s.Compare(obj)
	return err == nil && same
}

// indexer returns the cache.Indexer of the store. handed is called with every object that
// it returns.
func (c *content) indexer(handed func(any), addIndexers func(cache.Indexers) error) *store.CacheIndexer {
	return store.IndexerOf(store.IndexerEnv{
		Store: c.present, Write: c.write, Whole: c.whole, Noted: c.noticed,
		Handed: handed, AddIndexers: addIndexers,
	})
}
