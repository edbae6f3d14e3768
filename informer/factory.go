package informer

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// FactoryOptions configure all informers of a Factory; see Options.
type FactoryOptions struct {
	SyncWhen         SyncPolicy // as Options.SyncWhen
	TransformVersion string     // as Options.TransformVersion, for all transforms
	// DecodedBytes is as Options.DecodedBytes, but the informers of the Factory share a
	// positive one.
	DecodedBytes int64

	AuditInterval time.Duration // as Options.AuditInterval

	// RequireTransport prevents an informer from running if its ListerWatcher does not
	// send its requests through the configuration that NewFactory received. This is a
	// mistake of the program, because nothing can be persisted then. Run logs it and
	// blocks until its context ends, and HasSynced stays false. Without RequireTransport
	// the informer runs in memory, and an error is logged.
	RequireTransport bool
}

// Factory creates informers and finds their scopes itself. controller-runtime calls
// NewInformer with equal arguments for each namespace and selector; these are hidden in
// the closures of the ListerWatcher. So the factory wraps the transport of the
// configuration from which the ListerWatcher's client is created. It sends one request
// through the ListerWatcher, and the transport answers this request before it reaches the
// network. The path and the selectors of the request are the scope, and its headers
// contain the credentials with which the cluster is asked for its identity.
type Factory struct {
	backend store.Backend
	cfg     *rest.Config // from before the transport was wrapped
	opts    FactoryOptions

	// mu protects the fields below, and those of each scopeTransport.
	mu      sync.Mutex
	asked   map[string]question  // by nonce
	holders map[string]*Informer // by scope ID: the informer that opened it last

	informers map[*Informer]struct{} // the informers that have not ended
}

// NewFactory wraps cfg's transport in place. The factory recognizes only clients that are
// created from cfg afterwards, so call NewFactory before you create the manager or
// clientset. Credentials may be added to cfg in between: the cluster is identified with
// those of the clients. The caller closes backend after the informers have ended.
func NewFactory(backend store.Backend, cfg *rest.Config, opts FactoryOptions) (*Factory, error) {
	switch {
	case isNil(backend):
		return nil, errors.New("informer: backend is nil")
	case cfg == nil:
		return nil, errors.New("informer: rest.Config is nil")
	case opts.AuditInterval < 0:
		return nil, fmt.Errorf("informer: AuditInterval is %s, want 0 for never or more", opts.AuditInterval)
	}
	f := &Factory{
		backend: backend, cfg: rest.CopyConfig(cfg), opts: opts,
		asked: map[string]question{}, holders: map[string]*Informer{}, informers: map[*Informer]struct{}{},
	}
	TakeEncoded(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &scopeTransport{f: f, next: next} })
	return f, nil
}

// NewInformer has the signature of cache.NewSharedIndexInformer and of
// controller-runtime's cache.Options.NewInformer. If it cannot create an Informer, for
// example for a nil example, it returns client-go's informer, which reports the problem
// in its own way.
func (f *Factory) NewInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	inf, err := New(lw, example, Options{
		Backend: f.backend, ResyncPeriod: resync, Indexers: indexers,
		SyncWhen: f.opts.SyncWhen, TransformVersion: f.opts.TransformVersion, DecodedBytes: f.opts.DecodedBytes,
		AuditInterval: f.opts.AuditInterval,
	})
	if err != nil {
		klog.Background().Error(err, "Not persisted, client-go's informer is used", "type", fmt.Sprintf("%T", example))
		return cache.NewSharedIndexInformer(lw, example, resync, indexers)
	}
	inf.factory = f
	f.mu.Lock()
	f.informers[inf] = struct{}{}
	f.mu.Unlock()
	return inf
}

// Backend returns the backend that was passed to NewFactory.
func (f *Factory) Backend() store.Backend { return f.backend }

// errAnswered is the transport's answer to the list that asks for the scope.
var errAnswered = errors.New("informer: asked for its scope, not sent")

