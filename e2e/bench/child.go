package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// task describes what a child process measures.
type task struct {
	Kind       string
	Objects    int
	URL        string // of this command's server
	Kubeconfig string // of a kube-apiserver, if URL is empty
	Ours       bool
	File       string // of ours: created if it does not exist
	Command    string // path of informctl
	Scenario   scenario
	Seconds    float64       // duration of changes at a rate
	Quiet      time.Duration // time without activity after which a state is settled
	Profile    string        // path for a CPU profile of the measured part; "" means none
}

// figures are the results of a child: seconds, bytes and counts.
type figures map[string]float64

// child is a process that runs one informer.
type child struct {
	task
	kind    kind
	server  controller
	traffic traffic
	figures figures
	memory  *memory
	inf     cache.SharedIndexInformer
	ours    *informer.Informer // nil for client-go's
	seen    *seen
}

func measure(ctx context.Context, t task) (_ figures, err error) {
	k, err := kindOf(t.Kind)
	if err != nil {
		return nil, err
	}
	c := &child{task: t, kind: k, server: controller{t.URL}, figures: figures{}, seen: newSeen(t.Objects)}
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	c.traffic.count(cfg)
	if t.Ours {
		informer.TakeEncoded(cfg)
	}
	lw, err := k.listWatch(cfg)
	if err != nil {
		return nil, err
	}
	if t.Scenario.Query {
		return c.figures, c.query(ctx)
	}
	if t.Scenario.Restart {
		return c.figures, c.restart(ctx, lw)
	}
	c.memory = watchMemory(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopProfile, err := c.profile(t.Scenario.After == "")
	if err != nil {
		return nil, err
	}
	began, cpu := time.Now(), cpuSeconds()
	closeFile, err := c.make(lw)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.inf.RunWithContext(ctx)
	}()
	// The file is complete when it is closed.
	defer func() {
		cancel()
		<-done
		err = cmp.Or(err, closeFile())
	}()
	if err := c.start(ctx, began); err != nil {
		return nil, err
	}
	c.figures["cpu"] = cpuSeconds() - cpu
	stopProfile()
	if err := c.steady(); err != nil {
		return nil, err
	}
	if c.Ours {
		info, err := os.Stat(c.File)
		if err != nil {
			return nil, err
		}
		c.figures["file"] = float64(info.Size())
	}
	if t.Scenario.After != "" {
		stopProfile, err := c.profile(true)
		if err != nil {
			return nil, err
		}
		defer stopProfile()
		c.memory.reset()
		return c.figures, afters[t.Scenario.After](ctx, c)
	}
	return c.figures, nil
}

// profile starts a CPU profile if one is wanted.
func (c *child) profile(wanted bool) (stop func(), err error) {
	if c.Profile == "" || !wanted {
		return func() {}, nil
	}
	f, err := os.Create(c.Profile)
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}), nil
}

// heapProfile writes a heap profile next to the CPU profile.
func (c *child) heapProfile() (err error) {
	if c.Profile == "" {
		return nil
	}
	f, err := os.Create(c.Profile + ".heap")
	if err != nil {
		return fmt.Errorf("make a profile: %w", err)
	}
	defer func() { err = cmp.Or(err, f.Close()) }()
	return pprof.Lookup("heap").WriteTo(f, 0)
}

func (t task) config() (*rest.Config, error) {
	if t.Kubeconfig == "" {
		return &rest.Config{Host: t.URL}, nil
	}
	return clientcmd.BuildConfigFromFlags("", t.Kubeconfig)
}

func (k kind) listWatch(cfg *rest.Config) (cache.ListerWatcher, error) {
	if k.form == schemaless {
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return nil, err
		}
		r := client.Resource(k.gvr)
		return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) { return r.List(ctx, o) },
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return r.Watch(ctx, o)
			},
		}, client), nil
	}
	types, err := k.types()
	if err != nil {
		return nil, err
	}
	if k.isProtobuf() {
		cfg.ContentType, cfg.AcceptContentTypes = kruntime.ContentTypeProtobuf, kruntime.ContentTypeProtobuf
	}
	cfg.APIPath, cfg.GroupVersion = "/apis", new(k.gvr.GroupVersion())
	if k.gvr.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	list, err := types.New(k.gvr.GroupVersion().WithKind(k.gvk.Kind + "List"))
	if err != nil {
		return nil, err
	}
	parameters := kruntime.NewParameterCodec(types)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
			into := list.DeepCopyObject()
			err := client.Get().Resource(k.gvr.Resource).VersionedParams(&o, parameters).Do(ctx).Into(into)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return client.Get().Resource(k.gvr.Resource).VersionedParams(&o, parameters).Watch(ctx)
		},
	}, nil
}

