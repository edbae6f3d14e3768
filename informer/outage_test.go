package informer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store/bolt"
)

// roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// runBehind is runFactory with transports below and above that of the Factory.
func (w *world) runBehind(below http.RoundTripper, above func(http.RoundTripper) http.RoundTripper, opts informer.FactoryOptions, lines *[]string) *run {
	w.Helper()
	r := &run{w: w, done: make(chan struct{}), db: w.open()}
	cfg := &rest.Config{Host: "http://api.example", Transport: below}
	factory, err := informer.NewFactory(r.db, cfg, opts)
	if err != nil {
		w.Fatal(err)
	}
	if above != nil {
		cfg.Wrap(above)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		w.Fatal(err)
	}
	r.runClient(factory, client, lines)
	return r
}

// refusingAll answers every request with a status while refused is set, like a load
// balancer without a backend (503) or an API server whose authentication webhook is down
// (401).
func refusingAll(next http.RoundTripper, code int, refused *atomic.Bool) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if !refused.Load() {
			return next.RoundTrip(r)
		}
		return &http.Response{
			StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"text/html"}},
			Body: io.NopCloser(strings.NewReader("no server is available")), Request: r,
		}, nil
	})
}

// TestOutageAtStart checks that a start during which every request is refused goes on
// from the stored resource version.
func TestOutageAtStart(t *testing.T) {
	for name, code := range map[string]int{"503": 503, "502": 502, "401": 401} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := &address{}
				a.set(w.server, "one", nil)
				for _, n := range []string{"a", "b", "c"} {
					w.put(n, strings.Repeat("x", 1<<20)) // no small collection
				}
				var lines []string
				var refused atomic.Bool
				w.runBehind(refusingAll(a, code, &refused), nil, informer.FactoryOptions{}, &lines).sync().end()
				since := len(w.server.Requests())
				refused.Store(true)
				r := w.runBehind(refusingAll(a, code, &refused), nil, informer.FactoryOptions{}, &lines)
				waitFor(2 * time.Minute)
				refused.Store(false)
				r.sync()
				waitFor(time.Minute)
				if lists := w.lists(since); len(lists) > 0 {
					t.Errorf("listed %d times, want the watch to go on from the stored RV; reasons %v", len(lists), r.inf.Status().Lists)
				}
				r.end()
			})
		})
	}
}

// TestOutageAtColdStart checks that such a start with an empty file is persisted.
func TestOutageAtColdStart(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		var refused atomic.Bool
		refused.Store(true)
		r := w.runBehind(refusingAll(a, 503, &refused), nil, informer.FactoryOptions{}, &lines)
		waitFor(2 * time.Minute)
		refused.Store(false)
		r.sync()
		waitFor(time.Minute)
		if s := r.inf.Status(); !s.Persisted {
			t.Errorf("it is held in memory until the process ends: %s", s.Memory)
		}
		r.end()
	})
}

// TestCredentialsLate checks that an informer is persisted although what gives its
// requests their credentials fails for some seconds, as an exec plugin does while a node
// starts.
func TestCredentialsLate(t *testing.T) {
	for name, opts := range map[string]informer.FactoryOptions{"": {}, "RequireTransport": {RequireTransport: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := &address{}
				a.set(w.server, "one", nil)
				w.put("a", "1")
				var lines []string
				var late atomic.Bool
				late.Store(true)
				above := func(next http.RoundTripper) http.RoundTripper {
					return roundTrip(func(r *http.Request) (*http.Response, error) {
						if late.Load() {
							return nil, errors.New("getting credentials: exec: exit status 1")
						}
						return next.RoundTrip(r)
					})
				}
				r := w.runBehind(a, above, opts, &lines)
				waitFor(5 * time.Second)
				late.Store(false)
				waitFor(10 * time.Minute)
				if s := r.inf.Status(); !s.Synced || !s.Persisted {
					t.Errorf("synced %t, persisted %t: %s", s.Synced, s.Persisted, s.Memory)
				}
				r.end()
			})
		})
	}
}

// TestClusterThereAndBack checks that the cluster which is remembered is the one that has
// answered last.
func TestClusterThereAndBack(t *testing.T) {
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
		a.set(w.server, "one", nil)
		other.CloseWatches()
		waitFor(time.Minute)
		r.end()
		w.wantStored("when the first one is back", w.server.RV(), "a@2=1")

		down := errors.New("connection refused")
		w.server.Down()
		a.set(w.server, "one", down)
		r = w.runFactory(a, informer.FactoryOptions{SyncWhen: informer.Loaded}, &lines, false)
		waitFor(time.Minute)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 1 {
			t.Errorf("%q is served while the server is down, want a", keys)
		}
		w.server.Up()
		a.set(w.server, "one", nil)
		waitFor(5 * time.Minute)
		if s := r.inf.Status(); s.Checkpoint.RV == "" {
			t.Errorf("it stores no resource version any more: %q", s.Checkpoint.Reason)
		}
		r.end()
	})
}

