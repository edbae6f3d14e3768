package informer_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// These tests check the requests to a server, and what happens to its watches.

// scripted is a ListerWatcher with the watches of a test and an empty list at resource
// version 1.
type scripted struct {
	pages   bool // it does not stream lists
	watches chan watch.Interface
	mu      sync.Mutex
	asked   []metav1.ListOptions // in order
}

func (l *scripted) note(o metav1.ListOptions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = append(l.asked, o)
}

func (l *scripted) requests() []metav1.ListOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

func (l *scripted) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l.note(o)
	return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

func (l *scripted) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	l.note(o)
	select {
	case w := <-l.watches:
		return w, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (*scripted) List(metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("the variant without a context was called")
}

func (*scripted) Watch(metav1.ListOptions) (watch.Interface, error) {
	return nil, errors.New("the variant without a context was called")
}

func (l *scripted) IsWatchListSemanticsUnSupported() bool { return l.pages }

// onEachScripted runs a rule on each informer, on a scripted ListerWatcher.
func onEachScripted(t *testing.T, pages bool, rule func(s *subjectOf, l *scripted)) {
	t.Helper()
	var l *scripted
	from := func(*world) cache.ListerWatcher {
		l = &scripted{pages: pages, watches: make(chan watch.Interface)}
		return l
	}
	onEachFrom(t, 0, from, func(s *subjectOf) { rule(s, l) })
}

// initialEnd is the bookmark that ends a streamed list, at resource version 1.
func initialEnd() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

func versioned(name, rv string) *corev1.ConfigMap {
	cm := valued(name, "x")
	cm.ResourceVersion = rv
	return cm
}

// TestRequestsOfStart checks the options of the requests of a cold start. client-go lists
// from the server's cache. Our informer lists consistently, so that it never starts with
// a state that is older than one it has received before.
func TestRequestsOfStart(t *testing.T) {
	for _, row := range []struct {
		name           string
		pages          bool
		clientGo, ours []metav1.ListOptions
	}{
		{
			name: "stream",
			clientGo: []metav1.ListOptions{
				{AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			},
			ours: []metav1.ListOptions{
				{AllowWatchBookmarks: true, SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan},
			},
		},
		{
			name: "pages", pages: true,
			clientGo: []metav1.ListOptions{{ResourceVersion: "0", Limit: 500}, {ResourceVersion: "1", AllowWatchBookmarks: true}},
			ours:     []metav1.ListOptions{{Limit: 500}, {ResourceVersion: "1", AllowWatchBookmarks: true}},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			onEachScripted(t, row.pages, func(s *subjectOf, l *scripted) {
				told := &log{}
				s.handle(told)
				s.start()
				w := watch.NewFake()
				l.watches <- w
				if !row.pages {
					w.Add(versioned("foo", "1"))
					w.Action(watch.Bookmark, initialEnd())
				}
				s.sync()
				w.Add(versioned("bar", "2"))
				w.Modify(versioned("bar", "3"))
				w.Delete(versioned("bar", "4"))
				want := []string{"add bar@2=x", "update bar@2=x bar@3=x", "delete bar@4=x"}
				if !row.pages {
					want = append([]string{"initial foo@1=x"}, want...)
				}
				s.want(told, want...)
				if rv := s.inf.LastSyncResourceVersion(); rv != "4" {
					s.Errorf("resource version %q", rv)
				}
				asked := l.requests()
				if diff := cmp.Diff(pick(s, row.clientGo, row.ours), asked, cmpopts.IgnoreFields(metav1.ListOptions{}, "TimeoutSeconds")); diff != "" {
					s.Errorf("requests (-want +got):\n%s", diff)
				}
				if last := asked[len(asked)-1].TimeoutSeconds; last == nil || *last < 300 || *last > 600 {
					s.Errorf("a watch for %d seconds", ptr.Deref(last, 0))
				}
			})
		})
	}
}

// TestWatchIsStopped checks that the informer stops each of its watches when the informer
// ends and when the watch fails.
func TestWatchIsStopped(t *testing.T) {
	for name, finish := range map[string]func(s *subjectOf, w *watch.FakeWatcher){
		"the informer ends": func(s *subjectOf, w *watch.FakeWatcher) {
			w.Add(versioned("a", "2"))
			s.end()
		},
		"the informer ends in silence": func(s *subjectOf, _ *watch.FakeWatcher) { s.end() },
		"an error": func(_ *subjectOf, w *watch.FakeWatcher) {
			w.Add(versioned("a", "2"))
			w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 500, Reason: metav1.StatusReasonInternalError})
		},
		"an error that is none": func(_ *subjectOf, w *watch.FakeWatcher) { w.Error(versioned("a", "2")) },
	} {
		t.Run(name, func(t *testing.T) {
			onEachScripted(t, true, func(s *subjectOf, l *scripted) {
				s.start()
				w := watch.NewFake()
				l.watches <- w
				s.sync()
				finish(s, w)
				waitFor(time.Second)
				if !w.IsStopped() {
					s.Error("the watch was not stopped")
				}
			})
		})
	}
}

