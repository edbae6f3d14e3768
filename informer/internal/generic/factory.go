package generic

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// Options apply to all informers of a Factory.
type Options struct {
	DefaultResync    time.Duration
	Namespace        string
	TweakListOptions func(*metav1.ListOptions)
}

// Factory has one informer for each requested resource. Create one with New. It follows
// the rules of client-go (k8s.io/client-go/dynamic/dynamicinformer).
type Factory struct {
	newInformer func(schema.GroupVersionResource) informers.GenericInformer

	running sync.WaitGroup // informers that Start has started

	// mu protects the fields below.
	mu        sync.Mutex
	informers map[schema.GroupVersionResource]informers.GenericInformer
	started   map[schema.GroupVersionResource]bool
	ended     bool // Shutdown was called
}

// New returns a factory without informers. It sends no request to the server.
func New[L runtime.Object](persistent *informer.Factory, opts Options, form Form[L]) *Factory {
	return &Factory{
		informers: map[schema.GroupVersionResource]informers.GenericInformer{},
		started:   map[schema.GroupVersionResource]bool{},
		newInformer: func(gvr schema.GroupVersionResource) informers.GenericInformer {
			lw := ListerWatcher(form.Client, form.Resource(gvr, opts.Namespace), opts.TweakListOptions)
			inf := persistent.NewInformer(lw, form.Example, opts.DefaultResync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			return NewInformer(inf, func() cache.GenericLister { return form.Lister(inf.GetIndexer(), gvr) })
		},
	}
}

// ForResource returns the resource's informer, the same one for each call. It does not
// start the informer; a later call of Start does.
func (f *Factory) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, made := f.informers[gvr]; !made {
		f.informers[gvr] = f.newInformer(gvr)
	}
	return f.informers[gvr]
}

// Start is like StartWithContext with a context that ends when stopCh is closed.
func (f *Factory) Start(stopCh <-chan struct{}) { f.StartWithContext(wait.ContextForChannel(stopCh)) }

// StartWithContext starts the informers that were not started before, each in a goroutine
// that runs until ctx ends. It does not block. After Shutdown it does nothing.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	for gvr, inf := range f.informers {
		if !f.started[gvr] {
			f.started[gvr] = true
			f.running.Go(func() { inf.Informer().RunWithContext(ctx) })
		}
	}
}

// WaitForCacheSync is like WaitForCacheSyncWithContext with a context that ends when
// stopCh is closed.
func (f *Factory) WaitForCacheSync(stopCh <-chan struct{}) map[schema.GroupVersionResource]bool {
	return f.WaitForCacheSyncWithContext(wait.ContextForChannel(stopCh))
}

// WaitForCacheSyncWithContext blocks until all started informers have synced, or until
// ctx ends. It returns for each of them whether it has synced. The caller owns the map.
func (f *Factory) WaitForCacheSyncWithContext(ctx context.Context) map[schema.GroupVersionResource]bool {
	waiting := map[schema.GroupVersionResource]cache.DoneChecker{}
	f.mu.Lock()
	for gvr := range f.started {
		waiting[gvr] = f.informers[gvr].Informer().HasSyncedChecker()
	}
	f.mu.Unlock()
	synced := map[schema.GroupVersionResource]bool{}
	for gvr, informer := range waiting {
		select {
		case <-informer.Done():
		case <-ctx.Done():
		}
		synced[gvr] = cache.IsDone(informer)
	}
	return synced
}

// Shutdown makes later calls of Start do nothing and blocks until all started informers
// have ended. They end when their contexts end. Shutdown may be called more than once,
// also concurrently.
func (f *Factory) Shutdown() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.running.Wait()
}
