package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// address is the address of a cluster. It is an http.RoundTripper, so that a Factory can
// be tested in a bubble.
type address struct {
	mu       sync.Mutex
	server   *fakeapi.Server
	uid      types.UID // of kube-system
	identity error     // the error instead of the UID; nil if there is none
}

func (a *address) set(server *fakeapi.Server, uid types.UID, identity error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server, a.uid, a.identity = server, uid, identity
}

// RoundTrip implements http.RoundTripper.
func (a *address) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	server, uid, identity := a.server, a.uid, a.identity
	a.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
		if identity != nil {
			return respond(nil, identity)
		}
		return respond(&corev1.Namespace{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
			ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid},
		}, nil)
	}
	query := r.URL.Query()
	opts := metav1.ListOptions{
		ResourceVersion: query.Get("resourceVersion"), Continue: query.Get("continue"),
		AllowWatchBookmarks: query.Get("allowWatchBookmarks") == "true",
	}
	opts.Limit, _ = strconv.ParseInt(query.Get("limit"), 10, 64)
	if query.Get("sendInitialEvents") == "true" {
		yes := true
		opts.SendInitialEvents, opts.ResourceVersionMatch = &yes, metav1.ResourceVersionMatch(query.Get("resourceVersionMatch"))
	}
	if query.Get("watch") == "" {
		return respond(server.ListWithContext(r.Context(), opts))
	}
	if seconds, err := strconv.ParseInt(query.Get("timeoutSeconds"), 10, 64); err == nil {
		opts.TimeoutSeconds = &seconds
	}
	w, err := server.WatchWithContext(r.Context(), opts)
	if err != nil {
		return respond(nil, err)
	}
	from, to := io.Pipe()
	go func() {
		defer w.Stop()
		for e := range w.ResultChan() {
			e.Object.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			if json.NewEncoder(to).Encode(map[string]any{"type": e.Type, "object": e.Object}) != nil {
				break
			}
		}
		_ = to.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: from, Request: r}, nil
}

func respond(obj runtime.Object, err error) (*http.Response, error) {
	code := http.StatusOK
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			return nil, err
		}
		s := status.Status()
		s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		obj, code = &s, int(s.Code)
	}
	if list, ok := obj.(*corev1.ConfigMapList); ok {
		list.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(b))),
	}, nil
}

// runFactory starts an informer of a Factory on the world's file. It logs to lines.
func (w *world) runFactory(a *address, opts informer.FactoryOptions, lines *[]string, early bool) *run {
	w.Helper()
	r := &run{w: w, done: make(chan struct{}), db: w.open()}
	cfg := &rest.Config{Host: "http://api.example", Transport: a}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		w.Fatal(err)
	}
	factory, err := informer.NewFactory(r.db, cfg, opts)
	if err != nil {
		w.Fatal(err)
	}
	if !early {
		if client, err = kubernetes.NewForConfig(cfg); err != nil {
			w.Fatal(err)
		}
	}
	r.runClient(factory, client, lines)
	return r
}

// runClient runs an informer of a Factory that lists with a client. It logs to lines.
func (r *run) runClient(factory *informer.Factory, client kubernetes.Interface, lines *[]string) {
	r.w.Helper()
	r.runListWatch(factory, withoutStreams{configMapsOf(client)}, lines)
}

// clientOf returns a Factory, and a client of the configuration that it has wrapped.
func clientOf(t testing.TB, backend store.Backend, cfg *rest.Config, opts informer.FactoryOptions) (*informer.Factory, kubernetes.Interface) {
	t.Helper()
	factory, err := informer.NewFactory(backend, cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return factory, client
}

func configMapsOf(client kubernetes.Interface) *cache.ListWatch {
	return cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", fields.Everything())
}

func (r *run) runListWatch(factory *informer.Factory, lw cache.ListerWatcher, lines *[]string) {
	w := r.w
	w.Helper()
	r.inf = factory.NewInformer(lw, &corev1.ConfigMap{}, 0, nil).(*informer.Informer)
	if err := r.inf.SetWatchErrorHandlerWithContext(r.hear); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), funcr.New(func(_, args string) {
		*lines = append(*lines, args)
	}, funcr.Options{})))
	r.stop = cancel
	go func() {
		defer close(r.done)
		r.inf.RunWithContext(ctx)
	}()
}