// TestNoWatchIsLeft checks that an informer that has ended leaves no watch open and sends
// no more requests.
func TestNoWatchIsLeft(t *testing.T) {
	onEachFrom(t, 0, func(w *world) cache.ListerWatcher { return w.server }, func(s *subjectOf) {
		s.put("a", "1")
		s.start().sync()
		if n := s.server.Watches(); n != 1 {
			s.Errorf("%d watches", n)
		}
		s.end()
		synctest.Wait()
		if n := s.server.Watches(); n != 0 {
			s.Errorf("%d watches are open after the end", n)
		}
		asked := len(s.server.Requests())
		waitFor(settling)
		if n := len(s.server.Requests()); n != asked {
			s.Errorf("%d requests after the end", n-asked)
		}
	})
}

// TestForeignObjects checks that an object of another type in a watch is neither stored
// nor sent to handlers, and that the informer continues.
func TestForeignObjects(t *testing.T) {
	quietErrors(t)
	onEach(t, 0, nil, func(s *subjectOf) {
		l := &log{}
		s.handle(l)
		s.put("a", "1")
		s.start().sync()
		waitFor(2 * time.Second)
		s.server.Send(watch.Event{Type: watch.Added, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "foreign", ResourceVersion: s.server.RV(),
		}}})
		waitFor(settling)
		s.put("a", "2")
		waitFor(settling)
		s.told(l, "initial a@2=1", "update a@2=1 a@3=2")
		if keys := s.inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"default/a"}) {
			s.Errorf("keys %q", keys)
		}
	})
}

func untyped(apiVersion, kind, name, rv string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	if name != "" {
		obj.SetNamespace("default")
		obj.SetName(name)
	}
	obj.SetResourceVersion(rv)
	return obj
}

// untypedServer lists its objects as unstructured objects.
type untypedServer struct {
	*scripted
	items []unstructured.Unstructured
}

func (l *untypedServer) ListWithContext(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	l.note(o)
	l.mu.Lock()
	defer l.mu.Unlock()
	list := &unstructured.UnstructuredList{Items: slices.Clone(l.items)}
	list.SetResourceVersion("2")
	return list, nil
}

// tables is a server that answers lists with a table, as where a transport asks for it.
type tables struct{ *untypedServer }

func (l tables) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := l.untypedServer.ListWithContext(ctx, o)
	if u, ok := list.(*unstructured.UnstructuredList); ok {
		u.SetAPIVersion("meta.k8s.io/v1")
		u.SetKind("Table")
	}
	return list, err
}

// TestTableIsNoList checks that a table, which has no items, is not taken for an empty
// collection: what is stored stays.
func TestTableIsNoList(t *testing.T) {
	inBubble(t, func(w *world) {
		scope := store.Scope{Resource: "widgets.example.com", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}
		example := untyped("example.com/v1", "Widget", "", "")
		lw := &untypedServer{scripted: &scripted{pages: true, watches: make(chan watch.Interface)}}
		lw.items = []unstructured.Unstructured{*untyped("example.com/v1", "Widget", "a", "1")}
		start := func(lw cache.ListerWatcher) (inf *informer.Informer, errs *[]string, end func()) {
			db := w.open()
			inf, err := informer.New(lw, example, informer.Options{Backend: db, Scope: scope, SyncWhen: informer.Loaded})
			if err != nil {
				w.Fatal(err)
			}
			errs = &[]string{}
			if err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { *errs = append(*errs, err.Error()) }); err != nil {
				w.Fatal(err)
			}
			ctx, cancel := context.WithCancel(w.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				inf.RunWithContext(ctx)
			}()
			waitFor(time.Minute)
			return inf, errs, func() {
				cancel()
				<-done
				if err := db.Close(); err != nil {
					w.Error(err)
				}
			}
		}
		inf, _, end := start(lw)
		if keys := inf.GetStore().ListKeys(); len(keys) != 1 {
			w.Fatalf("the first list has %q", keys)
		}
		end()
		inf, errs, end := start(tables{lw})
		if keys := inf.GetStore().ListKeys(); len(keys) != 1 || !contains(*errs, "Table") {
			w.Errorf("after a table as a list: %q, errors %q", keys, *errs)
		}
		end()
	})
}