// forgetful is a database whose ledger cannot be written while full is set.
type forgetful struct {
	*bolt.DB
	full atomic.Bool
}

// SetLedger implements store.Ledger.
func (f *forgetful) SetLedger(ctx context.Context, name string, changes map[string][]byte) error {
	if f.full.Load() {
		return errOnPurpose
	}
	return f.DB.SetLedger(ctx, name, changes)
}

// wantServedWhileDown starts an informer beside a server that is down, and checks that it
// serves the one object that is stored.
func (w *world) wantServedWhileDown(a *address) {
	w.Helper()
	var lines []string
	w.server.Down()
	a.set(w.server, "one", errors.New("connection refused"))
	r := w.runFactory(a, informer.FactoryOptions{SyncWhen: informer.Loaded}, &lines, false)
	waitFor(time.Minute)
	if keys := r.inf.GetStore().ListKeys(); len(keys) != 1 {
		w.Errorf("%q is served while the server is down, want a", keys)
	}
	r.end()
}

// TestClusterRememberedLate checks that the cluster is remembered although its identity
// could not be written when it was first asked for.
func TestClusterRememberedLate(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		db := &forgetful{DB: w.open()}
		db.full.Store(true)
		cfg := &rest.Config{Host: "http://api.example", Transport: a}
		factory, client := clientOf(t, db, cfg, informer.FactoryOptions{})
		var lines []string
		r := &run{w: w, done: make(chan struct{}), db: db.DB}
		r.runClient(factory, client, &lines)
		r.sync()
		waitFor(time.Minute)
		db.full.Store(false)
		w.server.CloseWatches()
		waitFor(time.Minute)
		r.end()

		w.wantServedWhileDown(a)
	})
}

// TestClusterRememberedAfterWipe checks that the cluster is remembered again after the
// file was wiped under a running informer.
func TestClusterRememberedAfterWipe(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		r := w.runFactory(a, informer.FactoryOptions{}, &lines, false).sync()
		if _, err := r.db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		waitFor(time.Minute)
		r.end()
		w.wantServedWhileDown(a)
	})
}

// TestForbiddenForSeconds checks that an API server which refuses every request until it
// has read its roles is no other cluster.
func TestForbiddenForSeconds(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		for _, n := range []string{"a", "b", "c"} {
			w.put(n, strings.Repeat("x", 1<<20))
		}
		var lines []string
		var refused atomic.Bool
		r := w.runBehind(refusingAll(a, 403, &refused), nil, informer.FactoryOptions{}, &lines).sync()
		since := len(w.server.Requests())
		refused.Store(true)
		w.server.CloseWatches()
		waitFor(5 * time.Second)
		refused.Store(false)
		waitFor(5 * time.Minute)
		if lists := w.lists(since); len(lists) > 0 {
			t.Errorf("listed %d times, want the watch to go on: %v", len(lists), r.inf.Status().Lists)
		}
		r.end()
	})
}

// TestNamespaceForbiddenOnce checks the same if only the identity is refused.
func TestNamespaceForbiddenOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		var refused atomic.Bool
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "configmaps") {
				return a.RoundTrip(r)
			}
			return refusingAll(a, 403, &refused).RoundTrip(r)
		})
		r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines).sync()
		since := len(w.server.Requests())
		refused.Store(true)
		w.server.CloseWatches()
		waitFor(5 * time.Second)
		refused.Store(false)
		waitFor(time.Minute)
		for range 10 {
			w.put("a", "2")
			waitFor(time.Minute)
		}
		if s := r.inf.Status(); s.Checkpoint.RV == "" || len(w.lists(since)) > 0 {
			t.Errorf("listed %d times, and ten minutes later the stored RV is %q: %s", len(w.lists(since)), s.Checkpoint.RV, s.Checkpoint.Reason)
		}
		r.end()
	})
}