// withoutStreams is a client that lists in pages.
type withoutStreams struct{ *cache.ListWatch }

func (withoutStreams) IsWatchListSemanticsUnSupported() bool { return true }

func (w *world) wantStored(what, rv string, want ...string) {
	w.Helper()
	got, cp := w.stored(w.path)
	if diff := cmp.Diff(want, got); diff != "" || cp.RV != rv {
		w.Errorf("%s: stored at %q (%s), want %q (-want +got):\n%s", what, cp.RV, cp.Reason, rv, diff)
	}
}

// TestClusterReplaced checks a running informer when another cluster, with a longer
// history, answers at its address. The informer lists the new cluster, and stores none of
// its content as complete.
func TestClusterReplaced(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		for range 20 {
			other.Advance()
		}
		var lines []string
		r := w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync()
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(time.Minute)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 0 {
			t.Errorf("%q is shown of a cluster that answers no more", keys)
		}
		r.end()
		w.wantStored("of the first cluster while the second one answers", "")

		a.set(w.server, "one", nil)
		r = w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync()
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(time.Minute)
		a.set(w.server, "one", nil)
		other.CloseWatches()
		waitFor(time.Minute)
		w.put("b", "1")
		waitFor(5 * time.Second)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 2 {
			t.Errorf("%q is shown when the first cluster is back, want a and b", keys)
		}
		r.end()
		w.wantStored("when the first one is back", w.server.RV(), "a@2=1", "b@3=1")
	})
}

