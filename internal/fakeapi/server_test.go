package fakeapi_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/fakeapi"
)

func configMap(name string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

// newServer returns a server with a@2, b@3 and c@4.
func newServer(t *testing.T, opts fakeapi.Options) *fakeapi.Server {
	t.Helper()
	s := fakeapi.New(&v1.ConfigMap{}, &v1.ConfigMapList{}, opts)
	for _, name := range []string{"a", "b", "c"} {
		must(t)(s.Create(configMap(name)))
	}
	return s
}

func must(t *testing.T) func(string, error) string {
	t.Helper()
	return func(rv string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return rv
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, s *fakeapi.Server, opts metav1.ListOptions) *v1.ConfigMapList {
	t.Helper()
	l, err := s.ListWithContext(t.Context(), opts)
	check(t, err)
	return l.(*v1.ConfigMapList)
}

func names(l *v1.ConfigMapList) []string {
	var got []string
	for _, item := range l.Items {
		got = append(got, item.Name+"@"+item.ResourceVersion)
	}
	return got
}

func open(t *testing.T, s *fakeapi.Server, opts metav1.ListOptions) watch.Interface {
	t.Helper()
	w, err := s.WatchWithContext(t.Context(), opts)
	check(t, err)
	return w
}

// events returns the events of a watch until it is silent, with "closed" if it was
// closed.
func events(w watch.Interface) []string {
	var got []string
	for {
		synctest.Wait()
		select {
		case e, open := <-w.ResultChan():
			if !open {
				return append(got, "closed")
			}
			got = append(got, show(e))
		default:
			return got
		}
	}
}

func show(e watch.Event) string {
	switch obj := e.Object.(type) {
	case *metav1.Status:
		return fmt.Sprintf("%s %d %s", e.Type, obj.Code, obj.Reason)
	case *v1.ConfigMap:
		end := ""
		if obj.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
			end = " initial"
		}
		return fmt.Sprintf("%s %s@%s%s", e.Type, obj.Name, obj.ResourceVersion, end)
	}
	return "?"
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWrites(t *testing.T) {
	s := newServer(t, fakeapi.Options{})
	if _, err := s.Create(configMap("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("got %v, want AlreadyExists", err)
	}
	if _, err := s.Update(configMap("x")); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	if _, err := s.Delete("ns/x"); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	if _, err := s.Create(configMap("")); err == nil {
		t.Error("created an object without a name")
	}
	uid := list(t, s, metav1.ListOptions{}).Items[0].UID
	if got := must(t)(s.Update(configMap("a"))); got != "5" {
		t.Errorf("got resource version %s, want 5", got)
	}
	l := list(t, s, metav1.ListOptions{})
	if got := l.Items[0].UID; got != uid || uid == "" {
		t.Errorf("got UID %q after an update, want %q", got, uid)
	}
	must(t)(s.Delete("ns/b"))
	want(t, names(list(t, s, metav1.ListOptions{})), "a@5", "c@4")
	if got := s.Advance(); got != "7" || s.RV() != "7" {
		t.Errorf("got resource version %s, want 7", got)
	}
}

func TestPages(t *testing.T) {
	s := newServer(t, fakeapi.Options{})
	first := list(t, s, metav1.ListOptions{Limit: 2})
	want(t, names(first), "a@2", "b@3")
	if got := first.RemainingItemCount; got == nil || *got != 1 {
		t.Errorf("got %v remaining items, want 1", got)
	}
	must(t)(s.Update(configMap("c")))
	must(t)(s.Delete("ns/b"))
	next := metav1.ListOptions{Limit: 2, Continue: first.Continue}
	second := list(t, s, next)
	want(t, names(second), "c@4")
	if second.ResourceVersion != "4" || second.Continue != "" || second.RemainingItemCount != nil {
		t.Errorf("got %+v, want the end of the list at 4", second.ListMeta)
	}
	check(t, s.Compact("6"))
	if _, err := s.ListWithContext(t.Context(), next); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want Expired", err)
	}
	next.Continue = "x"
	if _, err := s.ListWithContext(t.Context(), next); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v, want BadRequest", err)
	}
}

func TestListAtResourceVersion(t *testing.T) {
	s := newServer(t, fakeapi.Options{})
	exact := metav1.ListOptions{ResourceVersion: "3", ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	want(t, names(list(t, s, exact)), "a@2", "b@3")
	want(t, names(list(t, s, metav1.ListOptions{ResourceVersion: "3"})), "a@2", "b@3", "c@4")
	want(t, names(list(t, s, metav1.ListOptions{ResourceVersion: "3", Limit: 9})), "a@2", "b@3")
	want(t, names(list(t, s, metav1.ListOptions{ResourceVersion: "0", Limit: 1})), "a@2", "b@3", "c@4")
	_, err := s.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "5"})
	if !apierrors.IsTimeout(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		t.Errorf("got %v, want ResourceVersionTooLarge", err)
	}
	check(t, s.Compact("4"))
	if _, err := s.ListWithContext(t.Context(), exact); !apierrors.IsResourceExpired(err) {
		t.Errorf("got %v, want Expired", err)
	}
	if _, err := s.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "x"}); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v, want BadRequest", err)
	}
}

func TestWatchFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		w := open(t, s, metav1.ListOptions{ResourceVersion: "3"})
		future := open(t, s, metav1.ListOptions{ResourceVersion: "6"})
		must(t)(s.Update(configMap("a")))
		must(t)(s.Delete("ns/b"))
		must(t)(s.Create(configMap("d")))
		want(t, events(w), "ADDED c@4", "MODIFIED a@5", "DELETED b@6", "ADDED d@7")
		want(t, events(future), "ADDED d@7")
		all := open(t, s, metav1.ListOptions{})
		want(t, events(all), "ADDED a@5", "ADDED c@4", "ADDED d@7")
		check(t, s.Compact("6"))
		old := open(t, s, metav1.ListOptions{ResourceVersion: "5"})
		want(t, events(old), "ERROR 410 Expired", "closed")
		want(t, events(open(t, s, metav1.ListOptions{ResourceVersion: "6"})), "ADDED d@7")
		for _, w := range []watch.Interface{w, future, all} {
			w.Stop()
			w.Stop()
			want(t, events(w), "closed")
		}
		if _, err := s.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "x"}); !apierrors.IsBadRequest(err) {
			t.Errorf("got %v, want BadRequest", err)
		}
	})
}

func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		silent := newServer(t, fakeapi.Options{NoBookmarks: true})
		silent.Advance()
		opts := metav1.ListOptions{ResourceVersion: "4", AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](3)}
		same, none := open(t, s, opts), open(t, silent, opts)
		opts.ResourceVersion = "3"
		w := open(t, s, opts)
		opts.TimeoutSeconds = ptr.To[int64](150)
		long := open(t, s, opts)
		opts.TimeoutSeconds = ptr.To[int64](2)
		short := open(t, s, opts)
		opts.AllowWatchBookmarks = false
		opts.TimeoutSeconds = ptr.To[int64](4)
		unasked := open(t, s, opts)
		for _, w := range []watch.Interface{w, long, short, unasked} {
			want(t, events(w), "ADDED c@4")
		}
		<-time.After(2 * time.Second)
		want(t, events(w), "BOOKMARK @4")
		want(t, events(short), "closed")
		<-time.After(time.Second)
		want(t, events(w), "closed")
		want(t, events(same), "closed")
		want(t, events(none), "closed")
		<-time.After(time.Second)
		want(t, events(unasked), "closed")
		<-time.After(56 * time.Second)
		want(t, events(long), "BOOKMARK @4")
		s.Advance()
		<-time.After(60 * time.Second)
		want(t, events(long), "BOOKMARK @5")
		<-time.After(29 * time.Second)
		want(t, events(long), "BOOKMARK @5")
		<-time.After(time.Second)
		want(t, events(long), "closed")
	})
}

func TestStreamedList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := metav1.ListOptions{
			AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true),
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}
		s := newServer(t, fakeapi.Options{NoBookmarks: true})
		s.Advance()
		w := open(t, s, opts)
		must(t)(s.Delete("ns/a"))
		want(t, events(w), "ADDED a@2", "ADDED b@3", "ADDED c@4", "BOOKMARK @5 initial", "DELETED a@6")
		w.Stop()
		opts.ResourceVersion = "7"
		w = open(t, s, opts)
		want(t, events(w))
		<-time.After(3 * time.Second)
		want(t, events(w), "ERROR 504 Timeout", "closed")
		opts.ResourceVersionMatch = ""
		if _, err := s.WatchWithContext(t.Context(), opts); !apierrors.IsInvalid(err) {
			t.Errorf("got %v, want Invalid", err)
		}
		opts.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
		if _, err := newServer(t, fakeapi.Options{NoWatchList: true}).WatchWithContext(t.Context(), opts); !apierrors.IsInvalid(err) {
			t.Errorf("got %v, want Invalid", err)
		}
	})
}

