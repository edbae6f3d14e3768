package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/bolttest"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// cluster answers the few requests of an informer for ConfigMaps over HTTP, because a
// Factory wraps a transport.
type cluster struct {
	mu      sync.Mutex
	down    bool
	uid     types.UID // of kube-system
	rv      string
	objects []string // names
	lists   int      // of the whole collection

	watched chan string // the resource version of each watch
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	query := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case c.down:
		panic(http.ErrAbortHandler)
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		_ = json.NewEncoder(w).Encode(&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: c.uid},
		})
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
	case query.Get("watch") != "":
		w.(http.Flusher).Flush()
		c.mu.Unlock()
		c.watched <- query.Get("resourceVersion")
		<-r.Context().Done()
		c.mu.Lock()
	default:
		list := &corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}
		list.ResourceVersion = c.rv
		for _, name := range c.objects {
			cm := corev1.ConfigMap{}
			cm.Namespace, cm.Name, cm.ResourceVersion, cm.UID = "default", name, c.rv, types.UID(name+string(c.uid))
			list.Items = append(list.Items, cm)
		}
		if limit := query.Get("limit"); limit != "1" && limit != strconv.Itoa(reflector.WholeLimit) {
			c.lists++
		}
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (c *cluster) set(f func(*cluster)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// process is a process with a file, a factory and an informer.
type process struct {
	db   *bolt.DB
	inf  cache.SharedIndexInformer
	told chan string // the notifications of its handler
	stop func()
}

func startProcess(t *testing.T, url, path string, opts informer.FactoryOptions) *process {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &rest.Config{Host: url, Transport: &http.Transport{DisableKeepAlives: true}}
	factory, client := clientOf(t, db, cfg, opts)
	lw := configMapsOf(client)
	p := &process{db: db, told: make(chan string, 100), inf: factory.NewInformer(lw, &corev1.ConfigMap{}, 0, nil)}
	if err := p.inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.inf.AddEventHandler(&log{hook: func(line string) { p.told <- line }}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.inf.RunWithContext(ctx)
	}()
	p.stop = func() {
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	return p
}

func (p *process) synced() *process {
	<-p.inf.HasSyncedChecker().Done()
	return p
}

// TestServerDownAtStart checks that a factory's informer serves the stored objects of the
// last cluster, and resumes once the server identifies itself as that cluster. If it is
// another one, handlers receive its objects as differences, and no resource version is
// stored for the first cluster.
func TestServerDownAtStart(t *testing.T) {
	t.Run("same cluster", func(t *testing.T) {
		t.Parallel()
		testServerDownAtStart(t, func(*cluster) {}, outcome{
			watched: "10", told: []string{"initial a@10=", "initial b@10="}, stored: "10",
		})
	})
	t.Run("another cluster", func(t *testing.T) {
		t.Parallel()
		testServerDownAtStart(t, func(c *cluster) {
			c.uid, c.rv, c.objects = "two", "20", []string{"b", "x"}
		}, outcome{
			watched: "20", lists: 1,
			told: []string{"initial a@10=", "initial b@10=", "delete tombstone a@10=", "update b@10= b@20=", "add x@20="},
		})
	})
}

// outcome is the result of a start with the server down.
type outcome struct {
	watched string // the resource version where the watch began
	lists   int
	told    []string
	stored  string // the first cluster's resource version
}

func testServerDownAtStart(t *testing.T, comesBackAs func(*cluster), want outcome) {
	c := &cluster{uid: "one", rv: "10", objects: []string{"a", "b"}, watched: make(chan string, 10)}
	server := httptest.NewServer(c)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "informers.db")
	p := startProcess(t, server.URL, path, informer.FactoryOptions{}).synced()
	if rv := <-c.watched; rv != "10" {
		t.Errorf("first watch from %q", rv)
	}
	p.stop()
	c.set(func(c *cluster) { c.down, c.lists = true, 0 })
	p = startProcess(t, server.URL, path, informer.FactoryOptions{SyncWhen: informer.Loaded}).synced()
	if keys := p.inf.GetStore().ListKeys(); len(keys) != 2 {
		t.Errorf("with the server down %q is served", keys)
	}
	c.set(func(c *cluster) {
		c.down = false
		comesBackAs(c)
	})
	var got outcome
	got.watched = <-c.watched
	for range want.told {
		got.told = append(got.told, <-p.told)
	}
	p.stop()
	c.set(func(c *cluster) { got.lists, c.lists = c.lists, 0 })
	got.stored = checkpointOf(t, path, "kube-system/one").RV
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(outcome{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p = startProcess(t, server.URL, path, informer.FactoryOptions{}).synced()
	if keys := p.inf.GetStore().ListKeys(); len(keys) != 2 || c.lists != want.lists {
		t.Errorf("at the next start %q after %d lists, want 2 objects after %d", keys, c.lists, want.lists)
	}
	p.stop()
}

func checkpointOf(t *testing.T, path, cluster string) store.Checkpoint {
	t.Helper()
	infos := bolttest.Scopes(t, path)
	i := slices.IndexFunc(infos, func(info store.Info) bool { return info.Scope.Cluster == cluster })
	if i < 0 {
		t.Fatalf("no scope of cluster %s in %+v", cluster, infos)
	}
	return infos[i].Checkpoint
}

// TestScopeIgnoresContext checks that Run ends although the ListerWatcher that a factory
// asks for its scope ignores its context.
func TestScopeIgnoresContext(t *testing.T) {
	for _, which := range []string{isClientGo, "ours"} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			lw := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					<-release
					return nil, errors.New("late")
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return nil, errors.New("none") },
			}
			f, err := informer.NewFactory(mem.New(), &rest.Config{Host: "http://localhost"}, informer.FactoryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			make1 := f.NewInformer
			if which == isClientGo {
				make1 = cache.NewSharedIndexInformer
			}
			inf := make1(cache.ToListWatcherWithWatchListSemantics(lw, pagesOnly{}), &corev1.ConfigMap{}, 0, nil)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				inf.RunWithContext(ctx)
			}()
			waitFor(time.Second)
			cancel()
			waitFor(time.Minute)
			select {
			case <-done:
			default:
				t.Errorf("%s: Run has not returned a minute after the end of its context", which)
			}
			close(release)
			<-done
		})
	}
}

