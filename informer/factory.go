package informer

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/cluster"
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

	// Configure, if it is not nil, is called for each informer before it is created, with
	// an object of its type. It may change the options, for example to give one type
	// stored Indexes or a longer History. Changes of Backend and Scope are ignored. After
	// options that New refuses, as two Indexes of one name, the type has client-go's
	// informer, and an error is logged.
	Configure func(example runtime.Object, opts *Options)

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
// configuration from which the ListerWatcher's client is created, and sends a request
// through the ListerWatcher that shows them. With the credentials of this request, it
// asks the cluster for its identity.
type Factory struct {
	backend store.Backend
	cfg     *rest.Config // the program's, with the transport wrapped
	finder  *cluster.Finder
	opts    FactoryOptions

	// mu protects the fields below.
	mu        sync.Mutex
	informers map[*Informer]int // those that have not ended, with the number of each
	made      int               // the number of the next one
	// shared is the client of the informers of For; nil before the first one.
	shared struct {
		cfg  *rest.Config
		http *http.Client
	}
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
	case opts.SyncWhen != CaughtUp && opts.SyncWhen != Loaded:
		return nil, fmt.Errorf("informer: SyncWhen is %d, want CaughtUp or Loaded", opts.SyncWhen)
	}
	f := &Factory{
		backend: backend, cfg: cfg, finder: cluster.NewFinder(backend, rest.CopyConfig(cfg)), opts: opts,
		informers: map[*Informer]int{},
	}
	TakeEncoded(cfg)
	cfg.Wrap(f.finder.Wrap)
	return f, nil
}

// NewInformer has the signature of cache.NewSharedIndexInformer and of
// controller-runtime's cache.Options.NewInformer. If it cannot create an Informer, for
// example for a nil example, it returns client-go's informer, which reports the problem
// in its own way.
func (f *Factory) NewInformer(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	opts := Options{
		ResyncPeriod: resync, Indexers: cache.Indexers{},
		SyncWhen: f.opts.SyncWhen, TransformVersion: f.opts.TransformVersion, DecodedBytes: f.opts.DecodedBytes,
		AuditInterval: f.opts.AuditInterval,
	}
	maps.Copy(opts.Indexers, indexers)
	if f.opts.Configure != nil {
		f.opts.Configure(example, &opts)
	}
	opts.versionOfAll = &f.opts.TransformVersion
	opts.Backend, opts.Scope, opts.Identify = f.backend, store.Scope{}, nil
	inf, err := New(lw, example, opts)
	if err != nil {
		klog.Background().Error(err, "Not persisted, client-go's informer is used", "type", fmt.Sprintf("%T", example))
		return cache.NewSharedIndexInformer(lw, example, resync, indexers)
	}
	inf.factory = f
	f.mu.Lock()
	f.informers[inf] = f.made
	f.made++
	f.mu.Unlock()
	return inf
}

// Backend returns the backend that was passed to NewFactory.
func (f *Factory) Backend() store.Backend { return f.backend }

// forget removes the reference to an informer that has ended.
func (f *Factory) forget(inf *Informer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.informers, inf)
}
