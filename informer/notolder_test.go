package informer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
)

// isAt waits up to d for a resource version, and checks the error.
func (w *world) isAt(inf *informer.Informer, rv string, d time.Duration, want error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), d)
	defer cancel()
	if err := listerOf(w, inf).NotOlderThan(ctx, rv); !errors.Is(err, want) {
		w.Errorf("not older than %s: %v, want %v", rv, err, want)
	}
}

// TestNotOlderThan checks that a read can wait for a resource version: of a list, an
// event or a bookmark, on a running informer and on one that starts.
func TestNotOlderThan(t *testing.T) {
	inBubble(t, func(w *world) {
		old := w.put("a", "1")
		var before chan error
		r := w.run(informer.Options{}, func(inf *informer.Informer) {
			before = make(chan error, 1)
			go func() { before <- inf.NotOlderThan(w.Context(), old) }()
			synctest.Wait()
			select {
			case err := <-before:
				t.Errorf("before Run: %v", err)
			default:
			}
			w.isAt(inf, old, time.Second, context.DeadlineExceeded)
		}).sync()
		if err := <-before; err != nil {
			t.Errorf("from before Run on: %v", err)
		}
		w.isAt(r.inf, old, time.Second, nil)
		for range 5 {
			rv := w.put("a", "2")
			w.isAt(r.inf, rv, time.Second, nil)
			if got, err := listerOf(w, r.inf).Get("default", "a"); err != nil || got.ResourceVersion != rv {
				t.Errorf("got %s %v, want %s", got.ResourceVersion, err, rv)
			}
		}
		w.server.Advance() // by another resource
		w.isAt(r.inf, w.server.RV(), 2*time.Minute, nil)
		for _, rv := range []string{"", "0", "-1", "x", "01", "1.5"} {
			if err := r.inf.NotOlderThan(w.Context(), rv); err == nil || errors.Is(err, context.Canceled) {
				t.Errorf("resource version %q: %v", rv, err)
			}
		}
		w.isAt(r.inf, "99999", time.Hour, context.DeadlineExceeded)
		w.server.Down()
		w.server.CloseWatches()
		rv := w.put("b", "1")
		w.isAt(r.inf, rv, time.Second, context.DeadlineExceeded)
		w.server.Up()
		w.isAt(r.inf, rv, 5*time.Minute, nil)
		ended := make(chan error, 1)
		go func() { ended <- r.inf.NotOlderThan(w.Context(), "99999") }()
		synctest.Wait()
		r.end()
		if err := <-ended; !errors.Is(err, informer.ErrStopped) {
			t.Errorf("an informer that ends: %v", err)
		}
		w.isAt(r.inf, rv, time.Second, nil)
		w.isAt(r.inf, "99999", time.Second, informer.ErrStopped)

		w.put("c", "1")
		w.server.Down() // a warm start is at what is stored
		r = w.run(informer.Options{})
		w.isAt(r.inf, rv, time.Second, nil)
		w.isAt(r.inf, w.server.RV(), time.Second, context.DeadlineExceeded)
		w.server.Up()
		w.isAt(r.inf, w.server.RV(), 5*time.Minute, nil)
		r.end()
	})
}

// TestNotOlderThanFrozen checks that an object that cannot be stored does not keep others
// from being read.
func TestNotOlderThanFrozen(t *testing.T) {
	inBubble(t, func(w *world) {
		r := w.run(informer.Options{Indexers: cache.Indexers{"x": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Data["v"] == "bad" {
				return nil, errors.New("no index")
			}
			return nil, nil
		}}}).sync()
		w.put("bad", "bad")
		rv := w.put("a", "1")
		w.isAt(r.inf, rv, time.Second, nil)
		if _, err := listerOf(w, r.inf).Get("default", "a"); err != nil {
			t.Error(err)
		}
		if cp := r.inf.Reader().Checkpoint(); cp.RV == rv {
			t.Error("the stored resource version is not frozen")
		}
		r.end()
	})
}