// TestFactoryConfigures checks that Configure changes the options of one type, and cannot
// change what the factory finds out.
func TestFactoryConfigures(t *testing.T) {
	c := &cluster{uid: "cluster", rv: "5", objects: []string{"a"}, watched: make(chan string, 10)}
	server := httptest.NewServer(c)
	defer server.Close()
	app := index.Label("app")
	p := startProcess(t, server.URL, filepath.Join(t.TempDir(), "informers.db"), informer.FactoryOptions{
		Configure: func(example runtime.Object, opts *informer.Options) {
			if _, ok := example.(*corev1.ConfigMap); ok {
				opts.Indexes, opts.History = []index.Index{app}, store.History{Bytes: -1}
			}
			// The map is the informer's own.
			opts.Indexers["own"] = func(any) ([]string, error) { return nil, nil }
			opts.Backend, opts.Scope = nil, store.Scope{Cluster: "another"}
		},
	}).synced()
	defer p.stop()
	inf := p.inf.(*informer.Informer)
	if !inf.Persisted() || inf.Scope().Cluster != "kube-system/cluster" {
		t.Errorf("persisted is %v, the cluster %q", inf.Persisted(), inf.Scope().Cluster)
	}
	if keys, err := inf.Reader().Keys(store.Query{Index: app.Name, Values: []string{"x"}}); err != nil || len(keys) > 0 {
		t.Errorf("the index of the type: %v, %v", keys, err)
	}
}

