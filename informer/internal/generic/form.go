package generic

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Resource lists and watches one resource; L is the type of its lists.
type Resource[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Form contains the differences of the clients.
type Form[L runtime.Object] struct {
	// Client is that of ListerWatcher.
	Client any
	// Example is an object as the client returns it, without a kind.
	Example runtime.Object
	// Resource returns the client of one resource in one namespace; "" means all.
	Resource func(gvr schema.GroupVersionResource, namespace string) Resource[L]
	// Lister returns a lister of an informer's objects.
	Lister func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister
}

// ListerWatcher lists and watches a resource. client is checked for support of streamed
// lists, which fakes do not have. tweak changes the options of each request; nil changes
// nothing.
func ListerWatcher[L runtime.Object](client any, resource Resource[L], tweak func(*metav1.ListOptions)) cache.ListerWatcher {
	if tweak == nil {
		tweak = func(*metav1.ListOptions) {}
	}
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			tweak(&o)
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			tweak(&o)
			return resource.Watch(ctx, o)
		},
	}, client)
}

// Informer is an informer with its lister. It implements informers.GenericInformer.
type Informer struct {
	informer cache.SharedIndexInformer
	lister   func() cache.GenericLister
}

// NewInformer returns an informer with its lister, which lister makes.
func NewInformer(informer cache.SharedIndexInformer, lister func() cache.GenericLister) *Informer {
	return &Informer{informer, lister}
}

// Informer implements informers.GenericInformer.
func (i *Informer) Informer() cache.SharedIndexInformer { return i.informer }

// Lister implements informers.GenericInformer.
func (i *Informer) Lister() cache.GenericLister { return i.lister() }