// fails500 answers every request with the status that an API server gives while its etcd
// is away.
func fails500(next http.RoundTripper, fails *atomic.Bool) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if !fails.Load() {
			return next.RoundTrip(r)
		}
		return &http.Response{
			StatusCode: 500, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"etcdserver: request timed out","code":500}`)),
		}, nil
	})
}

// TestEtcdAwayAtStart is TestOutageAtStart for an API server whose etcd is away: it
// answers every request with 500. Nothing but waiting helps, and the watch then goes on.
func TestEtcdAwayAtStart(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		for _, n := range []string{"a", "b", "c"} {
			w.put(n, strings.Repeat("x", 1<<20)) // no small collection
		}
		var lines []string
		var fails atomic.Bool
		w.runBehind(fails500(a, &fails), nil, informer.FactoryOptions{}, &lines).sync().end()
		since := len(w.server.Requests())
		fails.Store(true)
		r := w.runBehind(fails500(a, &fails), nil, informer.FactoryOptions{}, &lines)
		waitFor(2 * time.Minute)
		fails.Store(false)
		r.sync()
		waitFor(time.Minute)
		if lists := w.lists(since); len(lists) > 0 {
			t.Errorf("listed %d times, want the watch to go on from the stored RV: %q", len(lists), r.inf.Status().StartReason)
		}
		r.end()
	})
}

// TestEtcdAwayAtColdStart is TestOutageAtColdStart for the same server.
func TestEtcdAwayAtColdStart(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		var fails atomic.Bool
		fails.Store(true)
		r := w.runBehind(fails500(a, &fails), nil, informer.FactoryOptions{}, &lines)
		waitFor(2 * time.Minute)
		fails.Store(false)
		r.sync()
		waitFor(time.Minute)
		if s := r.inf.Status(); !s.Persisted {
			t.Errorf("not persisted for the life of the process: %s", s.Memory)
		}
		r.end()
	})
}

// TestEtcdAwayWhileRunning checks the same server under a running informer.
func TestEtcdAwayWhileRunning(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		for _, n := range []string{"a", "b", "c"} {
			w.put(n, strings.Repeat("x", 1<<20))
		}
		var lines []string
		var fails atomic.Bool
		r := w.runBehind(fails500(a, &fails), nil, informer.FactoryOptions{}, &lines).sync()
		waitFor(10 * time.Second)
		since := len(w.server.Requests())
		fails.Store(true)
		w.server.CloseWatches()
		waitFor(10 * time.Minute)
		fails.Store(false)
		rv := w.put("d", "1")
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Minute)
		defer cancel()
		if err := r.inf.NotOlderThan(ctx, rv); err != nil {
			t.Error(err)
		}
		if lists := w.lists(since); len(lists) > 0 {
			t.Errorf("listed %d times: %q", len(lists), lists)
		}
		r.end()
	})
}

// TestIdentityRefusedAtFirst checks a warm start beside an API server that has just
// started, too, and refuses for some seconds what identified it before (its authorizer
// knows no bindings yet): the informer goes on from what is stored, and so does the next
// process.
func TestIdentityRefusedAtFirst(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		for _, n := range []string{"a", "b", "c"} {
			w.put(n, strings.Repeat("x", 1<<20)) // no small collection
		}
		var lines []string
		var refused atomic.Bool
		identity := refusingAll(a, http.StatusForbidden, &refused)
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				return a.RoundTrip(r)
			}
			return identity.RoundTrip(r)
		})
		w.runBehind(below, nil, informer.FactoryOptions{}, &lines).sync().end()

		since := len(w.server.Requests())
		refused.Store(true)
		r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
		waitFor(2 * time.Second)
		refused.Store(false)
		waitFor(5 * time.Minute)
		s := r.inf.Status()
		if lists := w.lists(since); len(lists) > 0 || s.Scope.Cluster != "kube-system/one" {
			t.Errorf("cluster %q, start %q: %d lists, want the watch to go on from the stored RV", s.Scope.Cluster, s.Start, len(lists))
		}
		// The watch ends later, as it does every few minutes.
		since = len(w.server.Requests())
		w.server.CloseWatches()
		waitFor(30 * time.Minute)
		w.put("d", "1")
		waitFor(5 * time.Minute)
		if s := r.inf.Status(); len(w.lists(since)) > 0 || s.Checkpoint.RV != w.server.RV() {
			t.Errorf("later: %d lists, stored RV %q, want %s", len(w.lists(since)), s.Checkpoint.RV, w.server.RV())
		}
		r.end()

		w.server.Down()
		r = w.runBehind(below, nil, informer.FactoryOptions{SyncWhen: informer.Loaded}, &lines)
		waitFor(time.Minute)
		if s := r.inf.Status(); s.Scope.Cluster != "kube-system/one" {
			t.Errorf("while the server is down, what is stored of %q is served", s.Scope.Cluster)
		}
		w.server.Up()
		waitFor(5 * time.Minute)
		r.end()
	})
}

// TestIdentityOfOtherRights checks that a user who may not read kube-system any more is
// known by the host from the second process on, and one who may again from the first one.
func TestIdentityOfOtherRights(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		var refused atomic.Bool
		identity := refusingAll(a, http.StatusForbidden, &refused)
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				return a.RoundTrip(r)
			}
			return identity.RoundTrip(r)
		})
		for i, c := range []struct {
			refused bool
			cluster string
			stores  bool
		}{
			{refused: false, cluster: "kube-system/one", stores: true},
			{refused: true, cluster: "kube-system/one", stores: false},
			{refused: true, cluster: "host/", stores: true},
			{refused: false, cluster: "kube-system/one", stores: true},
		} {
			refused.Store(c.refused)
			r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
			waitFor(5 * time.Minute)
			s := r.inf.Status()
			if !s.Synced || !strings.HasPrefix(s.Scope.Cluster, c.cluster) || (s.Checkpoint.RV != "") != c.stores {
				t.Errorf("process %d: synced %t, cluster %q, stored RV %q", i, s.Synced, s.Scope.Cluster, s.Checkpoint.RV)
			}
			r.end()
		}
	})
}
