package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// SyncPolicy says when HasSynced becomes true after a warm start.
type SyncPolicy int

const (
	// CaughtUp syncs when everything that the server had at the start is in the
	// store. Stale Leases and Nodes have caused mass evictions, so it is the default.
	CaughtUp SyncPolicy = iota
	// Loaded syncs when the stored objects are there, however old, for tools that
	// prefer old data to none. A cold start syncs after its first list, as ever.
	Loaded
)

// Options say how an informer persists. The zero value keeps everything in
// memory.
type Options struct {
	// Backend is where objects are stored; nil is memory. The caller closes it,
	// after RunWithContext has returned. Where a scope cannot be stored, because
	// another informer holds it or the Backend was closed, or may not, as Secrets
	// without a key, it is held in memory; that is logged, and Status.Memory says why.
	Backend store.Backend
	// Scope is what the ListerWatcher lists, and of which cluster (ClusterIdentity).
	// The caller vouches for it: state is resumed under an equal Scope, so that
	// without Cluster the objects of another one would be. Kind and Resource, where
	// they are empty, and Form always, are taken from the example; an empty Namespace
	// or selector means all.
	Scope store.Scope
	// ResyncPeriod is that of handlers that name none; 0 is no resync.
	ResyncPeriod time.Duration
	// Indexers are rebuilt at every start.
	Indexers cache.Indexers
	// Indexes, beside Indexers, are those whose entries survive a restart.
	Indexes []index.Index
	// SyncWhen says when HasSynced becomes true after a warm start.
	SyncWhen SyncPolicy
	// NotifyUnchanged makes every new list of a running informer end with a resync
	// of all handlers, for those that rely on client-go's OnUpdate for each object
	// of a list, changed or not.
	NotifyUnchanged bool
	// AuditInterval is how often what is held is compared with the server's objects, up
	// to a fifth more at random; 0 is never. An audit finds what no probe does: that a
	// restored etcd has grown past the resource version that is held, so that objects
	// are missing, or are no longer, or are other ones. It reports what differs, in
	// Status and the log, and the informer lists again and tells its handlers. It costs
	// a list of the collection, 500 objects a second or more. There is none while no
	// resource version is held, as where an object cannot be stored.
	AuditInterval time.Duration
	// TransformVersion identifies what SetTransform's function does. A transform
	// without a version starts cold every time.
	TransformVersion string
	// NoProbe opens watches without asking for the present resource version before, as
	// client-go does: for unit tests on fakes that count requests or answer each once.
	// What an earlier process left is listed then, not resumed, and a history that was
	// rewound is not noticed.
	NoProbe bool
	// DecodedBytes is the budget for decoded objects, in estimated bytes of heap:
	// 0 is 64 MiB, -1 keeps every object that was read decoded.
	DecodedBytes int64
	// Identifier names the informer for the metrics of client-go's providers; see
	// cache.NewInformerName. Zero: none are published.
	Identifier cache.InformerNameAndResource
	// MetricsProvider makes them. nil is that of cache.SetInformerMetricsProvider.
	MetricsProvider cache.InformerMetricsProvider
}

