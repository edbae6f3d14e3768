package informer_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// notFound returns what client-go makes of a 404 for a resource whose body is text.
func notFound(body string) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", schema.GroupResource{Resource: "configmaps"}, "", body, 0, true)
}

// refusal makes the requests of the world's informers fail with the error that f returns,
// and closes all watches when f begins to return one.
type refusal struct {
	w *world
	f atomic.Pointer[func() error]
}

func (w *world) refusal() *refusal {
	f := &refusal{w: w}
	w.lw = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if err := f.err(); err != nil {
				return nil, err
			}
			return w.server.ListWithContext(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if err := f.err(); err != nil {
				return nil, err
			}
			return w.server.WatchWithContext(ctx, opts)
		},
	}
	return f
}

func (f *refusal) err() error {
	if fails := f.f.Load(); fails != nil {
		return (*fails)()
	}
	return nil
}

func (f *refusal) with(fails func() error) {
	f.f.Store(&fails)
	f.w.server.CloseWatches()
}

// TestNoResource checks that a resource which the server does not serve any more is an
// empty collection after some minutes, and comes back as one with other objects.
func TestNoResource(t *testing.T) {
	gone := func() error { return notFound("404 page not found") }
	asStatus := func() error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "could not find it"}}
	}
	initial, deleted := []string{"initial a@2=1", "initial b@3=1"}, []string{"delete tombstone a@2=1", "delete tombstone b@3=1"}
	for name, c := range map[string]struct {
		opts    informer.Options
		fails   func() error
		running bool // when the resource is deleted
	}{
		"while the process was down":                     {fails: gone},
		"while the process was down, with a status":      {fails: asStatus},
		"while the process was down, synced when loaded": {fails: gone, opts: informer.Options{SyncWhen: informer.Loaded}},
		"of a running informer":                          {fails: gone, running: true},
		"of a running informer, in memory":               {fails: gone, running: true, opts: informer.Options{Backend: mem.New()}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				f := w.refusal()
				w.put("a", "1")
				w.put("b", "1")
				l := &log{}
				var r *run
				if c.running {
					r = w.run(c.opts, handle(w, l)).sync()
					f.with(c.fails)
				} else {
					w.run(c.opts).sync().end()
					f.with(c.fails)
					r = w.run(c.opts, handle(w, l))
				}
				waitFor(4 * time.Minute)
				w.wantUnordered("after 4 minutes", l, initial)
				waitFor(4 * time.Minute)
				w.wantUnordered("after 8 minutes", l, deleted)
				if keys := r.inf.GetStore().ListKeys(); len(keys) > 0 {
					t.Errorf("%q is held of a resource that is gone", keys)
				}
				if s, synced := r.inf.Status(), c.running || c.opts.SyncWhen == informer.Loaded; s.Synced != synced || !strings.Contains(s.LastError, "could not find") {
					t.Errorf("synced %t, want %t; last error %q", s.Synced, synced, s.LastError)
				}
				waitFor(time.Hour)
				if !c.running {
					r.end()
					r = w.run(informer.Options{}, handle(w, l))
					waitFor(time.Hour)
					var want []string
					if c.opts.SyncWhen != informer.Loaded { // no handler has synced
						want = slices.Concat(initial, deleted)
					}
					w.wantUnordered("in the next process", l, want)
				}
				w.drop("a")
				w.drop("b")
				w.put("c", "1")
				f.with(func() error { return nil })
				waitFor(2 * time.Minute)
				if told := l.take(); len(told) != 1 || !strings.HasSuffix(told[0], " c@6=1") {
					t.Errorf("told %q, want c", told)
				}
				r.sync()
				w.sameAsServer(r.inf.GetStore().List())
				r.end()
				if c.opts.Backend == nil {
					w.wantStored("in the end", "6", "c@6=1")
				}
			})
		})
	}
}

// TestNoResourceAndBack checks that what there is of a resource that was gone is listed
// by the next process, whether it comes back before that begins or soon after.
func TestNoResourceAndBack(t *testing.T) {
	for name, away := range map[string]time.Duration{"before the start": 0, "soon after": time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				f := w.refusal()
				w.put("a", "1")
				r := w.run(informer.Options{}).sync()
				f.with(func() error { return notFound("404 page not found") })
				waitFor(10 * time.Minute)
				if keys := r.inf.GetStore().ListKeys(); len(keys) > 0 {
					t.Errorf("%q is held of a resource that is gone", keys)
				}
				r.end()
				w.put("b", "1")
				l := &log{}
				if away == 0 {
					f.with(func() error { return nil })
				}
				r = w.run(informer.Options{}, handle(w, l))
				waitFor(away)
				f.with(func() error { return nil })
				r.sync()
				w.wantUnordered("after the resource came back", l, []string{"initial a@2=1", "initial b@3=1"})
				w.sameAsServer(r.inf.GetStore().List())
				r.end()
				w.wantStored("in the end", "3", "a@2=1", "b@3=1")
			})
		})
	}
}