// errNoTransport indicates a ListerWatcher whose requests do not pass through the
// factory's transport.
var errNoTransport = errors.New("its ListerWatcher's client was not made from the rest.Config that NewFactory was given, after that")

// scopeTransport is the transport of one client that was made from the configuration.
type scopeTransport struct {
	f      *Factory
	next   http.RoundTripper
	asking singleflight.Group // shares requests for the identity

	// f.mu protects the fields below.
	cluster  string // the identity, "" until it is known
	verified bool   // cluster is from the server, not from the backend
	stored   string // what askIdentity has stored last
	losses   uint64 // of the ledger before that
	refusals refusals
}

// question is called with a request that a ListerWatcher has sent, where it reaches the
// transport. The request is not sent. A transport above may send it several times.
type question func(t *scopeTransport, r *http.Request) error

// RoundTrip implements http.RoundTripper.
func (t *scopeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	nonce := r.URL.Query().Get("continue")
	if !strings.HasPrefix(nonce, noncePrefix) {
		return t.next.RoundTrip(r)
	}
	t.f.mu.Lock()
	q := t.f.asked[nonce]
	t.f.mu.Unlock()
	if q == nil {
		return t.next.RoundTrip(r)
	}
	if err := q(t, r); apierrors.IsUnauthorized(err) {
		// What gives requests their credentials renews them after this answer.
		return &http.Response{
			StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{}, Body: http.NoBody, Request: r,
		}, nil
	}
	return nil, errAnswered
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t *scopeTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// noncePrefix starts a continue token that no API server has issued. A server that
// receives it in a list answers 400 and returns no data.
const noncePrefix = "informctl-scope-"

// ask sends a request through a ListerWatcher, and calls at where it reaches the
// transport. The error is that of at, or errNoTransport if the request was answered
// elsewhere, or that of a request which may not have come so far.
func ask[T any](ctx context.Context, f *Factory, lw cache.ListerWatcher, at func(*scopeTransport, *http.Request) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	first := make(chan answer, 1)
	nonce := noncePrefix + rand.Text()
	f.mu.Lock()
	f.asked[nonce] = func(t *scopeTransport, r *http.Request) error {
		value, err := at(t, r)
		select {
		case first <- answer{value, err}:
		default:
		}
		return err
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.asked, nonce)
	}()
	var none T
	var unsent error
	for _, send := range waysToAsk(lw) {
		// The result is always an error; only what has reached the transport matters.
		err := send(ctx, nonce)
		select {
		case a := <-first:
			return a.value, a.err
		default:
		}
		if unsent = nil; err != nil && !isAnswer(err) {
			unsent = err
		}
	}
	return none, cmp.Or(unsent, errNoTransport)
}

// waysToAsk returns the requests that ask sends. If client-go would begin with a watch,
// the first one is a watch: only lists wait for the client's limit of requests.
func waysToAsk(lw cache.ListerWatcher) (ways []func(ctx context.Context, nonce string) error) {
	if features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(lw) {
		ways = append(ways, func(ctx context.Context, nonce string) error {
			ctx, cancel := context.WithTimeout(ctx, askPatience)
			defer cancel()
			// No server accepts this resource version.
			opts := metav1.ListOptions{Continue: nonce, ResourceVersion: nonce, TimeoutSeconds: ptr.To[int64](1)}
			stop := func(w watch.Interface) {
				if w != nil {
					w.Stop()
				}
			}
			w, err := endable.Call(ctx, func() (watch.Interface, error) {
				return cache.ToWatcherWithContext(lw).WatchWithContext(ctx, opts)
			}, stop)
			stop(w)
			return err
		})
	}
	return append(ways, func(ctx context.Context, nonce string) error {
		_, err := endable.Call(ctx, func() (runtime.Object, error) {
			return cache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1, Continue: nonce})
		}, nil)
		return err
	})
}

// listedBy is the list of a ListerWatcher, and the transport that it has reached.
type listedBy struct {
	client *scopeTransport
	url    *url.URL
}