// TestClusterReplacedInMemory checks the same of a second informer of the scope, which is
// in memory.
func TestClusterReplacedInMemory(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		for i := range 5 {
			if _, err := other.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other" + strconv.Itoa(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		db := w.open()
		idle := store.Scope{Cluster: "kube-system/one", Resource: "others", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
		c, err := codec.For(&corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.Open(idle, store.Options{Codec: c})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(s.Apply(store.Batch{RV: "9"}), s.Flush(ctx), s.Close()); err != nil {
			t.Fatal(err)
		}
		factory, client := clientOf(t, db, &rest.Config{Host: "http://api.example", Transport: a}, informer.FactoryOptions{})
		lines := make([][]string, 2)
		first, r := &run{w: w, done: make(chan struct{}), db: db}, &run{w: w, done: make(chan struct{})}
		first.runClient(factory, client, &lines[0])
		first.sync()
		r.runListWatch(factory, configMapsOf(client), &lines[1])
		if r.sync().inf.Status().Persisted {
			t.Fatal("two informers hold one scope")
		}
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(time.Minute)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 5 || slices.Contains(keys, "default/a") {
			t.Errorf("%q is shown, want what the second cluster has", keys)
		}
		if err := r.inf.NotOlderThan(ctx, other.RV()); err != nil {
			t.Error(err)
		}
		// A rewind there says nothing of the scopes of the first cluster.
		if err := other.Rewind("3"); err != nil {
			t.Fatal(err)
		}
		other.CloseWatches()
		waitFor(10 * time.Minute)
		if lists := r.inf.Status().ListsByReason; lists["history was rewound"] != 1 {
			t.Errorf("it lists %v", lists)
		}
		if rewinds, err := db.Ledger(ctx, "rewinds"); len(rewinds) > 0 || err != nil {
			t.Errorf("scopes that are to be listed: %d, error %v", len(rewinds), err)
		}
		a.set(w.server, "one", nil)
		other.CloseWatches()
		waitFor(time.Minute)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 1 {
			t.Errorf("%q is shown when the first cluster is back, want a", keys)
		}
		w.put("b", "1")
		if err := r.inf.NotOlderThan(ctx, w.server.RV()); err != nil {
			t.Error(err)
		}
		r.end()
		first.end()
	})
}

// TestIdentityFails checks that informers start although the server does not identify its
// cluster. After a cold start, an informer runs in memory. After a warm start, it lists,
// and stores no resource version until the server identifies the cluster.
func TestIdentityFails(t *testing.T) {
	inBubble(t, func(w *world) {
		a, broken := &address{}, apierrors.NewInternalError(errOnPurpose)
		w.put("a", "1")
		var lines []string
		a.set(w.server, "", broken)
		r := w.runFactory(a, informer.FactoryOptions{}, &lines, false)
		waitFor(2 * time.Minute)
		if s := r.inf.Status(); !s.Synced || s.Persisted || !strings.Contains(s.Memory, errOnPurpose.Error()) {
			t.Errorf("cold: %+v", s)
		}
		if !contains(lines, "NOT PERSISTED") {
			t.Errorf("nobody is told: %q", lines)
		}
		r.end()

		a.set(w.server, "one", nil)
		w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync().end()
		w.wantStored("while it says so", "2", "a@2=1")
		w.put("b", "1")
		a.set(w.server, "", broken)
		r = w.runFactory(a, informer.FactoryOptions{}, &lines, false)
		waitFor(2 * time.Minute)
		if s := r.inf.Status(); !s.Synced || !s.Persisted || s.Objects != 2 || s.Checkpoint.RV != "" {
			t.Errorf("warm: %+v", s)
		}
		a.set(w.server, "one", nil)
		w.server.CloseWatches()
		waitFor(time.Minute)
		r.end()
		w.wantStored("when it says so again", "3", "a@2=1", "b@3=1")

		// Once the server has identified itself in this process, it is trusted.
		r = w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync()
		a.set(w.server, "", broken)
		since := len(w.server.Requests())
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		w.put("c", "1")
		waitFor(5 * time.Second)
		if lists := w.lists(since); len(lists) > 0 {
			t.Errorf("listed by %q", lists)
		}
		r.end()
		w.wantStored("after that", "4", "a@2=1", "b@3=1", "c@4=1")
	})
}

// TestNoTransport checks a client that was created before NewFactory, so that its scope
// cannot be found.
func TestNoTransport(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		r := w.runFactory(a, informer.FactoryOptions{}, &lines, true).sync()
		if s := r.inf.Status(); s.Persisted || !strings.Contains(s.Memory, "rest.Config") || !contains(lines, "NOT PERSISTED") {
			t.Errorf("%+v, logged %q", s, lines)
		}
		r.end()

		r = w.runFactory(a, informer.FactoryOptions{RequireTransport: true}, &lines, true)
		h, err := r.inf.AddEventHandler(&log{})
		if err != nil {
			t.Fatal(err)
		}
		waitFor(time.Hour)
		if r.inf.HasSynced() || r.inf.IsStopped() || !contains(lines, "does not run") || !strings.HasPrefix(r.inf.Status().Behind, "it does not run: ") {
			t.Errorf("it runs all the same; logged %q", lines)
		}
		r.end()
		synctest.Wait()
		if err := r.inf.RemoveEventHandler(h); err != nil || !r.inf.IsStopped() {
			t.Errorf("after its end: stopped %t, %v", r.inf.IsStopped(), err)
		}
	})
}

// TestContentOfAnotherCluster checks a process that starts after one that ended while
// another cluster answered at its address: the right cluster answers again, has
// identified itself before the scope was opened, and what is stored is noted as the
// other's. None of that may be shown.
func TestContentOfAnotherCluster(t *testing.T) {
	for name, policy := range map[string]informer.SyncPolicy{"CaughtUp": informer.CaughtUp, "Loaded": informer.Loaded} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
				a.set(w.server, "one", nil)
				w.put("a", "1")
				if _, err := other.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alien"}}); err != nil {
					t.Fatal(err)
				}
				var lines []string
				r := w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync()
				a.set(other, "two", nil)
				w.server.CloseWatches()
				waitFor(time.Minute)
				if keys := r.inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/alien"}) {
					t.Fatalf("%q is held while the other cluster answers", keys)
				}
				r.end()

				a.set(w.server, "one", nil)
				l := &log{}
				r = w.runFactory(a, informer.FactoryOptions{SyncWhen: policy}, &lines, false)
				if _, err := r.inf.AddEventHandler(l); err != nil {
					t.Fatal(err)
				}
				w.server.Hold() // a list takes its time
				<-time.After(10 * time.Second)
				told := l.take()
				if s := r.inf.Status(); contains(told, "alien") || len(r.inf.GetStore().ListKeys()) > 0 {
					t.Errorf("scope %q, synced %t, holds %q, told %q", s.Scope.Cluster, s.Synced, r.inf.GetStore().ListKeys(), told)
				}
				w.server.Release()
				r.sync()
				waitFor(time.Minute)
				if told := l.take(); len(told) != 1 || !strings.HasSuffix(told[0], " a@2=1") {
					t.Errorf("told %q after the list, want a", told)
				}
				r.end()
				w.wantStored("in the end", "2", "a@2=1")
			})
		})
	}
}

