package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	configMapKind  = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	configMapScope = store.Scope{Cluster: "c1", Resource: "configmaps", Kind: configMapKind}
)

// open returns a DB with new tables.
func open(t *testing.T, dsn, schema string, opts postgres.Options) *postgres.DB {
	t.Helper()
	opts.Schema = schema
	if err := postgres.Migrate(t.Context(), dsn, opts); err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": value}}
}

// publish publishes in the background until the test ends, or the returned function is
// called.
func publish(t *testing.T, db *postgres.DB, opts postgres.PublishOptions, collections ...postgres.Collection) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		if err := db.Publish(ctx, collections, opts); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

// follow runs client-go's informer on a ListerWatcher until the test ends.
func follow(t *testing.T, lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	t.Helper()
	inf := cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
	run(t, inf)
	return inf
}

// run runs an informer until the test ends.
func run(t *testing.T, inf cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	within(t, 2*time.Minute, what, is)
}

// within waits until a condition holds, for a time at most.
func within(t *testing.T, limit time.Duration, what string, is func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}

func TestFeed(t *testing.T) {
	dsn := pgtest.DSN(t)
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) {
			server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
			for i := range 50 {
				if _, err := server.Create(configMap(fmt.Sprintf("c%d", i), "first")); err != nil {
					t.Fatal(err)
				}
			}
			db := open(t, dsn, pgtest.Schema(), postgres.Options{Listen: true})
			c, err := postgres.NewCollection(server.Config(contentType), configMapScope)
			if err != nil {
				t.Fatal(err)
			}
			publish(t, db, postgres.PublishOptions{TTL: 2 * time.Second}, c)

			follower := func(example runtime.Object) cache.SharedIndexInformer {
				lw, err := db.ListerWatcher(configMapScope, example, postgres.FollowOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return follow(t, lw, example)
			}
			typed, dynamic := follower(&corev1.ConfigMap{}), follower(&unstructured.Unstructured{})
			metadata := follower(&metav1.PartialObjectMetadata{})
			infs := []cache.SharedIndexInformer{typed, dynamic, metadata}
			for _, inf := range infs {
				eventually(t, "HasSynced", inf.HasSynced)
			}
			for i := range 10 {
				if _, err := server.Update(configMap(fmt.Sprintf("c%d", i), "second")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := server.Delete("default/c20"); err != nil {
				t.Fatal(err)
			}
			rv, err := server.Create(configMap("new", "first"))
			if err != nil {
				t.Fatal(err)
			}
			for _, inf := range infs {
				eventually(t, "the resource version of the last change", func() bool { return inf.LastSyncResourceVersion() == rv })
				eventually(t, "the last object", func() bool {
					_, has, _ := inf.GetStore().GetByKey("default/new")
					return has
				})
				if n := len(inf.GetStore().ListKeys()); n != 50 {
					t.Errorf("%d objects, want 50", n)
				}
			}
			want, err := server.ListWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range want.(*corev1.ConfigMapList).Items {
				key := w.Namespace + "/" + w.Name
				got, _, err := typed.GetStore().GetByKey(key)
				if err != nil {
					t.Fatal(err)
				}
				w.TypeMeta = metav1.TypeMeta{}
				if diff := cmp.Diff(&w, got); diff != "" {
					t.Fatalf("%s (-server +follower):\n%s", key, diff)
				}
				got, _, _ = dynamic.GetStore().GetByKey(key)
				w.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
				u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&w)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(u, got.(*unstructured.Unstructured).Object); diff != "" {
					t.Fatalf("%s unstructured (-server +follower):\n%s", key, diff)
				}
			}
			status, err := db.Status(t.Context())
			if err != nil || len(status) != 1 || !status[0].Complete || status[0].Problem != "" || status[0].Objects != 50 {
				t.Errorf("status %+v, %v", status, err)
			}
		})
	}
}