// TestFactoryHasOneBudget checks that the informers of a factory share its budget for
// decoded objects.
func TestFactoryHasOneBudget(t *testing.T) {
	const objects, budget = 300, 100 << 10 // a third of the objects of one informer
	c := &cluster{uid: "cluster", rv: "5", watched: make(chan string, 10)}
	for i := range objects {
		c.objects = append(c.objects, fmt.Sprintf("c%03d", i))
	}
	server := httptest.NewServer(c)
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := &rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}}
	factory, client := clientOf(t, db, cfg, informer.FactoryOptions{DecodedBytes: budget})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
		server.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	var all []*informer.Informer
	for _, namespace := range []string{"", "default"} {
		lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything())
		inf := factory.NewInformer(lw, &corev1.ConfigMap{}, 0, nil).(*informer.Informer)
		all = append(all, inf)
		running.Go(func() { inf.RunWithContext(ctx) })
		<-inf.HasSyncedChecker().Done()
	}
	sum := int64(0)
	for _, inf := range all {
		for _, name := range c.objects {
			if _, ok, err := inf.GetStore().GetByKey("default/" + name); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	for _, inf := range all {
		sum += inf.Status().Reads.DecodedBytes
	}
	if sum > budget || sum < budget/2 {
		t.Errorf("%d bytes are decoded, want at most %d, and not much less", sum, budget)
	}
}

// TestTransformVersionOfFactory checks that the version of a Factory's transforms means
// nothing to an informer that has none: taking a transform away has everything listed,
// and another version nothing. So it is with a version that Configure sets.
func TestTransformVersionOfFactory(t *testing.T) {
	c := &cluster{uid: "one", rv: "10", watched: make(chan string, 10)}
	for i := range 500 { // a small collection would be compared
		c.objects = append(c.objects, fmt.Sprintf("object-%03d", i))
	}
	server := httptest.NewServer(c)
	defer server.Close()
	path := filepath.Join(t.TempDir(), "informers.db")
	mark := func(obj any) (any, error) {
		obj.(*corev1.ConfigMap).Labels = map[string]string{"transformed": "yes"} //nolint:forcetypeassert // of this test
		return obj, nil
	}
	for _, step := range []struct {
		version   string
		own       string // the version that Configure sets; "" if it sets none
		transform cache.TransformFunc
		start     string
		because   string

		transformed bool
	}{
		{version: "1", transform: mark, start: "listed", because: "nothing stored yet", transformed: true},
		{version: "1", transform: mark, start: "resumed", transformed: true},
		{version: "1", start: "listed", because: "transform changed"},
		{version: "2", start: "resumed"},
		{version: "2", transform: informer.StripManagedFields, start: "listed", because: "transform changed"},
		{version: "3", transform: informer.StripManagedFields, start: "resumed"},
		{version: "3", transform: mark, start: "listed", because: "transform changed", transformed: true},
		{version: "3", own: "1", transform: mark, start: "listed", because: "transform changed", transformed: true},
		{version: "3", own: "1", transform: mark, start: "resumed", transformed: true},
		{version: "3", own: "1", start: "listed", because: "transform changed"},
		{version: "3", own: "2", start: "resumed"},
	} {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := &rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}}
		factory, client := clientOf(t, db, cfg, informer.FactoryOptions{
			TransformVersion: step.version,
			Configure: func(_ runtime.Object, opts *informer.Options) {
				if step.own != "" {
					opts.TransformVersion = step.own
				}
			},
		})
		inf := factory.NewInformer(configMapsOf(client), &corev1.ConfigMap{}, 0, nil).(*informer.Informer) //nolint:forcetypeassert // it is one
		if err := inf.SetTransform(step.transform); err != nil {
			t.Fatal(err)
		}
		stop := runSynced(t, inf)
		<-c.watched
		s := inf.Status()
		cm, _, err := inf.GetStore().GetByKey("default/object-007")
		isTransformed := err == nil && cm.(*corev1.ConfigMap).Labels["transformed"] == "yes" //nolint:forcetypeassert // all are
		if s.Start != step.start || s.StartReason != step.because || isTransformed != step.transformed {
			t.Errorf("version %s: %s %q, transformed %t", step.version, s.Start, s.StartReason, isTransformed)
		}
		stop()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExampleIsTheCallers checks that an informer knows its kind from the time that it
// was made, as controller-runtime's does: a program may use one object for several.
func TestExampleIsTheCallers(t *testing.T) {
	db := mem.New()
	example := &metav1.PartialObjectMetadata{}
	var informers []*informer.Informer
	for _, kind := range []string{"ConfigMap", "Pod"} {
		example.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		c := &cluster{uid: "one", rv: "10", watched: make(chan string, 10)}
		server := httptest.NewServer(c)
		defer server.Close()
		factory, client := clientOf(t, db, &rest.Config{Host: server.URL}, informer.FactoryOptions{})
		informers = append(informers, factory.NewInformer(configMapsOf(client), example, 0, nil).(*informer.Informer)) //nolint:forcetypeassert // it is one
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var done sync.WaitGroup
	defer done.Wait()
	defer cancel()
	for _, inf := range informers {
		done.Go(func() { inf.RunWithContext(ctx) })
	}
	for i, want := range []string{"ConfigMap", "Pod"} {
		for informers[i].Status().Scope.ID == "" {
			<-time.After(time.Millisecond)
		}
		if got := informers[i].Status().Scope.Kind; got != want {
			t.Errorf("informer %d is of the kind %s, want %s", i, got, want)
		}
	}
}
