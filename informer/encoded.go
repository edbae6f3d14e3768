package informer

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/informer/internal/tap"
)

// TakeEncoded wraps cfg's transport, so that informers store objects as the server
// encodes them, and decode them when a handler, a reader or an index function needs them.
// It concerns informers without a transform but [StripManagedFields], whose store is in a
// file, and whose ListerWatcher uses clients that are made from cfg afterwards and speak
// protobuf, or have unstructured objects; others are as before.
//
// If the ListerWatcher changes objects or omits some,
// that is noticed, and everything is listed again and decoded.
//
// It also keeps an object that its Go type does not take from ending the watches of such
// an informer, in JSON as in protobuf, with any transform and store. Without it, each
// change of such an object is followed by a list.
//
// NewFactory calls TakeEncoded. A second call for the same cfg changes nothing.
func TakeEncoded(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return encodedTransport{next} })
}

type encodedTransport struct{ next http.RoundTripper }

// isTaken is the key of a request's context that has passed an encodedTransport: two
// would mark the same answer.
type isTaken struct{}

// RoundTrip implements http.RoundTripper.
func (t encodedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(isTaken{}) != nil {
		return t.next.RoundTrip(r)
	}
	resp, err := t.next.RoundTrip(r.WithContext(context.WithValue(r.Context(), isTaken{}, true)))
	if err == nil {
		tap.StandInsFrom(r.Context()).Open(resp)
		tap.From(r.Context()).Open(r, resp)
	}
	return resp, err
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t encodedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
