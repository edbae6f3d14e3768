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

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// FactoryOptions are those of all informers of a Factory; see Options.
type FactoryOptions struct {
	SyncWhen         SyncPolicy // as Options.SyncWhen
	TransformVersion string     // as Options.TransformVersion, of all informers' transforms
	DecodedBytes     int64      // as Options.DecodedBytes, for each informer

	AuditInterval time.Duration // as Options.AuditInterval

	// RequireTransport keeps an informer from running whose ListerWatcher does not send
	// its requests through the configuration that NewFactory was given: a mistake of the
	// program, since nothing can be persisted then. Its Run logs that and blocks until its
	// context ends, and HasSynced stays false. Without it the informer runs in memory, and
	// that is logged as an error.
	RequireTransport bool
}

// Factory makes informers whose scope need not be said: it asks their
// ListerWatcher. controller-runtime calls NewInformer with equal arguments for
// each namespace and selector; they are inside the ListerWatcher's closures. So
// the factory wraps the transport of the configuration that the ListerWatcher's
// client is made from, and sends one list through the ListerWatcher that is
// answered there, before the network, from the request's path and selectors.
type Factory struct {
	backend store.Backend
	cfg     *rest.Config // as it was before it was wrapped
	opts    FactoryOptions

	// mu protects the fields below.
	mu       sync.Mutex
	cluster  string               // its identity, "" until it is known
	verified bool                 // by the server; else it is what the backend remembers
	asked    map[string]*url.URL  // by nonce: what the transport saw
	asking   singleflight.Group   // for the identity
	holders  map[string]*Informer // by scope id: who opened it last

	informers map[*Informer]struct{} // that have not ended
	packer    *codec.Zstd            // nil: KeepChanges was not called
}

// NewFactory wraps cfg's transport in place: clients that are made from cfg later
// are recognised, so call it before the manager or clientset is made. The caller
// closes backend after the informers have ended.
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
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &scopeTransport{f, next} })
	return f, nil
}

// NewInformer has the shape of cache.NewSharedIndexInformer and of
// controller-runtime's cache.Options.NewInformer. Where ours cannot be made, as
// for a nil example, it returns client-go's, which reports that in its own way.
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
	packer := f.packer
	f.mu.Unlock()
	if packer != nil {
		inf.keepLog(packer)
	}
	return inf
}

// KeepChanges makes all informers of the factory, those that are made later too,
// remember their last changes; see the function KeepChanges.
func (f *Factory) KeepChanges() {
	f.mu.Lock()
	if f.packer == nil {
		f.packer = newPacker()
	}
	packer := f.packer
	f.mu.Unlock()
	for _, inf := range f.Informers() {
		inf.keepLog(packer)
	}
}

// Backend returns the backend that the factory was made with.
func (f *Factory) Backend() store.Backend { return f.backend }

// errAnswered is what the transport answers a question about the scope with.
var errAnswered = errors.New("informer: asked for its scope, not sent")

// errNoTransport indicates a ListerWatcher whose requests do not pass the
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

// WrappedRoundTripper lets client-go reach the transport below.
func (t *scopeTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// noncePrefix makes a continuation that no API server has issued: one that gets
// it answers 400, not data.
const noncePrefix = "informctl-scope-"

// ask returns the URL of the list that a ListerWatcher sends.
func (f *Factory) ask(ctx context.Context, lw cache.ListerWatcher) (*url.URL, error) {
	nonce := noncePrefix + rand.Text()
	f.mu.Lock()
	f.asked[nonce] = nil
	f.mu.Unlock()
	// What comes back is an error in any case; what counts is what the transport saw.
	_, _ = cache.ToListerWithContext(lw).ListWithContext(ctx, metav1.ListOptions{Limit: 1, Continue: nonce})
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.asked[nonce]
	delete(f.asked, nonce)
	if u == nil {
		return nil, errNoTransport
	}
	return u, nil
}

// scope finds out what an informer lists, and of which cluster. It blocks while
// the server is down and the backend does not remember which cluster it is.
func (f *Factory) scope(ctx context.Context, lw cache.ListerWatcher, example runtime.Object) (store.Scope, error) {
	u, err := f.ask(ctx, lw)
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

// listedKind is the kind of what is listed, as far as it is known without a
// request. Examples of the dynamic and the metadata client's informers may have
// none: then only group and version are named, which with resource and form say
// what is stored. The name of the Go type would be that of no object.
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

// parse reads resource, namespace and selectors from a list's URL:
// /api/v1/pods, /apis/GROUP/VERSION/namespaces/NAMESPACE/RESOURCE, each below
// the host's own path.
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

// An informer waits for the scope of one that is ending, and a moment for one
// that may not have noticed yet that it is to end.
const (
	handOver     = 10 * time.Second
	noticeTheEnd = time.Second
)

// open opens an informer's scope. controller-runtime's RemoveInformer does not
// wait for the informer that it stops, so the next one of that scope may come
// while it ends.
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

// forget drops what keeps an informer that has ended reachable.
func (f *Factory) forget(inf *Informer) {
	id := inf.Scope().ID()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.informers, inf)
	if f.holders[id] == inf {
		delete(f.holders, id)
	}
}

// within waits for a channel to be closed and reports whether it was in time.
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
