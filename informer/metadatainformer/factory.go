package metadatainformer

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/internal/generic"
)

// Options are those of all informers of a Factory.
type Options struct {
	// DefaultResync is the resync period of handlers that name none; 0 is no resync.
	DefaultResync time.Duration
	// Namespace is the only one that is listed; "" is all.
	Namespace string
	// TweakListOptions changes the options of each list and watch, as for a
	// selector; nil changes nothing. It is called from several goroutines and has to
	// set the same selectors each time: they say under what objects are stored.
	TweakListOptions func(*metav1.ListOptions)
}

// Factory is client-go's metadatainformer.SharedInformerFactory with persistent
// informers. Beside that interface it has the methods of client-go's typed factory
// that take a context, StartWithContext and WaitForCacheSyncWithContext. The latter
// returns what WaitForCacheSync does.
type Factory struct {
	*generic.Factory
}

var _ metadatainformer.SharedInformerFactory = (*Factory)(nil)

// NewFactory returns a factory without informers, whose ForResource makes them. It
// asks the server nothing. Neither persistent nor client may be nil; the caller
// closes persistent's backend after Shutdown.
func NewFactory(persistent *informer.Factory, client metadata.Interface, opts Options) *Factory {
	return &Factory{generic.New(persistent, generic.Options(opts), generic.Form[*metav1.PartialObjectMetadataList]{
		Client:  client,
		Example: &metav1.PartialObjectMetadata{},
		Resource: func(gvr schema.GroupVersionResource, namespace string) generic.Resource[*metav1.PartialObjectMetadataList] {
			return client.Resource(gvr).Namespace(namespace)
		},
		Lister: func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister {
			return metadatalister.NewRuntimeObjectShim(metadatalister.New(indexer, gvr))
		},
	})}
}