// types returns the scheme of a kind with a Go type.
func (k kind) types() (*kruntime.Scheme, error) {
	if k.isProtobuf() {
		return scheme.Scheme, nil
	}
	types := kruntime.NewScheme()
	return types, testobjects.AddToScheme(types)
}

// key is the key of the scopes that are encrypted: Secrets.
type key struct{}

// Keys implements codec.KeyProvider.
func (key) Keys(context.Context) ([]codec.Key, error) { return []codec.Key{{1}}, nil }

// make creates the informer and its handler.
func (c *child) make(lw cache.ListerWatcher) (closeFile func() error, err error) {
	closeFile = func() error { return nil }
	if c.Ours {
		db, err := bolt.Open(c.File, bolt.Options{Keys: key{}})
		if err != nil {
			return nil, err
		}
		opts := informer.Options{
			Backend: db, Indexes: []index.Index{index.Namespace()},
			SyncWhen: c.Scenario.SyncWhen, DecodedBytes: c.Scenario.DecodedBytes,
			Scope: store.Scope{Resource: c.kind.gvr.GroupResource().String(), Kind: c.kind.gvk},
		}
		if c.ours, err = informer.New(lw, c.kind.example(), opts); err != nil {
			return nil, err
		}
		c.inf, closeFile = c.ours, db.Close
	} else {
		c.inf = cache.NewSharedIndexInformer(lw, c.kind.example(), 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	_, err = c.inf.AddEventHandler(c.seen)
	return closeFile, err
}

// start waits until the handler has received all objects and the process has settled.
func (c *child) start(ctx context.Context, began time.Time) error {
	select {
	case <-c.inf.HasSyncedChecker().Done():
	case <-ctx.Done():
		return fmt.Errorf("wait for the sync: %w", ctx.Err())
	}
	c.figures["synced"] = time.Since(began).Seconds()
	if err := c.seen.wait(ctx, c.seen.allAdded); err != nil {
		return err
	}
	c.figures["added"] = c.seen.lastAdd.Sub(began).Seconds()
	if err := c.settle(ctx); err != nil {
		return err
	}
	c.figures["peakAnon"], c.figures["peakTotal"] = c.memory.peak()
	c.figures["bytes"], c.figures["requests"] = float64(c.traffic.bytes.Load()), float64(c.traffic.requests.Load())
	return nil
}

// settle waits until nothing was written and no handler was called for c.Quiet.
func (c *child) settle(ctx context.Context) error {
	type state struct{ written, notified int64 }
	var last state
	since := time.Now()
	for time.Since(since) < c.Quiet {
		written, err := diskBytes()
		if err != nil {
			return err
		}
		if now := (state{written, c.seen.notifications()}); now != last {
			last, since = now, time.Now()
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait until it has settled: %w", ctx.Err())
		}
	}
	return nil
}

// steady measures the memory that a process needs permanently: without garbage and
// without memory that the runtime has not returned yet.
func (c *child) steady() error {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	c.figures["heap"] = float64(stats.HeapAlloc)
	debug.FreeOSMemory()
	now, err := readMemory()
	c.figures["steadyAnon"], c.figures["steadyTotal"] = float64(now.anon), float64(now.total)
	return err
}

// seen is the handler.
type seen struct {
	objects  int
	allAdded chan struct{}

	mu       sync.Mutex // protects the fields below
	adds     int
	updates  int
	deletes  int
	lastAdd  time.Time
	last     time.Time
	delays   []float64
	expected int // number of updates after which enough is closed
	enough   chan struct{}
}

func newSeen(objects int) *seen { return &seen{objects: objects, allAdded: make(chan struct{})} }

// OnAdd implements cache.ResourceEventHandler.
func (s *seen) OnAdd(any, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adds++; s.adds == s.objects {
		s.lastAdd = time.Now()
		close(s.allAdded)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (s *seen) OnUpdate(_, obj any) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates++
	s.last = now
	if s.enough == nil {
		return
	}
	if accessor, err := meta.Accessor(obj); err == nil {
		if sent, err := strconv.ParseInt(accessor.GetAnnotations()[sentKey], 10, 64); err == nil {
			s.delays = append(s.delays, float64(now.UnixNano()-sent)/1e9)
		}
	}
	if s.expected--; s.expected == 0 {
		close(s.enough)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (s *seen) OnDelete(any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes++
}

// expect returns a channel that is closed after that many updates.
func (s *seen) expect(updates int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected, s.enough, s.delays = updates, make(chan struct{}), make([]float64, 0, updates)
	return s.enough
}

func (s *seen) notifications() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(s.adds + s.updates + s.deletes)
}

func (s *seen) wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("after %d adds, %d updates and %d deletes: %w", s.adds, s.updates, s.deletes, ctx.Err())
	}
}

// percentile sorts the values.
func percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, len(values)*p/100)]
}