// TestNotOlderThanLost checks that what was reached says nothing after a loss, and after
// the server has gone back to an earlier state.
func TestNotOlderThanLost(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		r := w.run(informer.Options{}).sync()
		waitFor(2 * time.Second)
		w.isAt(r.inf, "2", time.Second, nil)
		w.server.Hold()
		if _, err := r.db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.isAt(r.inf, "2", time.Second, context.DeadlineExceeded)
		w.server.Release()
		w.isAt(r.inf, "2", 5*time.Minute, nil)
		if _, err := listerOf(w, r.inf).Get("default", "a"); err != nil {
			t.Error(err)
		}
		w.put("a", "2")       // 3
		rv := w.put("a", "3") // 4
		w.isAt(r.inf, rv, time.Second, nil)
		waitFor(2 * time.Second)
		if err := w.server.Rewind("3"); err != nil {
			t.Fatal(err)
		}
		w.server.CloseWatches()
		waitFor(5 * time.Minute)
		w.isAt(r.inf, rv, time.Second, context.DeadlineExceeded)
		w.isAt(r.inf, "3", time.Second, nil)
		r.end()
	})
}

// TestNotOlderThanCalledBack checks that what the informer waits for cannot wait for the
// informer, and that a handler can.
func TestNotOlderThanCalledBack(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		var inf *informer.Informer
		var called, handled error
		r := w.run(informer.Options{Indexers: cache.Indexers{"x": func(any) ([]string, error) {
			called = inf.NotOlderThan(w.Context(), "99999")
			return nil, nil
		}}}, func(i *informer.Informer) {
			inf = i
			_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
				handled = inf.NotOlderThan(w.Context(), obj.(*corev1.ConfigMap).ResourceVersion)
			}})
			if err != nil {
				t.Error(err)
			}
		}).sync()
		if called == nil || handled != nil {
			t.Errorf("an index function: %v, a handler: %v", called, handled)
		}
		r.end()
	})
}

// TestEndpointNotOlderThan checks the parameter notOlderThan of every request that has
// it.
func TestEndpointNotOlderThan(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1") // 2
		r := w.run(informer.Options{Indexers: cache.Indexers{"namespace": cache.MetaNamespaceIndexFunc}}).sync()
		h := handlerOf(r.inf)
		paths := []string{
			"/v1/objects?", "/v1/objects?key=default/a", "/v1/objects?index=namespace&value=default", "/v1/index?name=namespace",
			"/v1/keys?", "/v1/records?key=default/a", "/v1/headers?key=default/a",
		}
		for _, path := range paths {
			rv := w.put("a", "2")
			for asked, want := range map[string]int{rv: http.StatusOK, "99999": http.StatusGatewayTimeout, "": http.StatusBadRequest, "0": http.StatusBadRequest} {
				begin := time.Now()
				status, lines := get(h, path+"&notOlderThan="+asked)
				if took := time.Since(begin); status != want || took > 6*time.Second {
					t.Errorf("%s for %q: %d %s after %s, want %d", path, asked, status, lines, took, want)
				}
			}
		}
		rv := w.put("a", "3")
		if _, lines := get(h, "/v1/objects?notOlderThan="+rv); !contains(lines, `"resourceVersion":"`+rv+`"`) {
			t.Errorf("asked for %s: %s", rv, lines)
		}
		r.end()
		if status, lines := get(h, "/v1/objects?notOlderThan=99999"); status != http.StatusServiceUnavailable {
			t.Errorf("after the end: %d %s", status, lines)
		}
	})
}

// slowLists sends requests on. While slow is set, lists take a minute to begin.
func slowLists(to http.RoundTripper, slow *atomic.Bool) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		q := r.URL.Query()
		if slow.Load() && strings.HasSuffix(r.URL.Path, "/configmaps") && q.Get("watch") == "" && q.Get("continue") == "" {
			waitFor(time.Minute)
		}
		return to.RoundTrip(r)
	})
}

// TestNotOlderThanAfterAnotherCluster checks that what another cluster said counts for
// nothing once the right one is back.
func TestNotOlderThanAfterAnotherCluster(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		for range 100 {
			other.Advance()
		}
		var lines []string
		var slow atomic.Bool
		r := w.runBehind(slowLists(a, &slow), nil, informer.FactoryOptions{}, &lines).sync()
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		rv := w.put("new", "1")
		a.set(w.server, "one", nil)
		slow.Store(true)
		other.CloseWatches()
		for range 10 {
			waitFor(5 * time.Second)
			ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
			err := r.inf.NotOlderThan(ctx, rv)
			cancel()
			if _, there, _ := r.inf.GetStore().GetByKey("default/new"); err == nil && !there {
				t.Fatalf("not older than %s, and its object is missing", rv)
			}
		}
		r.end()
		waitFor(time.Minute) // for requests that are still slow
	})
}