func TestRewind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		must(t)(s.Delete("ns/a"))
		w := open(t, s, metav1.ListOptions{ResourceVersion: "5"})
		check(t, s.Rewind("3"))
		want(t, events(w), "closed")
		l := list(t, s, metav1.ListOptions{})
		want(t, names(l), "a@2", "b@3")
		if l.ResourceVersion != "3" {
			t.Errorf("got resource version %s, want 3", l.ResourceVersion)
		}
		w = open(t, s, metav1.ListOptions{ResourceVersion: "3"})
		future := open(t, s, metav1.ListOptions{ResourceVersion: "5"})
		must(t)(s.Update(configMap("b")))
		want(t, events(w), "MODIFIED b@4")
		want(t, events(future))
		s.CloseWatches()
		want(t, events(w), "closed")
		want(t, events(future), "closed")
		if err := s.Rewind("9"); err == nil {
			t.Error("rewound to the future")
		}
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		boom := errors.New("boom")
		s.FailList(nil, boom)
		list(t, s, metav1.ListOptions{})
		if _, err := s.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, boom) {
			t.Errorf("got %v, want %v", err, boom)
		}
		s.FailWatch(boom, fakeapi.InStream(boom), fakeapi.ErrCloseAtOnce)
		if _, err := s.WatchWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, boom) {
			t.Errorf("got %v, want %v", err, boom)
		}
		want(t, events(open(t, s, metav1.ListOptions{})), "ERROR 500 InternalError", "closed")
		want(t, events(open(t, s, metav1.ListOptions{})), "closed")

		w := open(t, s, metav1.ListOptions{ResourceVersion: "4"})
		s.Down()
		want(t, events(w), "closed")
		if _, err := s.ListWithContext(t.Context(), metav1.ListOptions{}); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want ECONNREFUSED", err)
		}
		s.Up()
		w = open(t, s, metav1.ListOptions{ResourceVersion: "4"})
		s.Send(watch.Event{Type: watch.Added, Object: configMap("x")})
		want(t, events(w), "ADDED x@")
		s.Send(watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 500}})
		want(t, events(w), "ERROR 500 ", "closed")
		if n := s.Watches(); n != 0 {
			t.Errorf("%d watches are open", n)
		}
		if _, err := s.ListWithContext(t.Context(), metav1.ListOptions{LabelSelector: "a"}); !apierrors.IsBadRequest(err) {
			t.Errorf("got %v, want BadRequest", err)
		}
	})
}

// TestSlow checks that a watch ends at its timeout even if it has unsent events.
func TestSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		s.Slow(2 * time.Second)
		w := open(t, s, metav1.ListOptions{ResourceVersion: "1", TimeoutSeconds: ptr.To[int64](5), AllowWatchBookmarks: true})
		want(t, events(w))
		<-time.After(2 * time.Second)
		want(t, events(w), "ADDED a@2")
		<-time.After(2 * time.Second)
		want(t, events(w), "ADDED b@3")
		<-time.After(2 * time.Second)
		want(t, events(w), "closed")
	})
}

// TestWatchEnds checks that an unread watch ends with its context or at its timeout.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.WatchWithContext(ctx, metav1.ListOptions{})
		check(t, err)
		open(t, s, metav1.ListOptions{TimeoutSeconds: ptr.To[int64](5)})
		synctest.Wait()
		cancel()
		synctest.Wait()
		if n := s.Watches(); n != 1 {
			t.Errorf("%d watches are open, want 1", n)
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		if n := s.Watches(); n != 0 {
			t.Errorf("%d watches are open, want none", n)
		}
	})
}

// TestClientGo checks that client-go's reflector works with the server, whatever the
// server does.
func TestClientGo(t *testing.T) {
	for name, opts := range map[string]fakeapi.Options{"stream": {}, "pages": {NoWatchList: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, opts)
				held := cache.NewStore(cache.MetaNamespaceKeyFunc)
				r := cache.NewReflectorWithOptions(s, &v1.ConfigMap{}, held, cache.ReflectorOptions{})
				ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
				done := make(chan struct{})
				go func() {
					defer close(done)
					r.RunWithContext(ctx)
				}()
				for _, happen := range []func(){
					func() {},
					func() { must(t)(s.Update(configMap("a"))) },
					func() { must(t)(s.Delete("ns/b")) },
					s.CloseWatches,
					func() { s.Send(watch.Event{Type: watch.Error, Object: &metav1.Status{Code: 500}}) },
					func() {
						s.Down()
						must(t)(s.Create(configMap("d")))
						check(t, s.Compact(s.RV()))
						<-time.After(time.Minute)
						s.Up()
					},
				} {
					happen()
					<-time.After(2 * time.Minute)
					synctest.Wait()
					l := list(t, s, metav1.ListOptions{})
					if diff := cmp.Diff(keys(l), slices.Sorted(slices.Values(held.ListKeys()))); diff != "" {
						t.Errorf("-server +client-go:\n%s", diff)
					}
				}
				cancel()
				<-done
			})
		})
	}
}

func keys(l *v1.ConfigMapList) []string {
	var got []string
	for _, item := range l.Items {
		got = append(got, item.Namespace+"/"+item.Name)
	}
	return got
}

func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, fakeapi.Options{RVPrefix: "v/"})
		l := list(t, s, metav1.ListOptions{Limit: 1})
		l.Items[0].Name = "changed" // a copy
		<-time.After(time.Second)
		w := open(t, s, metav1.ListOptions{ResourceVersion: "v/3"})
		want(t, events(w), "ADDED c@v/4")
		w.Stop()
		synctest.Wait()
		want(t, names(list(t, s, metav1.ListOptions{})), "a@v/2", "b@v/3", "c@v/4")
		var got []string
		all := s.Requests()
		for _, r := range all {
			got = append(got, fmt.Sprintf("%s %s %d %v", r.Verb, r.Options.ResourceVersion, r.Options.Limit, r.Time.Sub(all[0].Time)))
		}
		want(t, got, "list  1 0s", "watch v/3 0 1s", "list  0 1s")
	})
}
