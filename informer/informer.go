package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// SyncPolicy specifies when HasSynced becomes true after a warm start.
type SyncPolicy int

const (
	// CaughtUp syncs when the informer has caught up: the store contains everything that
	// the server had at the start. It is the default, because stale Leases and Nodes have
	// caused mass evictions.
	CaughtUp SyncPolicy = iota
	// Loaded syncs when the stored objects are loaded, however old they are. It is for
	// tools that prefer old data to none. A cold start always syncs after its first list.
	Loaded
)

// Options configure an Informer. The zero value keeps everything in memory.
type Options struct {
	// Backend stores the objects; nil means memory. The caller closes it after
	// RunWithContext has returned. A scope is held in memory if it cannot be stored,
	// because another informer holds it or the Backend was closed or cannot be used, or
	// if it may not be stored, as Secrets without an encryption key. A message is logged,
	// and Status.Memory contains the reason.
	Backend store.Backend
	// Scope describes what the ListerWatcher lists, and in which cluster
	// (ClusterIdentity). The caller guarantees that it is right: an informer resumes
	// state that was stored under an equal Scope, so without Cluster it would resume
	// another cluster's objects. Kind and Resource, if empty, are taken from the example;
	// Form always is. An empty Namespace or selector means all.
	Scope store.Scope
	// ResyncPeriod is the period of handlers that specify none; 0 means no resync.
	ResyncPeriod time.Duration
	// Indexers are rebuilt at every start.
	Indexers cache.Indexers
	// Indexes are further indexes, whose entries survive a restart.
	Indexes []index.Index
	// SyncWhen specifies when HasSynced becomes true after a warm start.
	SyncWhen SyncPolicy
	// NotifyUnchanged resyncs all handlers after every relist of a synced informer. It is
	// for handlers that rely on client-go's OnUpdate for each object of a list, changed
	// or not.
	NotifyUnchanged bool
	// AuditInterval is the time between audits, plus up to a fifth at random; 0 means
	// never. An audit compares the stored objects with the server's. It detects what no
	// probe does: a restored etcd whose resource version has grown past the stored one,
	// so that objects are missing, superfluous or different. The findings appear in
	// Status and the log, and the informer relists, so that its handlers receive the
	// differences. An audit costs one list of the collection, at 500 objects per second
	// or more. None runs while the store has no resource version, for example because an
	// object cannot be stored.
	AuditInterval time.Duration
	// TransformVersion identifies the behavior of SetTransform's function. An informer
	// with a transform but no version always starts cold, unless that is
	// StripManagedFields.
	TransformVersion string
	// NoProbe opens watches without the probe for the current resource version, as
	// client-go does. It is for unit tests on fakes that count requests or answer each
	// request once. The informer then lists instead of resuming from an earlier process,
	// and does not detect a rewound history.
	NoProbe bool
	// DecodedBytes is the budget for decoded objects, in estimated bytes of heap. A
	// positive one is this informer's alone. 0 means that all such informers of the
	// process share 64 MiB, -1 keeps every object decoded once it was read.
	DecodedBytes int64
	// Identifier names the informer in client-go's metrics; see cache.NewInformerName. If
	// it is zero, no metrics are published.
	Identifier cache.InformerNameAndResource
	// MetricsProvider creates the metrics. nil means that of
	// cache.SetInformerMetricsProvider.
	MetricsProvider cache.InformerMetricsProvider
}

// Informer is a cache.SharedIndexInformer. Create one with New.
type Informer struct {
	lw      cache.ListerWatcher
	example runtime.Object
	codec   codec.Codec
	opts    Options
	indexer *store.CacheIndexer
	queue   *fifo.Queue
	hub     *delivery.Hub // brings changes to handlers
	factory *Factory      // nil: opts.Scope is the scope
	// verifier is nil unless the factory has found the scope; set by findScope.
	verifier *cluster.Verifier
	metrics  *metrics
	tap      *tap.Tap // nil: objects of the server are decoded; set by install
	sieve    *tap.Sieve
	// caught contains the keys of the objects that have changed while the informer
	// catches up. Only processLoop uses it.
	caught sets.Set[string]
	// mutations panics when an object that a caller or handler received has been changed,
	// if the environment variable KUBE_CACHE_MUTATION_DETECTOR is set.
	mutations cache.MutationDetector

	// ctx is Run's context; other goroutines take the logger from it. logger is the one
	// that Run was given, for consumers: it does not name the resource. current is the
	// store for readers, which never wait for mu.
	ctx     context.Context
	logger  klog.Logger
	current atomic.Pointer[store.Store]

	// transforming is held while the transform runs, so that one goroutine at a time
	// calls it.
	transforming sync.Mutex

	// indexersMu is held while the store is opened and while indexers are added, so that
	// none is lost between the store in memory and the opened one. It is locked before
	// mu.
	indexersMu sync.Mutex

	looking chan struct{} // capacity 1: held by the goroutine that computes Status
	seen    atomic.Pointer[Status]

	ending   chan struct{} // closed when Run's context ends
	released chan struct{} // closed when the scope is released

	state *heal.State // how far the store has come, and what is missing

	// mu protects the fields below. The hub's lock may be held when it is taken, and not
	// the other way around: no method of the hub is called with mu held.
	mu    sync.Mutex
	scope store.Scope
	store store.Store
	// resumedAt is the resource version that the store was complete up to at the start.
	resumedAt string
	reflector *reflector.Reflector
	atStart   btree.Set[string] // keys stored when Run began, minus departed ones
	findings  findings

	// Guarded by mu before the start, and fixed by it.
	transform    cache.TransformFunc
	errorHandler cache.WatchErrorHandlerWithContext
}