// TestNoResourceAfterOtherTransform checks that what is stored, and cannot be used, is
// told as deleted where the resource is gone.
func TestNoResourceAfterOtherTransform(t *testing.T) {
	inBubble(t, func(w *world) {
		f := w.refusal()
		w.put("a", "1")
		same := func(inf *informer.Informer) { _ = inf.SetTransform(func(obj any) (any, error) { return obj, nil }) }
		w.run(informer.Options{TransformVersion: "1"}, same).sync().end()
		f.with(func() error { return notFound("404 page not found") })
		l := &log{}
		r := w.run(informer.Options{TransformVersion: "2"}, same, handle(w, l))
		waitFor(10 * time.Minute)
		if told := l.take(); !slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, "delete ") }) {
			t.Errorf("told %q, want that a is deleted", told)
		}
		r.end()
	})
}

// TestNoResourceOfBuiltInGroup checks that the objects of an API of Kubernetes itself are
// not told as deleted when the server does not serve it any more: it may be switched on
// again, and they may be served in another group. A custom resource is deleted with its
// definition, also if the program has registered its types with client-go's scheme.
func TestNoResourceOfBuiltInGroup(t *testing.T) {
	registered := schema.GroupVersion{Group: "registered.example.com", Version: "v1"}
	metav1.AddToGroupVersion(scheme.Scheme, registered)
	const mayExist = "its objects may still exist"
	for resource, c := range map[string]struct {
		kind schema.GroupVersionKind
		want []string
	}{
		"ingresses.extensions": {kind: schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Ingress"}},
		"mutatingadmissionpolicies.admissionregistration.k8s.io": {
			kind: schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1beta1", Kind: "MutatingAdmissionPolicy"},
		},
		"widgets.example.com": {
			kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
			want: []string{"delete tombstone a@2=1"},
		},
		"widgets.registered.example.com": {kind: registered.WithKind("Widget"), want: []string{"delete tombstone a@2=1"}},
	} {
		t.Run(resource, func(t *testing.T) {
			inBubble(t, func(w *world) {
				f := w.refusal()
				w.put("a", "1")
				l := &log{}
				opts := informer.Options{Scope: store.Scope{Resource: resource, Kind: c.kind}}
				f.with(func() error { return notFound("404 page not found") })
				r := w.run(opts)
				waitFor(20 * time.Minute)
				if s := r.inf.Status(); strings.Contains(s.LastError, mayExist) {
					t.Errorf("last error %q, and there are no objects", s.LastError)
				}
				f.with(func() error { return nil })
				r.sync().end()
				f.with(func() error { return notFound("404 page not found") })
				r = w.run(opts, handle(w, l))
				waitFor(20 * time.Minute)
				w.wantUnordered("without the API", l, append([]string{"initial a@2=1"}, c.want...))
				if s := r.inf.Status(); len(c.want) == 0 && !strings.Contains(s.LastError, mayExist) {
					t.Errorf("last error %q", s.LastError)
				}
				w.put("b", "1")
				f.with(func() error { return nil })
				r.sync()
				if told := l.take(); len(c.want) == 0 && (len(told) != 1 || !strings.HasSuffix(told[0], " b@3=1")) {
					t.Errorf("told %q with the API again, want b", told)
				}
				w.sameAsServer(r.inf.GetStore().List())
				r.end()
			})
		})
	}
}

// TestNoResourceForAWhile checks answers after which nothing may be taken for deleted.
func TestNoResourceForAWhile(t *testing.T) {
	n := 0
	for name, c := range map[string]struct {
		fails func() error
		lasts time.Duration
	}{
		"while a definition is replaced": {func() error { return notFound("404 page not found") }, 4 * time.Minute},
		"of a proxy":                     {func() error { return notFound("<html>404 Not Found</html>") }, time.Hour},
		"beside other errors": {func() error {
			if n++; n%4 == 0 {
				return apierrors.NewServiceUnavailable("starting")
			}
			return notFound("404 page not found")
		}, time.Hour},
		"of an object": {func() error { return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, "a") }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				f := w.refusal()
				w.put("a", "1")
				l := &log{}
				r := w.run(informer.Options{}, handle(w, l)).sync()
				f.with(c.fails)
				waitFor(c.lasts)
				f.with(func() error { return nil })
				waitFor(2 * time.Minute)
				w.want(l, "initial a@2=1")
				r.end()
			})
		})
	}
}

