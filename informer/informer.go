package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer/internal/cluster"
	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/informer/internal/ingest"
	"github.com/informctl/informctl/internal/audit"
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
	// and Status.Memory contains the reason. For an informer of this process that holds
	// the scope and ends, up to 10 s are waited.
	Backend store.Backend
	// Scope describes what the ListerWatcher lists, and in which cluster
	// (ClusterIdentity). The caller guarantees that it is right: an informer resumes
	// state that was stored under an equal Scope, so without Cluster it would resume
	// another cluster's objects. Kind and Resource, if empty, are taken from the example;
	// Form always is. An empty Namespace or selector means all.
	Scope store.Scope
	// Identify asks the server for the identity of its cluster, for example with
	// ClusterIdentity. An informer with a Backend calls it before each probe and each
	// list, from one goroutine. While another cluster than that of Scope answers, as
	// after its address has moved, that one is listed, and nothing of it is stored as
	// complete. An informer that is held in memory is then of that cluster; Status still
	// has Scope. nil means that the cluster is the one of Scope for as long as the
	// process runs. A Factory sets it aside, because it asks by itself.
	Identify func(context.Context) (cluster string, err error)
	// ResyncPeriod is the period of handlers that specify none; 0 means no resync.
	ResyncPeriod time.Duration
	// Indexers are rebuilt at every start.
	Indexers cache.Indexers
	// Indexes are further indexes, whose entries survive a restart.
	Indexes []index.Index
	// History bounds the log of changes that the Backend keeps, with the states before,
	// for Reader().Follow, informctl and consumers of package durable. The zero value
	// means the default of the Backend.
	History store.History
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
	versionOfAll     *string // the TransformVersion of the Factory; nil without one
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
	// An Informer is the face of what does the work: package ingest brings lists and
	// watches into the store, delivery brings changes to handlers, heal knows how far the
	// informer has come, and run has them work together.
	handlers
	lw      cache.ListerWatcher
	example runtime.Object
	codec   codec.Codec
	opts    Options
	factory *Factory    // nil: opts.Scope is the scope
	state   *heal.State // how far the store has come, and what is missing
	opener  *opener
	content *content // the store that readers use
	indexer *store.CacheIndexer
	audits  audit.Loop
	metrics *ingest.Metrics
	looks   looks
	// mutations panics when an object that a caller or handler received has been changed,
	// if the environment variable KUBE_CACHE_MUTATION_DETECTOR is set.
	mutations cache.MutationDetector

	// logger is the one that Run was given, for consumers: it does not name the resource.
	logger klog.Logger

	ending   chan struct{} // closed when Run's context ends
	released chan struct{} // closed when the scope is released

	// mu protects the fields below. The hub's lock may be held when it is taken, and not
	// the other way around: no method of the hub is called with mu held. The lock of
	// state may be taken while it is held.
	mu       sync.Mutex
	scope    store.Scope
	found    bool             // scope is no guess of a Factory's informer
	pipeline *ingest.Pipeline // nil until the store is opened

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
	case opts.Identify != nil && opts.Scope.Cluster == "":
		return nil, errors.New("informer: Identify is set and Scope names no cluster to compare with")
	case opts.SyncWhen != CaughtUp && opts.SyncWhen != Loaded:
		return nil, fmt.Errorf("informer: SyncWhen is %d, want CaughtUp or Loaded", opts.SyncWhen)
	}
	example = emptyLike(example)
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
		metrics:   ingest.NewMetrics(opts.Identifier, opts.MetricsProvider),
		mutations: cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
		ending:    make(chan struct{}),
		released:  make(chan struct{}),
		looks:     looks{looking: make(chan struct{}, 1)},
	}
	inf.state = heal.New(func() func() { return inf.hub.Urge() })
	inf.opener = &opener{
		example: example, codec: c, opts: opts, onError: inf.onError, lease: inf.lease, unindexed: inf.state.Unindexed,
	}
	inf.handlers = handlers{resync: opts.ResyncPeriod, hub: delivery.New(delivery.Env{
		Failed: inf.state.Failed, Handed: func(obj runtime.Object) { inf.mutations.AddObject(obj) },
		Blank: func(key string) runtime.Object { return blank(example, inf.Scope().Kind, key) },
		Dir:   inf.opener.dir, Name: func() string { return "informer for " + inf.Scope().String() },
		Scope:  func() (store.Scope, bool) { return inf.Scope(), inf.Persisted() },
		Logger: func() klog.Logger { return inf.logger },
	}, opts.ResyncPeriod)}
	memory, err := inf.opener.inMemory(scope, withoutIndexes(opts.Indexers, opts.Indexes))
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	inf.content = &content{
		state: inf.state,
		turn:  func(f func() error) error { return inf.hub.Do(func(delivery.Turn) error { return f() }) },
		transform: func() func(runtime.Object) (runtime.Object, error) {
			inf.mu.Lock()
			defer inf.mu.Unlock()
			if inf.pipeline == nil || inf.transform == nil {
				return nil
			}
			return inf.pipeline.Transform
		},
	}
	inf.content.set(memory)
	inf.indexer = inf.content.indexer(inf.mutations.AddObject, inf.AddIndexers)
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

// emptyLike returns an object of the type, apiVersion and kind of another one, which
// stays the caller's.
func emptyLike(example runtime.Object) runtime.Object {
	if u, ok := example.(runtime.Unstructured); ok && !isNil(example) {
		return u.NewEmptyInstance()
	}
	t := reflect.TypeOf(example)
	if t.Kind() != reflect.Pointer {
		return example // it has no metadata
	}
	obj := reflect.New(t.Elem()).Interface().(runtime.Object) //nolint:forcetypeassert // it is of the same type
	if !isNil(example) {
		obj.GetObjectKind().SetGroupVersionKind(example.GetObjectKind().GroupVersionKind())
	}
	return obj
}

// RunWithContext implements cache.SharedInformer. It blocks until the context ends and
// all goroutines of the informer have ended, but for a question for the identity of the
// server, which ends after 5 s. It flushes the store and releases the scope before it
// waits for handlers. Like client-go's, it ends, too, after a panic of its own goroutine
// that does not end the process, for example of the Backend.
func (inf *Informer) RunWithContext(ctx context.Context) {
	if !inf.claim() {
		klog.FromContext(ctx).Info("Informer was started before, a second Run does nothing")
		return
	}
	run{inf}.run(ctx)
}

// claim reports whether this call of Run is the first.
func (inf *Informer) claim() bool {
	inf.mu.Lock() // the transform and the error handler are fixed from now on
	defer inf.mu.Unlock()
	return inf.state.Claim()
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
	handle(ctx, compatReflector(inf), err)
}