// named answers whose cluster the API server behind it is.
type named struct {
	http.RoundTripper
	uid atomic.Pointer[string]
}

func (n *named) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/api/v1/namespaces/kube-system" {
		return n.RoundTripper.RoundTrip(r)
	}
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":%q}}`, *n.uid.Load())
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// TestOtherCluster checks that nothing of a cluster is published that takes the place of
// another behind the same address.
func TestOtherCluster(t *testing.T) {
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	if _, err := server.Create(configMap("mine", "first")); err != nil {
		t.Fatal(err)
	}
	cfg := server.Config(runtime.ContentTypeJSON)
	api := &named{RoundTripper: cfg.Transport}
	cfg.Transport = api
	mine, other := "u1", "u2"
	api.uid.Store(&mine)
	scope := configMapScope
	var err error
	if scope.Cluster, err = informer.ClusterIdentity(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	c, err := postgres.NewCollection(cfg, scope)
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, pgtest.DSN(t), pgtest.Schema(), postgres.Options{})
	publish(t, db, postgres.PublishOptions{}, c)
	status := func() postgres.ScopeStatus {
		all, err := db.Status(t.Context())
		if err != nil || len(all) != 1 {
			return postgres.ScopeStatus{}
		}
		return all[0]
	}
	eventually(t, "the first list is published", func() bool { s := status(); return s.State() == "published" })
	eventually(t, "a watch is open", func() bool { return server.Watches() > 0 })
	api.uid.Store(&other)
	server.CloseWatches()
	if _, err := server.Create(configMap("foreign", "first")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status says why the scope is not published", func() bool { return strings.Contains(status().Problem, "another cluster") })
	if n := status().Objects; n != 1 {
		t.Errorf("%d objects are published, want that of the first cluster", n)
	}
}

// TestRewoundElsewhere checks that a resource whose history has grown beyond what is
// published is listed, too, when another one has shown that it was rewound. Events may be
// in an etcd of their own.
func TestRewoundElsewhere(t *testing.T) {
	configMaps := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	services := fakeapi.New(&corev1.Service{}, &corev1.ServiceList{}, fakeapi.Options{})
	events := fakeapi.New(&corev1.Event{}, &corev1.EventList{}, fakeapi.Options{})
	others := fakeapi.New(&corev1.Service{}, &corev1.ServiceList{}, fakeapi.Options{})
	collection := func(cluster, resource, kind string, server *fakeapi.Server, example runtime.Object) postgres.Collection {
		return postgres.Collection{
			Scope:         store.Scope{Cluster: cluster, Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind(kind)},
			ListerWatcher: server, Example: example,
		}
	}
	first, err := configMaps.Create(configMap("a", "first"))
	if err == nil {
		_, err = configMaps.Create(configMap("b", "first"))
	}
	if err != nil {
		t.Fatal(err)
	}
	db := open(t, pgtest.DSN(t), pgtest.Schema(), postgres.Options{})
	publish(t, db, postgres.PublishOptions{},
		collection("c1", "configmaps", "ConfigMap", configMaps, &corev1.ConfigMap{}), collection("c1", "services", "Service", services, &corev1.Service{}),
		collection("c1", "events", "Event", events, &corev1.Event{}), collection("c2", "services", "Service", others, &corev1.Service{}))
	isPublished := func() bool {
		status, err := db.Status(t.Context())
		return err == nil && len(status) == 4 && !slices.ContainsFunc(status, func(s postgres.ScopeStatus) bool { return s.State() != "published" })
	}
	eventually(t, "all is published", isPublished)
	lists := func(s *fakeapi.Server) (n int) {
		for _, r := range s.Requests() {
			if r.Verb == "list" && r.Options.Limit != 1 || r.Options.SendInitialEvents != nil {
				n++
			}
		}
		return n
	}
	eventually(t, "all are watched", func() bool { return configMaps.Watches()*services.Watches()*events.Watches()*others.Watches() > 0 })
	before := map[*fakeapi.Server]int{services: lists(services), events: lists(events), others: lists(others)}
	if err := configMaps.Rewind(first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "services are listed", func() bool { return lists(services) > before[services] })
	eventually(t, "all is published again", func() bool { return configMaps.Watches() > 0 && isPublished() })
	if got := lists(services) - before[services]; got != 1 {
		t.Errorf("services are listed %d times", got)
	}
	for what, server := range map[string]*fakeapi.Server{"events": events, "services of another cluster": others} {
		if got := lists(server) - before[server]; got != 0 {
			t.Errorf("%s are listed %d times", what, got)
		}
	}
}

// TestFailover puts the database back to an earlier state, as an asynchronous failover
// does. The publisher publishes again what was lost, without a list of the API server,
// and followers wait for it: nothing is lost, nobody lists.
func TestFailover(t *testing.T) {
	const patience = 3 * time.Minute
	pg := pgtest.Start(t)
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	change := func(n int) (rv string) {
		t.Helper()
		for i := range n {
			var err error
			if rv, err = server.Create(configMap(fmt.Sprintf("c%d-%s", i, server.RV()), "first")); err != nil {
				t.Fatal(err)
			}
		}
		return rv
	}
	rv := change(20)
	db := open(t, pg.DSN(), postgres.DefaultSchema, postgres.Options{Poll: 50 * time.Millisecond})
	c, err := postgres.NewCollection(server.Config(runtime.ContentTypeProtobuf), configMapScope)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, db, postgres.PublishOptions{TTL: 2 * time.Second}, c)
	lw, err := db.ListerWatcher(configMapScope, &corev1.ConfigMap{}, postgres.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lists := &listCounter{ListerWatcher: lw}
	another, err := db.ListerWatcher(configMapScope, &corev1.ConfigMap{}, postgres.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	listsOfAnother := &listCounter{ListerWatcher: another}
	clientGo := follow(t, listsOfAnother, &corev1.ConfigMap{})
	file, err := bolt.Open(filepath.Join(t.TempDir(), "f.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	inf, err := informer.New(lists, &corev1.ConfigMap{}, informer.Options{Backend: file, Scope: configMapScope})
	if err != nil {
		t.Fatal(err)
	}
	run(t, inf)
	deleted := make(chan string, 100)
	if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		deleted <- obj.(*corev1.ConfigMap).Name
	}}); err != nil {
		t.Fatal(err)
	}
	within(t, patience, "all objects", func() bool { return inf.LastSyncResourceVersion() == rv })
	pg.Stop("fast")
	restore := pg.Save()
	pg.Up()
	change(5)
	if rv, err = server.Delete("default/" + inf.GetStore().List()[0].(*corev1.ConfigMap).Name); err != nil {
		t.Fatal(err)
	}
	haveIt := func() bool { return inf.LastSyncResourceVersion() == rv && clientGo.LastSyncResourceVersion() == rv }
	within(t, patience, "what was changed", haveIt)
	before, beforeOfAnother, upstream := lists.n.Load(), listsOfAnother.n.Load(), len(server.Requests())
	pg.Stop("immediate")
	restore()
	pg.Up()
	rv = change(5)
	within(t, patience, "what was changed after the failover", haveIt)
	for _, s := range []cache.Store{inf.GetStore(), clientGo.GetStore()} {
		within(t, patience, "29 objects", func() bool { return len(s.ListKeys()) == 29 })
	}
	if n := lists.n.Load() - before; n != 0 {
		t.Errorf("the follower has listed %d times", n)
	}
	if n := listsOfAnother.n.Load() - beforeOfAnother; n != 0 || beforeOfAnother == 0 {
		t.Errorf("client-go's informer has listed %d times after the failover and %d before", n, beforeOfAnother)
	}
	for _, r := range server.Requests()[upstream:] {
		if r.Verb == "list" && r.Options.Limit == 0 || r.Options.SendInitialEvents != nil && *r.Options.SendInitialEvents {
			t.Errorf("the publisher has listed: %+v", r.Options)
		}
	}
	within(t, patience, "a deletion is told", func() bool { return len(deleted) > 0 })
	if n := len(deleted); n != 1 {
		t.Errorf("%d deletions were told, want 1", n)
	}
}

// TestBouncer has PgBouncer give each transaction another connection: two publishers, a
// follower and SQL have three for all. The publisher ends, and the PgBouncer is killed.
func TestBouncer(t *testing.T) {
	pg := pgtest.Start(t)
	bouncer := pg.Bouncer(t, 3)
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	objects := 0
	change := func() {
		t.Helper()
		for range 20 {
			objects++
			if _, err := server.Create(configMap(fmt.Sprint("c", objects), "first")); err != nil {
				t.Fatal(err)
			}
		}
	}
	change()
	c, err := postgres.NewCollection(server.Config(runtime.ContentTypeProtobuf), configMapScope)
	if err != nil {
		t.Fatal(err)
	}
	var stop []func()
	var db *postgres.DB
	for range 2 {
		db = open(t, bouncer.DSN(), postgres.DefaultSchema, postgres.Options{Listen: true, Poll: 50 * time.Millisecond})
		stop = append(stop, publish(t, db, postgres.PublishOptions{TTL: 2 * time.Second}, c))
		eventually(t, "the first one publishes", func() bool {
			status, err := db.Status(t.Context())
			return err == nil && len(status) == 1 && status[0].Complete
		})
	}
	lw, err := db.ListerWatcher(configMapScope, &corev1.ConfigMap{}, postgres.FollowOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lists := &listCounter{ListerWatcher: lw}
	inf := follow(t, lists, &corev1.ConfigMap{})
	if err := postgres.MigrateSQL(t.Context(), bouncer.DSN(), postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var projecting sync.WaitGroup
	projecting.Go(func() {
		if err := db.Project(ctx, postgres.ProjectOptions{Every: 50 * time.Millisecond, TTL: 2 * time.Second}); err != nil {
			t.Error(err)
		}
	})
	defer projecting.Wait()
	defer cancel()
	conn, err := pgx.Connect(t.Context(), pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	arrives := func(what string) {
		t.Helper()
		eventually(t, what+", at the follower", func() bool { return inf.LastSyncResourceVersion() == server.RV() })
		eventually(t, what+", its objects", func() bool { return len(inf.GetStore().ListKeys()) == objects })
		var there int
		eventually(t, what+", in SQL", func() bool {
			err := conn.QueryRow(t.Context(), "SELECT count(*) FROM kube.configmaps").Scan(&there)
			return err == nil && there == objects
		})
	}
	arrives("the first list")
	before := lists.n.Load()
	stop[0]()
	change()
	arrives("by the second publisher")
	bouncer.Kill()
	change()
	if _, err := server.Delete("default/c1"); err != nil {
		t.Fatal(err)
	}
	objects--
	bouncer.Up()
	arrives("after the PgBouncer was killed")
	if n := lists.n.Load() - before; n != 0 {
		t.Errorf("the follower has listed %d times more", n)
	}
}

// clientGoPage is the limit of a page of client-go's lists.
const clientGoPage = 500

// listCounter counts whole lists that were answered, without probes.
type listCounter struct {
	cache.ListerWatcher
	n atomic.Int64
}

func (l *listCounter) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := cache.ToListerWithContext(l.ListerWatcher).ListWithContext(ctx, opts)
	if err == nil && (opts.Limit == 0 || opts.Limit == clientGoPage) {
		l.n.Add(1)
	}
	return list, err
}

func (l *listCounter) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	w, err := cache.ToWatcherWithContext(l.ListerWatcher).WatchWithContext(ctx, opts)
	if err == nil && opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		l.n.Add(1)
	}
	return w, err
}
