package ingest

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/store"
)

// wire takes objects as the API server has encoded them.
type wire struct {
	tap    *tap.Tap // nil: objects of the server are decoded
	codec  codec.Codec
	store  store.Store
	relist func(reason string) // of the reflector
}

// newTap returns the tap of a store that can take encoded objects, else nil.
func newTap(o Options) *tap.Tap {
	_, takes := o.Store.(store.EncodedTaker)
	if !takes || o.Transform != nil && !o.Strip || o.Scope.Form == store.Metadata {
		return nil
	}
	return tap.New(o.Codec, o.Scope.Kind, schema.ParseGroupResource(o.Scope.Resource).Resource, o.Strip)
}

// take returns the object of a list or a watch, encoded if it came so. If the
// ListerWatcher is found to change objects, a list is due.
func (w *wire) take(ctx context.Context, obj runtime.Object, deleted bool) (runtime.Object, error) {
	taken, err := w.tap.Take(obj, deleted)
	return taken, w.asSent(ctx, err)
}

// asSent requests a list if an error of the tap says that the ListerWatcher changes or
// omits objects.
func (w *wire) asSent(ctx context.Context, err error) error {
	if err != nil {
		klog.FromContext(ctx).Error(err, "Objects are not taken as the server encodes them")
		w.relist("the ListerWatcher changes objects")
	}
	return err
}

// reached says that all objects up to a resource version, of a list or a bookmark, were
// taken.
func (w *wire) reached(ctx context.Context, rv string) error { return w.asSent(ctx, w.tap.Reached(rv)) }

// decode returns an object that may be encoded.
func (w *wire) decode(obj runtime.Object) (runtime.Object, error) {
	o, ok := obj.(*store.EncodedObject)
	if !ok {
		return obj, nil
	}
	return o.Cell.Decode(func() (runtime.Object, error) { return codec.DecodeAliased(w.codec, o.Data, false) })
}

// entry returns the entry of an object of the watch.
func (w *wire) entry(key string, obj runtime.Object) store.Entry {
	o, ok := obj.(*store.EncodedObject)
	if !ok {
		return store.Entry{Key: key, Object: obj}
	}
	e, err := w.store.(store.EncodedTaker).EncodedEntry(o)
	if err != nil {
		panic(err) // the queue has found the key
	}
	return e
}

// ListerWatcher is the ListerWatcher of an informer. Objects that the Go type does not
// take come as stand-ins; see tap.StandIns.
type ListerWatcher struct {
	cache.ListerWatcher
	standIns *tap.StandIns
}

// newStandIns returns the StandIns of an informer, nil if its objects have no Go type.
func newStandIns(scope store.Scope, example runtime.Object) *tap.StandIns {
	if scope.Form == store.Unstructured {
		return nil
	}
	return tap.NewStandIns(example)
}

// ListWithContext implements cache.ListerWithContext.
func (s ListerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return s.standIns.List(ctx, func(ctx context.Context) (runtime.Object, error) {
		return cache.ToListerWithContext(s.ListerWatcher).ListWithContext(ctx, opts)
	})
}

// WatchWithContext implements cache.WatcherWithContext.
func (s ListerWatcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return cache.ToWatcherWithContext(s.ListerWatcher).WatchWithContext(s.standIns.With(ctx), opts)
}

// IsWatchListSemanticsUnSupported is how client-go's fakes say so.
func (s ListerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(s.ListerWatcher)
}