// TestUnstructuredKinds checks which objects of a watch an informer of unstructured
// objects accepts: those of the example's kind, any kind if the example has none, and no
// Table.
func TestUnstructuredKinds(t *testing.T) {
	quietErrors(t)
	for _, row := range []struct {
		name    string
		example *unstructured.Unstructured
		event   *unstructured.Unstructured
		taken   bool
	}{
		{name: "its kind", example: untyped("example.com/v1", "Widget", "", ""), event: untyped("example.com/v1", "Widget", "b", "2"), taken: true},
		{name: "another kind", example: untyped("example.com/v1", "Widget", "", ""), event: untyped("example.com/v1", "Gadget", "b", "2")},
		{name: "any kind", example: &unstructured.Unstructured{}, event: untyped("example.com/v1", "Gadget", "b", "2"), taken: true},
		{name: "Table", example: &unstructured.Unstructured{}, event: untyped("meta.k8s.io/v1", "Table", "", "2")},
		{name: "Table of v1beta1", example: &unstructured.Unstructured{}, event: untyped("meta.k8s.io/v1beta1", "Table", "", "2")},
		{name: "Table of a user", example: &unstructured.Unstructured{}, event: untyped("example.com/v1", "Table", "b", "2"), taken: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			for name, construct := range map[string]func(*testing.T, *world, cache.ListerWatcher) (cache.SharedIndexInformer, func()){
				"client-go": func(_ *testing.T, _ *world, lw cache.ListerWatcher) (cache.SharedIndexInformer, func()) {
					return cache.NewSharedIndexInformer(lw, row.example, 0, nil), func() {}
				},
				"bolt": func(t *testing.T, w *world, lw cache.ListerWatcher) (cache.SharedIndexInformer, func()) {
					db := w.open()
					opts := informer.Options{Backend: db}
					opts.Scope.Kind = row.example.GroupVersionKind()
					opts.Scope.Resource = "widgets.example.com"
					if opts.Scope.Kind.Empty() {
						opts.Scope.Kind.Version = "v1"
					}
					inf, err := informer.New(lw, row.example, opts)
					if err != nil {
						t.Fatal(err)
					}
					return inf, func() {
						if err := db.Close(); err != nil {
							t.Error(err)
						}
					}
				},
			} {
				t.Run(name, func(t *testing.T) {
					inBubble(t, func(w *world) {
						lw := &untypedServer{scripted: &scripted{pages: true, watches: make(chan watch.Interface)}}
						lw.items = []unstructured.Unstructured{*untyped("example.com/v1", "Widget", "a", "1")}
						inf, closeBackend := construct(t, w, lw)
						s := &subjectOf{world: w, inf: inf, ours: name != "client-go", done: make(chan struct{})}
						if err := inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
							t.Fatal(err)
						}
						s.start().sync()
						first := watch.NewFakeWithChanSize(1, false)
						first.Add(row.event)
						lw.watches <- first
						waitFor(settling)
						want := []string{"default/a"}
						if row.taken {
							want = append(want, "default/b")
						}
						keys := inf.GetStore().ListKeys()
						slices.Sort(keys)
						if diff := cmp.Diff(want, keys); diff != "" {
							t.Errorf("keys (-want +got):\n%s", diff)
						}
						s.end()
						closeBackend()
					})
				})
			}
		})
	}
}

// TestWithoutRequests checks that an informer whose context has ended before Run sends no
// requests.
func TestWithoutRequests(t *testing.T) {
	onEachScripted(t, true, func(s *subjectOf, l *scripted) {
		ctx, cancel := context.WithCancel(klog.NewContext(s.Context(), klog.Logger{}))
		cancel()
		s.inf.RunWithContext(ctx)
		for _, o := range l.requests() {
			if s.ours { // client-go's may send one, with the ended context
				s.Errorf("asked for %+v", o)
			}
		}
	})
}
