package informer

import (
	"context"
	"errors"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/heal"
)

// This file contains most of cache.SharedIndexInformer, after client-go's rules
// (k8s.io/client-go/tools/cache/shared_informer.go).

// Run implements cache.SharedInformer.
func (inf *Informer) Run(stopCh <-chan struct{}) {
	inf.RunWithContext(wait.ContextForChannel(stopCh))
}

// GetStore implements cache.SharedInformer.
func (inf *Informer) GetStore() cache.Store { return inf.indexer }

// GetIndexer implements cache.SharedIndexInformer. Before Run the indexer is empty and in
// memory. After the informer has stopped it can be read until the Backend is closed.
func (inf *Informer) GetIndexer() cache.Indexer { return inf.indexer }

// AddIndexers implements cache.SharedIndexInformer. Before and after the start, it
// indexes the stored objects at once. It returns an error and adds no indexer if a name
// is taken, a function is nil or fails, or the informer has stopped. It may block while
// Run waits for another informer to release the scope, and until a list has repaired what
// is damaged.
func (inf *Informer) AddIndexers(indexers cache.Indexers) error {
	if inf.state.Life().Phase() == heal.Ended {
		return errors.New("informer: indexer was not added because it has stopped already")
	}
	return inf.state.Whole(func() error { return inf.content.addIndexers(indexers) })
}

// HasSynced implements cache.SharedInformer. Options.SyncWhen defines it for a warm
// start. Once true it stays true.
func (inf *Informer) HasSynced() bool { return cache.IsDone(inf.HasSyncedChecker()) }

// HasSyncedChecker implements cache.SharedInformer.
func (inf *Informer) HasSyncedChecker() cache.DoneChecker { return (*checker)(inf) }

type checker Informer

// Name implements cache.DoneChecker.
func (c *checker) Name() string { return "informer for " + (*Informer)(c).Scope().String() }

// Done implements cache.DoneChecker.
func (c *checker) Done() <-chan struct{} { return c.hub.Synced() }

// LastSyncResourceVersion implements cache.SharedInformer. It is the received resource
// version, which may be ahead of the store.
func (inf *Informer) LastSyncResourceVersion() string {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.pipeline == nil {
		return ""
	}
	return inf.pipeline.Reflector().LastSyncResourceVersion()
}

// IsStopped implements cache.SharedInformer. It is true after Run's context has ended and
// the scope is released; calls of handlers may still be in progress.
func (inf *Informer) IsStopped() bool {
	select {
	case <-inf.released:
		return true
	default:
		return false
	}
}

// SetWatchErrorHandler implements cache.SharedInformer.
func (inf *Informer) SetWatchErrorHandler(handle cache.WatchErrorHandler) error {
	return inf.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handle(r, err) })
}

// SetWatchErrorHandlerWithContext implements cache.SharedInformer. Unlike client-go's,
// the handler also receives errors from inside a watch. The Reflector that it receives
// provides only its name, type and LastSyncResourceVersion: running it does nothing.
func (inf *Informer) SetWatchErrorHandlerWithContext(handle cache.WatchErrorHandlerWithContext) error {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.state.Life().Phase() != heal.Created {
		return errors.New("informer: watch error handler was not set: informer has already started")
	}
	inf.errorHandler = handle
	return nil
}

// SetTransform implements cache.SharedInformer. The function runs once for each received
// object. It must return an object of the example's type with a name. Anything else, an
// error or a panic keeps the object's last good state and is logged with its key. Only if
// the transform has changed the object's name or namespace does the next list delete that
// state, because it cannot be found. Go values that are none of an unstructured object,
// as an int or a []string, are replaced by what their JSON form is decoded to. See
// Options.TransformVersion.
func (inf *Informer) SetTransform(transform cache.TransformFunc) error {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.state.Life().Phase() != heal.Created {
		return errors.New("informer: transform was not set: informer has already started")
	}
	inf.transform = transform
	return nil
}

// GetController implements cache.SharedInformer.
func (inf *Informer) GetController() cache.Controller { return (*controller)(inf) }

// controller is what client-go's informers return as their controller: it cannot be run.
type controller Informer

// RunWithContext does nothing.
func (*controller) RunWithContext(context.Context) {}

// Run does nothing.
func (*controller) Run(<-chan struct{}) {}

// HasSynced returns the informer's HasSynced.
func (c *controller) HasSynced() bool { return (*Informer)(c).HasSynced() }

// HasSyncedChecker returns the informer's HasSyncedChecker.
func (c *controller) HasSyncedChecker() cache.DoneChecker { return (*checker)(c) }

// LastSyncResourceVersion returns the informer's LastSyncResourceVersion.
func (c *controller) LastSyncResourceVersion() string {
	return (*Informer)(c).LastSyncResourceVersion()
}

// blank returns an object of the example's type and of a kind, with only a key.
func blank(example runtime.Object, kind schema.GroupVersionKind, key string) runtime.Object {
	obj, ok := reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object)
	if !ok {
		return nil
	}
	if u, isUnstructured := obj.(*unstructured.Unstructured); isUnstructured {
		u.SetGroupVersionKind(kind)
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if accessor, accessErr := meta.Accessor(obj); err == nil && accessErr == nil {
		accessor.SetNamespace(namespace)
		accessor.SetName(name)
	}
	return obj
}