var _ cache.SharedIndexInformer = (*Informer)(nil)

// New returns an informer that is not started. The error names the wrong argument or
// option.
func New(lw cache.ListerWatcher, example runtime.Object, opts Options) (*Informer, error) {
	switch {
	case isNil(lw):
		return nil, errors.New("informer: ListerWatcher is nil")
	case example == nil:
		return nil, errors.New("informer: example object is nil")
	case opts.Backend != nil && isNil(opts.Backend):
		return nil, errors.New("informer: Backend is a nil pointer")
	case opts.AuditInterval < 0:
		return nil, fmt.Errorf("informer: AuditInterval is %s, want 0 for never or more", opts.AuditInterval)
	case slices.ContainsFunc(opts.Indexes, func(idx index.Index) bool { return idx.Name == "" }):
		return nil, errors.New("informer: an index of Indexes has no name")
	case opts.SyncWhen != CaughtUp && opts.SyncWhen != Loaded:
		return nil, fmt.Errorf("informer: SyncWhen is %d, want CaughtUp or Loaded", opts.SyncWhen)
	}
	if isNil(example) {
		example = reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object)
	}
	if _, err := meta.Accessor(example); err != nil {
		return nil, fmt.Errorf("informer: example object of type %T has no metadata", example)
	}
	c, err := codec.For(example)
	if err != nil {
		return nil, fmt.Errorf("informer: example object: %w", err)
	}
	scope, err := cluster.Complete(opts.Scope, example)
	if err != nil {
		return nil, fmt.Errorf("informer: Scope: %w", err)
	}
	inf := &Informer{
		lw: lw, example: example, codec: c, opts: opts, scope: scope,
		queue:     fifo.New(fifo.Options{}),
		metrics:   newMetrics(opts.Identifier, opts.MetricsProvider),
		mutations: cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
		ending:    make(chan struct{}),
		released:  make(chan struct{}),
		looking:   make(chan struct{}, 1),
	}
	inf.sieve = inf.newSieve()
	inf.state = heal.New(func() func() { return inf.hub.Urge() })
	inf.hub = delivery.New(delivery.Env{
		Failed: inf.state.Failed, Blank: inf.placeholder, Handed: func(obj runtime.Object) { inf.mutations.AddObject(obj) },
		Dir: inf.spillDir, Name: func() string { return "informer for " + inf.Scope().String() },
		Scope:  func() (store.Scope, bool) { return inf.Scope(), inf.Persisted() },
		Logger: func() klog.Logger { return inf.logger },
	}, opts.ResyncPeriod)
	memory, err := inf.openMemory(withoutIndexes(opts.Indexers, opts.Indexes))
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	inf.setStore(memory)
	inf.indexer = inf.newIndexer()
	return inf, nil
}

// isNil reports whether v is nil or contains a nil pointer.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	p := reflect.ValueOf(v)
	return p.Kind() == reflect.Pointer && p.IsNil()
}

// RunWithContext implements cache.SharedInformer. It blocks until the context ends and
// all goroutines of the informer have ended. It flushes the store and releases the scope
// before it waits for handlers.
func (inf *Informer) RunWithContext(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !inf.claim() {
		klog.FromContext(ctx).Info("Informer was started before, a second Run does nothing")
		return
	}
	inf.hub.Begin()
	scope, err := inf.findScope(ctx)
	if errors.Is(err, cluster.ErrNoTransport) && inf.factory.opts.RequireTransport {
		inf.refuse(ctx, err)
		return
	}
	inf.logger = klog.FromContext(ctx)
	logger := klog.LoggerWithValues(inf.logger, "resource", inf.Scope().String())
	ctx = klog.NewContext(ctx, logger)
	inf.indexersMu.Lock() // AddIndexers waits until the store is opened
	inf.start(ctx, inf.openStore(ctx, scope, err))
	inf.indexersMu.Unlock()
	var parts sync.WaitGroup
	parts.Go(func() { inf.reflector.Run(ctx) })
	parts.Go(func() { inf.processLoop(ctx) })
	parts.Go(func() { inf.hub.RunResyncs(ctx) })
	parts.Go(func() { inf.state.NoticeLosses(ctx, inf.store) })
	parts.Go(func() { inf.auditLoop(ctx) })
	parts.Go(func() { inf.mutations.Run(ctx.Done()) })
	<-ctx.Done()
	close(inf.ending)
	inf.queue.Close()
	parts.Wait()
	if err := inf.store.Close(); err != nil {
		logger.Error(err, "Last changes could not be written")
	}
	inf.state.End()
	inf.hub.End()
	close(inf.released)
	if inf.factory != nil {
		inf.factory.forget(inf)
	}
	inf.hub.Wait()
}

