package informer

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// FactoryOptions configure all informers of a Factory; see Options.
type FactoryOptions struct {
	SyncWhen         SyncPolicy // as Options.SyncWhen
	TransformVersion string     // as Options.TransformVersion, for all transforms
	DecodedBytes     int64      // as Options.DecodedBytes, for each informer

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
// configuration from which the ListerWatcher's client is created. It sends one list
// through the ListerWatcher, and the transport answers this list before it reaches the
// network. The path and the selectors of the request are the scope.
type Factory struct {
	backend store.Backend
	cfg     *rest.Config // from before the transport was wrapped
	opts    FactoryOptions

	// mu protects the fields below.
	mu       sync.Mutex
	cluster  string               // the identity, "" until it is known
	verified bool                 // cluster is from the server, not from the backend
	stored   string               // what askIdentity has stored last
	asked    map[string]*url.URL  // by nonce: the URL that the transport received
	asking   singleflight.Group   // shares requests for the identity
	holders  map[string]*Informer // by scope ID: the informer that opened it last

	informers map[*Informer]struct{} // the informers that have not ended
}

// NewFactory wraps cfg's transport in place. The factory recognizes only clients that are
// created from cfg afterwards, so call NewFactory before you create the manager or
// clientset. The caller closes backend after the informers have ended.
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
		asked: map[string]*url.URL{}, holders: map[string]*Informer{}, informers: map[*Informer]struct{}{},
	}
	TakeEncoded(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &scopeTransport{f, next} })
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

type scopeTransport struct {
	f    *Factory
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *scopeTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if nonce := r.URL.Query().Get("continue"); strings.HasPrefix(nonce, noncePrefix) {
		t.f.mu.Lock()
		_, waiting := t.f.asked[nonce]
		if waiting {
			t.f.asked[nonce] = r.URL
		}
		t.f.mu.Unlock()
		if waiting {
			return nil, errAnswered
		}
	}
	return t.next.RoundTrip(r)
}

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t *scopeTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// noncePrefix starts a continue token that no API server has issued. A server that
// receives it answers 400 and returns no data.
const noncePrefix = "informctl-scope-"

// ask returns the URL of the list that a ListerWatcher sends.
func (f *Factory) ask(ctx context.Context, lw cache.ListerWatcher) (*url.URL, error) {
	nonce := noncePrefix + rand.Text()
	f.mu.Lock()
	f.asked[nonce] = nil
	f.mu.Unlock()
	// The result is always an error; only the URL that the transport received matters.
	_, err := endable.Call(ctx, func() (runtime.Object, error) {
		return cache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1, Continue: nonce})
	}, nil)
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.asked[nonce]
	delete(f.asked, nonce)
	switch {
	case u != nil:
	case err == nil || isAnswer(err):
		return nil, errNoTransport
	default:
		return nil, err // it may not have come so far
	}
	return u, nil
}

// scope finds the scope of an informer. It blocks while the server is down and the
// backend does not remember the cluster.
func (f *Factory) scope(ctx context.Context, lw cache.ListerWatcher, example runtime.Object) (store.Scope, error) {
	backoff := serverBackoff()
	u, err := f.ask(ctx, lw)
	for err != nil && !errors.Is(err, errNoTransport) {
		if err := awaitServer(ctx, &backoff, err); err != nil {
			return store.Scope{}, err
		}
		u, err = f.ask(ctx, lw)
	}
	if err != nil {
		return store.Scope{}, err
	}
	s, gv, err := f.parse(u)
	if err != nil {
		return store.Scope{}, err
	}
	s.Kind = listedKind(example, gv)
	if s.Cluster, err = f.identity(ctx); err != nil {
		return store.Scope{}, err
	}
	return s, nil
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
	path := u.Path
	if host, _, err := rest.DefaultServerUrlFor(f.cfg); err == nil {
		path = strings.TrimPrefix(path, strings.TrimSuffix(host.Path, "/"))
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
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
