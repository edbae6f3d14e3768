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
	// Client is checked for support of streamed lists, which fakes do not have.
	Client any
	// Example is an object as the client returns it, without a kind.
	Example runtime.Object
	// Resource returns the client of one resource in one namespace; "" means all.
	Resource func(gvr schema.GroupVersionResource, namespace string) Resource[L]
	// Lister returns a lister of an informer's objects.
	Lister func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister
}

func (f Form[L]) listerWatcher(gvr schema.GroupVersionResource, opts Options) cache.ListerWatcher {
	resource := f.Resource(gvr, opts.Namespace)
	tweak := opts.TweakListOptions
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
	}, f.Client)
}

// sharedInformer implements informers.GenericInformer.
type sharedInformer struct {
	informer cache.SharedIndexInformer
	lister   func() cache.GenericLister
}

// Informer implements informers.GenericInformer.
func (s *sharedInformer) Informer() cache.SharedIndexInformer { return s.informer }

// Lister implements informers.GenericInformer.
func (s *sharedInformer) Lister() cache.GenericLister { return s.lister() }