// refuse blocks until the context ends and then ends the informer, which may not run in
// memory.
func (inf *Informer) refuse(ctx context.Context, why error) {
	klog.FromContext(ctx).Error(why, "Informer does not run, it could not be persisted", "type", fmt.Sprintf("%T", inf.example))
	inf.mu.Lock()
	inf.findings.memory = why.Error()
	inf.mu.Unlock()
	<-ctx.Done()
	close(inf.ending)
	inf.state.End()
	inf.hub.End()
	close(inf.released)
	inf.factory.forget(inf)
}

// claim reports whether this call of Run is the first.
func (inf *Informer) claim() bool {
	inf.mu.Lock() // the transform and the error handler are fixed from now on
	defer inf.mu.Unlock()
	return inf.state.Claim()
}

func (inf *Informer) setStore(s store.Store) {
	inf.store = s
	inf.current.Store(&s)
}

// start installs the opened store and starts the handlers.
func (inf *Informer) start(ctx context.Context, opened store.Store) {
	warm := inf.install(ctx, opened)
	inf.rememberRV()
	known, err := inf.hub.Open(opened, warm)
	inf.noteKeys(known, err)
	if err == nil && warm && inf.opts.SyncWhen == Loaded {
		inf.hub.MarkSynced()
	}
}

// noteKeys notes the keys of the objects that were stored at the start.
func (inf *Informer) noteKeys(known *btree.Set[string], err error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if err == nil && known != nil {
		inf.atStart = *known
	}
}

// readKeys reads the keys of the stored objects if start could not.
func (inf *Informer) readKeys() error {
	known, err := inf.hub.ReadKeys()
	if known != nil {
		inf.noteKeys(known, err)
	}
	return err
}

// install makes the opened store the informer's and reports whether it holds a whole
// list.
func (inf *Informer) install(ctx context.Context, opened store.Store) (warm bool) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	_ = inf.store.Close() // the one in memory
	inf.ctx = ctx
	inf.setStore(opened)
	opts := reflector.Options{
		ListerWatcher: inf.lister(), Undecodable: inf.sieve.Start, Example: inf.example, Kind: inf.expectedKind(),
		Sink: (*sink)(inf), OnError: inf.onError, NoProbe: inf.opts.NoProbe,
	}
	if inf.factory != nil && inf.findings.memory == "" {
		opts.Verify = inf.verify
	}
	if inf.tap = inf.newTap(opened); inf.tap != nil {
		opts.Request = inf.tap.With
	}
	opts.IsSmall, opts.Compare, opts.Len = inf.isSmall, inf.compareWhole, inf.store.Len
	r, err := reflector.New(opts)
	if err != nil {
		panic(err) // New has validated these options
	}
	inf.reflector = r
	cp := inf.store.Checkpoint()
	inf.resumedAt = cp.RV
	if warm = cp.RV != "" || inf.store.Len() > 0; warm {
		klog.FromContext(ctx).Info("Loaded", "objects", inf.store.Len(), "resourceVersion", cp.RV, "age", time.Since(cp.Time).Round(time.Second))
	}
	inf.state.Open(ctx, cp.RV, warm, r.Relist)
	return warm
}

// expectedKind returns the kind that the reflector checks; only unstructured objects
// contain theirs.
func (inf *Informer) expectedKind() schema.GroupVersionKind {
	if inf.scope.Form == store.Unstructured && inf.scope.Kind.Kind != "" {
		return inf.scope.Kind
	}
	return schema.GroupVersionKind{}
}

// Scope returns the scope of the informer. The scope of a Factory's informer is known
// once the informer runs.
func (inf *Informer) Scope() store.Scope {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.scope
}

func (inf *Informer) onError(ctx context.Context, err error) {
	inf.mu.Lock()
	handle := inf.errorHandler
	inf.mu.Unlock()
	if handle == nil {
		handle = cache.DefaultWatchErrorHandler
	}
	handle(ctx, inf.compatReflector(), err)
}