// TestNoResourceCold checks that a resource which has never been served is not synced,
// and is when it comes.
func TestNoResourceCold(t *testing.T) {
	inBubble(t, func(w *world) {
		f := w.refusal()
		f.with(func() error { return notFound("404 page not found") })
		l := &log{}
		for range 2 {
			r := w.run(informer.Options{}, handle(w, l))
			waitFor(time.Hour)
			if s := r.inf.Status(); s.Synced || s.CaughtUp || s.Lists > 0 {
				t.Errorf("synced %t, caught up %t after %d lists", s.Synced, s.CaughtUp, s.Lists)
			}
			r.end()
		}
		w.put("a", "1")
		r := w.run(informer.Options{}, handle(w, l))
		waitFor(10 * time.Minute)
		f.with(func() error { return nil })
		r.sync()
		w.want(l, "initial a@2=1")
		r.end()
		w.wantStored("in the end", "2", "a@2=1")
	})
}

// wantUnordered is want in any order.
func (w *world) wantUnordered(what string, l *log, want []string) {
	w.Helper()
	less := func(a, b string) bool { return a < b }
	if diff := cmp.Diff(want, l.take(), cmpopts.SortSlices(less)); diff != "" {
		w.Errorf("%s the handler was told (-want +got):\n%s", what, diff)
	}
}

// TestNoResourceAfterWipe checks that the deletions are told although the stored objects
// were wiped meanwhile.
func TestNoResourceAfterWipe(t *testing.T) {
	inBubble(t, func(w *world) {
		f := w.refusal()
		w.put("a", "1")
		l := &log{}
		r := w.run(informer.Options{}, handle(w, l)).sync()
		w.want(l, "initial a@2=1")
		f.with(func() error { return notFound("404 page not found") })
		waitFor(time.Minute)
		if _, err := r.db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		waitFor(10 * time.Minute)
		if told := l.take(); len(told) != 1 || !strings.HasPrefix(told[0], "delete ") {
			t.Errorf("told %q, want that a is deleted", told)
		}
		w.drop("a")
		w.put("b", "1")
		f.with(func() error { return nil })
		waitFor(2 * time.Minute)
		w.want(l, "add b@4=1")
		r.end()
		w.wantStored("in the end", "4", "b@4=1")
	})
}

// noAPIServer answers like a proxy of Go without a backend.
func noAPIServer(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		Body: io.NopCloser(strings.NewReader("404 page not found\n")), Request: r,
	}
}

// TestNoAPIServer checks that nothing is told as deleted where whatever answers at the
// address is no API server, for which every path is a 404.
func TestNoAPIServer(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var lines []string
		var gone atomic.Bool
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			if !gone.Load() {
				return a.RoundTrip(r)
			}
			return noAPIServer(r), nil
		})
		r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines).sync()
		gone.Store(true)
		w.server.CloseWatches()
		waitFor(10 * time.Minute)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 1 {
			t.Errorf("without an API server there are %q", keys)
		}
		gone.Store(false)
		waitFor(2 * time.Minute)
		if keys := r.inf.GetStore().ListKeys(); len(keys) != 1 {
			t.Errorf("with it again there are %q", keys)
		}
		r.end()
	})
}

// TestNoAPIServerByHost is TestNoAPIServer for a cluster that identifies itself by host
// and CA only, as for a user with a certificate who may not read kube-system.
func TestNoAPIServerByHost(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		w.put("b", "1")
		var forbidden, noBackend atomic.Bool
		forbidden.Store(true)
		identity := refusingAll(a, http.StatusForbidden, &forbidden)
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			switch {
			case noBackend.Load():
				return noAPIServer(r), nil
			case strings.HasSuffix(r.URL.Path, "/configmaps"):
				return a.RoundTrip(r)
			}
			return identity.RoundTrip(r)
		})
		var lines []string
		r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
		l := &log{}
		if _, err := r.inf.AddEventHandler(l); err != nil {
			t.Fatal(err)
		}
		r.sync()
		waitFor(time.Minute)
		l.take()
		noBackend.Store(true)
		w.server.CloseWatches()
		waitFor(30 * time.Minute)
		if told := l.take(); len(told) > 0 {
			t.Errorf("cluster %q: told %q because no API server answers", r.inf.Status().Scope.Cluster, told)
		}
		noBackend.Store(false)
		waitFor(10 * time.Minute)
		if told := l.take(); len(told) > 0 {
			t.Errorf("told %q when it is back", told)
		}
		r.end()
	})
}