// Informer is a cache.SharedIndexInformer. Make one with New.
type Informer struct {
	lw      cache.ListerWatcher
	example runtime.Object
	codec   codec.Codec
	opts    Options
	indexer *indexer
	queue   *fifo.Queue
	factory *Factory // nil: opts.Scope is what the caller vouches for
	metrics *metrics
	// mutations panics when an object that was handed out has been changed, where
	// the environment sets KUBE_CACHE_MUTATION_DETECTOR.
	mutations cache.MutationDetector

	// ctx is that of Run, for what is found out on other goroutines: it carries the
	// logger. current is the store, for readers, who never wait for mu.
	ctx     context.Context
	current atomic.Pointer[store.Store]

	// transforming is held while the transform runs: it is called by one goroutine at a
	// time.
	transforming sync.Mutex

	// indexersMu is held while the store is opened and while indexers are added,
	// so that none is lost between memory and the opened store. Taken before mu.
	indexersMu sync.Mutex

	looking chan struct{} // holds one: who looks what Status is
	seen    atomic.Pointer[Status]

	backlogged atomic.Bool   // set under mu: some handler has more than keptDecoded waiting
	lists      atomic.Uint64 // that were applied whole; changed under mu

	synced   chan struct{} // closed when the informer has synced
	ending   chan struct{} // closed when Run's context has ended
	released chan struct{} // closed when the scope has been released

	// mu makes "apply a batch and append it to every handler's queue" and "read a
	// chunk of the store, append it to a handler's queue, advance its cursor"
	// exclude each other. Encoding, decoding and callbacks run outside it. It
	// protects the fields below and those of every handler.
	mu           sync.Mutex
	cond         *sync.Cond // broadcast when a handler may have something to do
	scope        store.Scope
	store        store.Store
	handlers     map[*handler]struct{}
	running      sync.WaitGroup // handlers' goroutines
	ready        bool           // the store holds a whole list: cursors may start
	isSynced     bool
	warm         bool // the store held objects at the start
	caughtUp     bool // the server's state at the start, or a later one, is in the store
	limits       limits
	inFiles      int64         // what waits for handlers in files, in bytes
	blocked      time.Duration // waited for handlers, because so much does; see blockedLocked
	blockedSince time.Time     // zero: it does not wait for them now
	waitingReads int           // reads that wait for a list
	started      bool          // Run was called
	opened       bool          // store is the one that Run opened
	ended        bool          // the store is released
	resyncCheck  time.Duration
	resyncWake   chan struct{}
	transform    cache.TransformFunc
	errorHandler cache.WatchErrorHandlerWithContext
	reflector    *reflector.Reflector
	lostAt       time.Time         // when loseLocked last asked for a list
	mending      *time.Timer       // asks for the next one, where one is needed
	known        btree.Set[string] // keys of the objects that are stored, as handlers are told
	atStart      btree.Set[string] // keys of those that were stored when Run began, and have not departed
	superseded   map[uint64]bool   // numbers of departed objects that nobody is told of
	unknown      bool              // known could not be read
	untold       bool              // handlers were not told of all of a loaded list
	log          *changeLog        // nil: nobody asks for it
	rejected     map[string]error  // objects whose newest state cannot be stored
	unindexed    map[string]error  // stored objects that an index function failed for at the start
	foreign      string            // why no resource version may be stored; "" where it may
	verified     bool              // the server has said that it is the scope's cluster
	unanswered   int               // times in a row that it has not said which one it is
	audited      AuditStatus
	memory       string // why a Backend is not used; "" where it is, or none was given
}

var _ cache.SharedIndexInformer = (*Informer)(nil)

// New returns an informer that has not started. The error names the argument or
// option that is wrong.
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
	scope, err := completeScope(opts.Scope, example)
	if err != nil {
		return nil, fmt.Errorf("informer: Scope: %w", err)
	}
	inf := &Informer{
		lw: lw, example: example, codec: c, opts: opts, scope: scope,
		limits:      defaultLimits,
		queue:       fifo.New(fifo.Options{}),
		metrics:     newMetrics(opts.Identifier, opts.MetricsProvider),
		mutations:   cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
		synced:      make(chan struct{}),
		ending:      make(chan struct{}),
		released:    make(chan struct{}),
		looking:     make(chan struct{}, 1),
		handlers:    map[*handler]struct{}{},
		resyncCheck: opts.ResyncPeriod,
		resyncWake:  make(chan struct{}, 1),
		rejected:    map[string]error{},
		unindexed:   map[string]error{},
	}
	inf.cond = sync.NewCond(&inf.mu)
	memory, err := inf.openMemory(withoutIndexes(opts.Indexers, opts.Indexes))
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	inf.setStore(memory)
	inf.indexer = &indexer{inf: inf}
	return inf, nil
}

// isNil is true for a nil pointer in an interface, too.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	p := reflect.ValueOf(v)
	return p.Kind() == reflect.Pointer && p.IsNil()
}

// completeScope fills in what the example says.
func completeScope(s store.Scope, example runtime.Object) (store.Scope, error) {
	switch example.(type) {
	case *unstructured.Unstructured:
		s.Form = store.Unstructured
	case *metav1.PartialObjectMetadata:
		s.Form = store.Metadata
	default:
		s.Form = store.Typed
	}
	if s.Kind.Empty() {
		s.Kind = kindOf(example)
	}
	if s.Resource == "" && !s.Kind.Empty() {
		gvr, _ := meta.UnsafeGuessKindToResource(s.Kind)
		s.Resource = gvr.GroupResource().String()
	}
	return s.Canonical()
}

func kindOf(example runtime.Object) schema.GroupVersionKind {
	if gvk := example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(example); err == nil && len(kinds) > 0 {
		return kinds[0]
	}
	return schema.GroupVersionKind{}
}

