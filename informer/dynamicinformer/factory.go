package dynamicinformer

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/internal/generic"
)

// Options apply to all informers of a Factory.
type Options struct {
	// DefaultResync is the resync period of handlers without their own; 0 means no
	// resync.
	DefaultResync time.Duration
	// Namespace is the only namespace that is listed; "" means all.
	Namespace string
	// TweakListOptions changes the options of each list and watch, for example to set a
	// selector; nil changes nothing. It is called concurrently and must set the same
	// selectors each time, because the objects are stored under them.
	TweakListOptions func(*metav1.ListOptions)
}

// Factory is client-go's DynamicSharedInformerFactory with persistent informers. It also
// has StartWithContext and WaitForCacheSyncWithContext, the methods of client-go's typed
// factory that take a context. WaitForCacheSyncWithContext returns the result of
// WaitForCacheSync.
type Factory struct {
	*generic.Factory
}

var _ dynamicinformer.DynamicSharedInformerFactory = (*Factory)(nil)

// NewFactory returns a factory without informers; ForResource creates them. NewFactory
// sends no request to the server. persistent and client must not be nil. The caller
// closes the backend of persistent after Shutdown.
func NewFactory(persistent *informer.Factory, client dynamic.Interface, opts Options) *Factory {
	return &Factory{generic.New(persistent, generic.Options(opts), generic.Form[*unstructured.UnstructuredList]{
		Client:  client,
		Example: &unstructured.Unstructured{},
		Resource: func(gvr schema.GroupVersionResource, namespace string) generic.Resource[*unstructured.UnstructuredList] {
			return client.Resource(gvr).Namespace(namespace)
		},
		Lister: func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister {
			return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(indexer, gvr))
		},
	})}
}
