package informer

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/store"
)

// TakeEncoded wraps cfg's transport, so that informers store objects as the server
// encodes them, and decode them when a handler, a reader or an index function needs them.
// It concerns informers without a transform but [StripManagedFields], whose store is in a
// file and whose ListerWatcher uses clients that are made from cfg afterwards and speak
// protobuf; others are as before. If the ListerWatcher changes objects or omits some,
// that is noticed, and everything is listed again and decoded.
//
// It also keeps an object that its Go type does not take from ending the watches of such
// an informer, in JSON as in protobuf, with any transform and store. Without it, each
// change of such an object is followed by a list.
//
// NewFactory calls TakeEncoded.
func TakeEncoded(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return encodedTransport{next} })
}

type encodedTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t encodedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		tap.SieveFrom(r.Context()).Open(resp)
		tap.From(r.Context()).Open(resp)
	}
	return resp, err
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t encodedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// newTap returns the tap of an informer whose store can take encoded objects, else nil.
func (inf *Informer) newTap(opened store.Store) *tap.Tap {
	c, ok := inf.codec.(codec.FromServer)
	_, takes := opened.(store.EncodedTaker)
	strip := stripsManagedFields(inf.transform)
	if !ok || !takes || inf.transform != nil && !strip || inf.scope.Form != store.Typed {
		return nil
	}
	return tap.New(c, inf.scope.Kind, strip)
}

// sifting is the ListerWatcher of an informer. Objects that the Go type does not take
// come as stand-ins; see tap.Sieve.
type sifting struct {
	cache.ListerWatcher
	sieve *tap.Sieve
}

// newSieve returns the Sieve of an informer, nil if its objects have no Go type.
func (inf *Informer) newSieve() *tap.Sieve {
	if inf.scope.Form == store.Unstructured {
		return nil
	}
	return tap.NewSieve(inf.example)
}

func (inf *Informer) lister() sifting { return sifting{inf.lw, inf.sieve} }

// ListWithContext implements cache.ListerWithContext.
func (s sifting) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return s.sieve.List(ctx, func(ctx context.Context) (runtime.Object, error) {
		return cache.ToListerWithContext(s.ListerWatcher).ListWithContext(ctx, opts)
	})
}

// WatchWithContext implements cache.WatcherWithContext.
func (s sifting) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return cache.ToWatcherWithContext(s.ListerWatcher).WatchWithContext(s.sieve.With(ctx), opts)
}

// IsWatchListSemanticsUnSupported is how client-go's fakes say so.
func (s sifting) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(s.ListerWatcher)
}