func (inf *Informer) openMemory(indexers cache.Indexers) (store.Store, error) {
	return mem.New().Open(inf.scope, store.Options{Codec: inf.codec, Indexers: indexers, Indexes: inf.opts.Indexes})
}

// RunWithContext implements cache.SharedInformer. It blocks until the context
// ends and everything that the informer started has ended; the store is flushed
// and its scope released before it waits for handlers.
func (inf *Informer) RunWithContext(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !inf.claim() {
		klog.FromContext(ctx).Info("Informer was started before, a second Run does nothing")
		return
	}
	scope, err := inf.findScope(ctx)
	if errors.Is(err, errNoTransport) && inf.factory.opts.RequireTransport {
		inf.refuse(ctx, err)
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", inf.Scope().String())
	ctx = klog.NewContext(ctx, logger)
	inf.indexersMu.Lock() // an AddIndexers waits for the store that it is meant for
	inf.start(ctx, inf.openStore(ctx, scope, err))
	inf.indexersMu.Unlock()
	var parts sync.WaitGroup
	parts.Go(func() { inf.reflector.Run(ctx) })
	parts.Go(func() { inf.processLoop(ctx) })
	parts.Go(func() { inf.resyncLoop(ctx) })
	parts.Go(func() { inf.noticeLosses(ctx) })
	parts.Go(func() { inf.auditLoop(ctx) })
	parts.Go(func() { inf.mutations.Run(ctx.Done()) })
	<-ctx.Done()
	close(inf.ending)
	inf.queue.Close()
	inf.mu.Lock()
	inf.cond.Broadcast() // to who waits for handlers
	inf.mu.Unlock()
	parts.Wait()
	if err := inf.store.Close(); err != nil {
		logger.Error(err, "Last changes could not be written")
	}
	inf.mu.Lock()
	inf.ended = true
	if inf.mending != nil {
		inf.mending.Stop()
	}
	inf.cond.Broadcast()
	inf.mu.Unlock()
	close(inf.released)
	if inf.factory != nil {
		inf.factory.forget(inf)
	}
	inf.running.Wait()
}

// refuse ends an informer that may not run in memory, with its context.
func (inf *Informer) refuse(ctx context.Context, why error) {
	klog.FromContext(ctx).Error(why, "Informer does not run, it could not be persisted", "type", fmt.Sprintf("%T", inf.example))
	inf.mu.Lock()
	inf.memory = why.Error()
	inf.mu.Unlock()
	<-ctx.Done()
	close(inf.ending)
	inf.mu.Lock()
	inf.ended = true
	for h := range inf.handlers {
		h.removed = true
		close(h.done)
	}
	clear(inf.handlers)
	inf.mu.Unlock()
	close(inf.released)
	inf.factory.forget(inf)
}

// claim makes this Run the only one.
func (inf *Informer) claim() bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.started {
		return false
	}
	inf.started = true
	return true
}

func (inf *Informer) setStore(s store.Store) {
	inf.store = s
	inf.current.Store(&s)
}

// start makes the opened store the informer's, and starts the handlers.
func (inf *Informer) start(ctx context.Context, opened store.Store) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	_ = inf.store.Close() // the one in memory
	inf.ctx = ctx
	inf.setStore(opened)
	opts := reflector.Options{
		ListerWatcher: inf.lw, Example: inf.example, Kind: inf.expectedKind(),
		Sink: (*sink)(inf), OnError: inf.onError, NoProbe: inf.opts.NoProbe,
	}
	if inf.factory != nil && inf.memory == "" {
		opts.Verify = inf.verify
	}
	r, err := reflector.New(opts)
	if err != nil {
		panic(err) // New has checked what it checks
	}
	inf.reflector = r
	if cp := inf.store.Checkpoint(); cp.RV != "" || inf.store.Len() > 0 {
		inf.ready, inf.warm = true, true
		klog.FromContext(ctx).Info("Loaded", "objects", inf.store.Len(), "resourceVersion", cp.RV, "age", time.Since(cp.Time).Round(time.Second))
	}
	if err := inf.noteKnownLocked(); err == nil { // or when there is a list
		inf.atStart = *inf.known.Copy()
		if !inf.noteSupersededLocked() {
			// Nothing has departed: a change that comes next is told after the add of what
			// was stored.
			for h := range inf.handlers {
				h.stage = walking
			}
		}
	}
	if inf.ready && inf.opts.SyncWhen == Loaded {
		inf.syncLocked()
	}
	inf.opened = true
	inf.beginLogLocked()
	for h := range inf.handlers {
		inf.startLocked(h)
	}
}