// TestNoAPIServerAtColdStart checks that a process which starts before the API server
// behind such a proxy waits for it, and is persisted under the identity that it has then.
func TestNoAPIServerAtColdStart(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		var noBackend atomic.Bool
		noBackend.Store(true)
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			if noBackend.Load() {
				return noAPIServer(r), nil
			}
			return a.RoundTrip(r)
		})
		var lines []string
		r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
		waitFor(2 * time.Minute)
		noBackend.Store(false)
		r.sync()
		if s := r.inf.Status(); !s.Persisted || s.Scope.Cluster != "kube-system/one" {
			t.Errorf("persisted %t as of %q: %s", s.Persisted, s.Scope.Cluster, s.Memory)
		}
		r.end()
	})
}

// TestNoCoreGroup checks that an API server is identified that has only groups of its own
// and answers 404 without a Status to all other requests.
func TestNoCoreGroup(t *testing.T) {
	inBubble(t, func(w *world) {
		a := &address{}
		a.set(w.server, "one", nil)
		w.put("a", "1")
		below := roundTrip(func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/configmaps") {
				return a.RoundTrip(r)
			}
			return noAPIServer(r), nil
		})
		var lines []string
		r := w.runBehind(below, nil, informer.FactoryOptions{}, &lines)
		began := time.Now()
		r.sync()
		s := r.inf.Status()
		if !s.Persisted || time.Since(began) > 2*time.Second {
			t.Errorf("persisted %t as of %q after %v: %s", s.Persisted, s.Scope.Cluster, time.Since(began), s.Memory)
		}
		r.end()
	})
}

// TestNoResourceOfFactory checks that a Factory's informer asks which versions the server
// serves before it takes the objects for deleted, also one that holds them in memory.
func TestNoResourceOfFactory(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]runtime.Object // by path; the others are not found
		want    []string
	}{
		"in no version": {
			answers: map[string]runtime.Object{"/api": &metav1.APIVersions{Versions: []string{"v1"}}, "/api/v1": &metav1.APIResourceList{}},
			want:    []string{"delete tombstone a@2=1"},
		},
		"in another version": {
			answers: map[string]runtime.Object{
				"/api": &metav1.APIVersions{Versions: []string{"v1", "v2"}}, "/api/v1": &metav1.APIResourceList{},
				"/api/v2": &metav1.APIResourceList{APIResources: []metav1.APIResource{{Name: "configmaps"}}},
			},
		},
		"of a proxy": {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				a := &address{}
				a.set(w.server, "one", nil)
				w.put("a", "1")
				var gone atomic.Bool
				var lines []string
				cfg := &rest.Config{Host: "http://api.example", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					if !gone.Load() || c.answers != nil && strings.HasSuffix(r.URL.Path, "/kube-system") {
						return a.RoundTrip(r)
					}
					if obj := c.answers[r.URL.Path]; obj != nil {
						return respond(obj, nil)
					}
					return &http.Response{
						StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}},
						Body: io.NopCloser(strings.NewReader("404 page not found\n")), Request: r,
					}, nil
				})}
				r, inMemory := &run{w: w, done: make(chan struct{}), db: w.open()}, &run{w: w, done: make(chan struct{})}
				factory, client := clientOf(t, r.db, cfg, informer.FactoryOptions{})
				r.runClient(factory, client, &lines)
				r.sync()
				// Its scope is in use.
				inMemory.runListWatch(factory, configMapsOf(client), &lines)
				inMemory.sync()
				logs := []*log{{}, {}}
				handle(w, logs[0])(r.inf)
				handle(w, logs[1])(inMemory.inf)
				waitFor(time.Minute)
				gone.Store(true)
				w.server.CloseWatches()
				waitFor(20 * time.Minute)
				for i, l := range logs {
					w.wantUnordered(fmt.Sprint("informer ", i), l, append([]string{"initial a@2=1"}, c.want...))
				}
				inMemory.end()
				r.end()
			})
		})
	}
}