// TestContentOfAnotherClusterIsNoted checks that nothing of another cluster is stored
// before the file says that it is of another one, also if it said before that a list was
// due for another reason.
func TestContentOfAnotherClusterIsNoted(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		if _, err := other.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "alien"}}); err != nil {
			t.Fatal(err)
		}
		db := w.open()
		looks := 0
		backend := &pointed{db, func(s store.Store) {
			if _, alien, _ := s.Entry("default/alien"); !alien {
				return
			}
			if looks++; s.Checkpoint().Reason != "objects of another cluster were stored" {
				t.Errorf("an object of the other cluster is stored, and the checkpoint is %+v", s.Checkpoint())
			}
		}}
		cfg := &rest.Config{Host: "http://api.example", Transport: a}
		factory, client := clientOf(t, backend, cfg, informer.FactoryOptions{})
		var lines []string
		r := &run{w: w, done: make(chan struct{}), db: db}
		r.runClient(factory, client, &lines)
		r.sync()
		w.put("b", "1")
		if err := w.server.Compact(w.server.RV()); err != nil {
			t.Fatal(err)
		}
		w.server.FailWatch(apierrors.NewResourceExpired("on purpose"))
		w.server.FailList(nil, apierrors.NewInternalError(errOnPurpose))
		w.server.CloseWatches()
		for range 100 {
			waitFor(100 * time.Millisecond)
			if r.inf.Status().Checkpoint.RV == "" {
				break
			}
		}
		a.set(other, "two", nil)
		waitFor(time.Minute)
		if looks == 0 {
			t.Error("nothing of the other cluster was stored")
		}
		if err := r.inf.GetIndexer().Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "written"}}); err != nil {
			t.Error(err)
		}
		if cp := r.inf.Status().Checkpoint; cp.Reason != store.ForeignContent {
			t.Errorf("after a write of the program the checkpoint is %+v", cp)
		}
		r.end()
	})
}

// TestEndsBeforeListOfAnotherCluster checks a process that ends while it waits for the
// list of another cluster: what is stored is the right cluster's, and the next process
// tells what was deleted since.
func TestEndsBeforeListOfAnotherCluster(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		w.put("b", "1")
		var lines []string
		r := w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync()
		other.Hold() // its list takes its time, or is forbidden
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(time.Minute)
		r.end()
		other.Release()

		a.set(w.server, "one", nil)
		w.drop("b") // while the process is down
		l := &log{}
		r = w.runFactory(a, informer.FactoryOptions{}, &lines, false)
		if _, err := r.inf.AddEventHandler(l); err != nil {
			t.Fatal(err)
		}
		w.server.Hold() // a list takes its time
		waitFor(time.Minute)
		w.server.Release()
		r.sync()
		waitFor(time.Minute)
		told := l.take()
		if !contains(told, "b@") {
			t.Errorf("told %q, want that b was there and was deleted", told)
		}
		r.end()
		db, err := bolt.OpenReadOnly(w.path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		infos, err := db.Scopes()
		if err != nil || len(infos) != 1 {
			t.Fatal(len(infos), err)
		}
		opened, err := db.Open(infos[0].Scope, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		for e, err := range opened.(store.Reader).Follow(ctx, store.Place{}) {
			if err != nil {
				t.Log(err)
				break
			}
			if e.Key == "default/a" && e.New == nil {
				t.Errorf("the log has a deletion of a, which was never deleted")
			}
		}
	})
}