// TestNotOlderThanQueued is TestNotOlderThanAfterAnotherCluster with an event of the
// other cluster that is still in the queue when the right one is back.
func TestNotOlderThanQueued(t *testing.T) {
	inBubble(t, func(w *world) {
		a, other := &address{}, fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		a.set(w.server, "one", nil)
		w.put("a", "1")
		for range 100 {
			other.Advance()
		}
		var lines []string
		var slow atomic.Bool
		r := w.runBehind(slowLists(a, &slow), nil, informer.FactoryOptions{}, &lines).sync()
		gate := make(chan struct{})
		if err := r.inf.AddIndexers(cache.Indexers{"slow": func(obj any) ([]string, error) {
			if obj.(*corev1.ConfigMap).Name == "slow" {
				<-gate
			}
			return nil, nil
		}}); err != nil {
			t.Fatal(err)
		}
		a.set(other, "two", nil)
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		if _, err := other.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "slow"}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is in the queue
		rv := w.put("new", "1")
		a.set(w.server, "one", nil)
		slow.Store(true)
		other.CloseWatches()
		waitFor(10 * time.Second)
		close(gate)
		for range 10 {
			waitFor(5 * time.Second)
			ctx, cancel := context.WithTimeout(w.Context(), time.Millisecond)
			err := r.inf.NotOlderThan(ctx, rv)
			cancel()
			if _, there, _ := r.inf.GetStore().GetByKey("default/new"); err == nil && !there {
				t.Errorf("not older than %s, and its object is missing", rv)
				break
			}
		}
		r.end()
		waitFor(time.Minute) // for requests that are still slow
	})
}

// TestErrorHandlerWaitsAtStart checks that a watch error handler that is called while the
// informer waits for its scope gets an error from NotOlderThan, like one that is called
// later, instead of keeping the informer from starting.
func TestErrorHandlerWaitsAtStart(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		rv := w.put("a", "1")
		var fails atomic.Bool
		fails.Store(true)
		cfg := &rest.Config{Host: "http://api.example", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if fails.Load() && strings.HasSuffix(r.URL.Path, "/kube-system") {
				return nil, errOnPurpose
			}
			return a.RoundTrip(r)
		})}
		db := w.open()
		factory, client := clientOf(t, db, cfg, informer.FactoryOptions{})
		lw := configMapsOf(client)
		inf := factory.NewInformer(withoutStreams{lw}, &corev1.ConfigMap{}, 0, nil).(*informer.Informer)
		ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{}))
		var waited error
		if err := inf.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, _ error) {
			waited = inf.NotOlderThan(ctx, rv)
		}); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		waitFor(2 * time.Second)
		fails.Store(false)
		waitFor(10 * time.Minute)
		if !inf.HasSynced() || waited == nil {
			t.Errorf("ten minutes after the server is back: synced %t, the handler got %v; %s", inf.HasSynced(), waited, inf.Status().Behind)
		}
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestIndexFunctionWaitsAtStart is TestNotOlderThanCalledBack for index functions whose
// entries a warm start rebuilds.
func TestIndexFunctionWaitsAtStart(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 100 {
			w.put(fmt.Sprintf("o-%02d", i), "1")
		}
		w.run(informer.Options{}).sync().end()
		ctx, cancel := context.WithTimeout(w.Context(), time.Hour)
		defer cancel()
		var inf *informer.Informer
		var called atomic.Pointer[error]
		r := w.run(informer.Options{Indexers: cache.Indexers{"x": func(any) ([]string, error) {
			err := inf.NotOlderThan(ctx, "99999")
			called.Store(&err)
			return nil, nil
		}}}, func(i *informer.Informer) { inf = i })
		waitFor(time.Minute)
		if !r.inf.HasSynced() {
			t.Errorf("a minute after the start: not synced, %s", r.inf.Status().Behind)
		}
		r.sync()
		if *called.Load() == nil {
			t.Error("NotOlderThan returned no error")
		}
		r.end()
	})
}