// scope finds the scope of an informer, and the transport of its client. It blocks while
// the server is down and the backend does not remember the cluster. report is called with
// the errors meanwhile.
func (f *Factory) scope(ctx context.Context, lw cache.ListerWatcher, example runtime.Object, report func(error)) (store.Scope, *scopeTransport, error) {
	backoff := serverBackoff()
	for {
		by, err := ask(ctx, f, lw, func(t *scopeTransport, r *http.Request) (listedBy, error) { return listedBy{t, r.URL}, nil })
		switch {
		case err == nil:
			s, gv, err := f.parse(by.url)
			if err != nil {
				return store.Scope{}, nil, err
			}
			s.Kind = listedKind(example, gv)
			s.Cluster, err = by.client.identity(ctx, lw, report)
			return s, by.client, err
		case errors.Is(err, errNoTransport):
			return store.Scope{}, nil, err
		}
		if err := awaitServer(ctx, &backoff, err, report); err != nil {
			return store.Scope{}, nil, err
		}
	}
}

// listedKind returns the kind of the listed objects, as far as it is known without a
// request. Examples of the dynamic and the metadata client's informers may have no kind.
// Then only group and version are set, which together with resource and form identify the
// stored objects. The name of their Go type would be wrong: no object has that kind.
func listedKind(example runtime.Object, gv schema.GroupVersion) schema.GroupVersionKind {
	switch example.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if gvk := example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
			return gvk
		}
		return gv.WithKind("")
	}
	if gvk := kindOf(example); !gvk.Empty() {
		return gvk
	}
	return gv.WithKind(reflect.TypeOf(example).Elem().Name())
}

// parse reads resource, namespace and selectors from the URL of a list: /api/v1/pods or
// /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE, below the path of the host.
func (f *Factory) parse(u *url.URL) (store.Scope, schema.GroupVersion, error) {
	unknown := fmt.Errorf("the path %s of its list is not known", u.Path)
	parts := strings.Split(strings.Trim(strings.TrimPrefix(u.Path, f.basePath()), "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return store.Scope{}, gv, unknown
	}
	var s store.Scope
	if len(parts) == 3 && parts[0] == "namespaces" {
		s.Namespace, parts = parts[1], parts[2:]
	}
	if len(parts) != 1 {
		return store.Scope{}, gv, unknown
	}
	s.Resource = schema.GroupResource{Group: gv.Group, Resource: parts[0]}.String()
	s.LabelSelector, s.FieldSelector = u.Query().Get("labelSelector"), u.Query().Get("fieldSelector")
	return s, gv, nil
}

// basePath returns the path of the host, without a slash at its end.
func (f *Factory) basePath() string {
	host, _, err := rest.DefaultServerUrlFor(f.cfg)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(host.Path, "/")
}

// An informer waits handOver for the scope of an informer that is ending, and
// noticeTheEnd for an informer that may not have seen the end of its context yet.
const (
	handOver     = 10 * time.Second
	noticeTheEnd = time.Second
)

// open opens the scope of an informer. controller-runtime's RemoveInformer does not wait
// for the informer that it stops, so the next informer of the scope may start while the
// previous one ends.
func (f *Factory) open(ctx context.Context, inf *Informer, scope store.Scope, opts store.Options) (store.Store, error) {
	id := scope.ID()
	s, err := f.backend.Open(scope, opts)
	if errors.Is(err, store.ErrInUse) {
		f.mu.Lock()
		holder := f.holders[id]
		f.mu.Unlock()
		if holder != nil && within(ctx, noticeTheEnd, holder.ending) && within(ctx, handOver, holder.released) {
			s, err = f.backend.Open(scope, opts)
		}
	}
	if err == nil {
		f.mu.Lock()
		f.holders[id] = inf
		f.mu.Unlock()
	}
	return s, err
}

// forget removes the references to an informer that has ended.
func (f *Factory) forget(inf *Informer) {
	id := inf.Scope().ID()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.informers, inf)
	if f.holders[id] == inf {
		delete(f.holders, id)
	}
}

// within waits for a channel to be closed. It reports whether that happened in time.
func within(ctx context.Context, d time.Duration, closed <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-closed:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