// expectedKind is checked for objects that say their kind themselves.
func (inf *Informer) expectedKind() schema.GroupVersionKind {
	if inf.scope.Form == store.Unstructured && inf.scope.Kind.Kind != "" {
		return inf.scope.Kind
	}
	return schema.GroupVersionKind{}
}

// openStore opens the scope, in memory where it may not or cannot be persisted:
// a cache must not be able to take its controller down (promise 5). Needs
// indexersMu.
func (inf *Informer) openStore(ctx context.Context, scope store.Scope, err error) store.Store {
	indexers := inf.store.GetIndexers()
	for _, idx := range inf.opts.Indexes {
		delete(indexers, idx.Name)
	}
	if inf.opts.Backend != nil {
		var s store.Store
		if err == nil {
			s, err = inf.openPersistent(ctx, scope, indexers)
		}
		if err == nil {
			return s
		}
		if isExpectedInMemory(err) {
			klog.FromContext(ctx).Info("Not persisted, held in memory", "because", err.Error())
		} else {
			klog.FromContext(ctx).Error(err, "NOT PERSISTED: all objects are listed at each start and held in memory")
		}
		inf.mu.Lock()
		inf.memory = err.Error()
		inf.mu.Unlock()
	}
	s, err := inf.openMemory(indexers)
	if err != nil {
		panic(err) // the same options were opened by New
	}
	return s
}

// isExpectedInMemory reports whether what keeps a scope from being persisted comes of a
// program that is right: Secrets without a key, a scope that another informer holds.
func isExpectedInMemory(err error) bool {
	return errors.Is(err, store.ErrNoKey) || errors.Is(err, store.ErrInUse) || errors.Is(err, store.ErrClosed) ||
		errors.Is(err, context.Canceled)
}

// findScope returns what the caller vouches for, or asks the ListerWatcher.
func (inf *Informer) findScope(ctx context.Context) (store.Scope, error) {
	if inf.factory == nil {
		return inf.scope, nil
	}
	scope, err := inf.factory.scope(ctx, inf.lw, inf.example)
	if err != nil {
		return scope, err
	}
	scope.Form = inf.scope.Form
	if scope, err = scope.Canonical(); err != nil {
		return scope, err
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.scope = scope
	return scope, nil
}

// Scope returns what the informer holds. That of a Factory's informer is known
// once it runs.
func (inf *Informer) Scope() store.Scope {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.scope
}

func (inf *Informer) openPersistent(ctx context.Context, scope store.Scope, indexers cache.Indexers) (store.Store, error) {
	if scope.Kind.Empty() {
		return nil, fmt.Errorf("the kind of a %T is not known; name it in Scope", inf.example)
	}
	opts := store.Options{
		Codec: inf.codec, Indexers: indexers, Indexes: inf.opts.Indexes,
		TransformVersion: inf.opts.TransformVersion,
		Fresh:            inf.transform != nil && inf.opts.TransformVersion == "",
		DecodedBytes:     inf.opts.DecodedBytes,
		Rejected: func(bad *store.ObjectError) {
			inf.mu.Lock()
			defer inf.mu.Unlock()
			inf.unindexed[bad.Key] = bad
			klog.FromContext(ctx).Error(bad, "Stored object is not in an index", "key", bad.Key)
		},
	}
	if opts.Fresh {
		opts.TransformVersion = "unversioned" // or a start without the transform would take over what it has made
	}
	if inf.factory != nil {
		return inf.factory.open(ctx, inf, scope, opts)
	}
	if scope.Cluster == "" {
		klog.FromContext(ctx).Info("Scope names no cluster: what is stored is resumed against whichever server answers")
	}
	return inf.opts.Backend.Open(scope, opts)
}

// withoutIndexes returns indexers less those that an index with an identity
// stands for: the namespace function is often given both ways.
func withoutIndexes(indexers cache.Indexers, indexes []index.Index) cache.Indexers {
	out := maps.Clone(indexers)
	for _, idx := range indexes {
		if fn := out[idx.Name]; fn != nil && index.IsNamespace(fn) && index.IsNamespace(idx.Func) {
			delete(out, idx.Name)
		}
	}
	return out
}

// syncLocked makes HasSynced true.
func (inf *Informer) syncLocked() {
	if inf.isSynced {
		return
	}
	inf.isSynced = true
	close(inf.synced)
	for h := range inf.handlers {
		h.markSyncedLocked()
	}
	inf.cond.Broadcast()
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
