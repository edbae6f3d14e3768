package main

import (
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const fewObjects = 10

// serveFew runs a server with few objects in this process.
func serveFew(t *testing.T, k kind) (*server, cache.ListerWatcherWithContext) {
	t.Helper()
	c, err := k.collection(fewObjects)
	if err != nil {
		t.Fatal(err)
	}
	s := &server{kind: k, origin: c.items, changed: make(chan struct{})}
	s.reset(0)
	listener := httptest.NewServer(s.handler())
	t.Cleanup(func() {
		listener.CloseClientConnections()
		listener.Close()
	})
	lw, err := k.listWatch(&rest.Config{Host: listener.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, cache.ToListerWatcherWithContext(lw)
}

func keys(t *testing.T, list kruntime.Object) (all []string) {
	t.Helper()
	err := meta.EachListItem(list, func(obj kruntime.Object) error {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		all = append(all, key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestPages checks that pages contain the objects of the whole list at the time of the
// first page.
func TestPages(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s, lw := serveFew(t, k)
			whole, err := lw.ListWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			opts := metav1.ListOptions{Limit: 4}
			var paged, rvs []string
			for {
				page, err := lw.ListWithContext(t.Context(), opts)
				if err != nil {
					t.Fatal(err)
				}
				accessor, err := meta.ListAccessor(page)
				if err != nil {
					t.Fatal(err)
				}
				paged, rvs = append(paged, keys(t, page)...), append(rvs, accessor.GetResourceVersion())
				s.changeNow(1)
				if opts.Continue = accessor.GetContinue(); opts.Continue == "" {
					break
				}
			}
			if diff := cmp.Diff(keys(t, whole), paged); diff != "" || len(paged) != fewObjects {
				t.Errorf("-whole +pages:\n%s", diff)
			}
			if rvs[0] != rvs[2] {
				t.Errorf("resource versions of pages: %v", rvs)
			}
		})
	}
}

// TestWatch checks that a streamed list ends with its bookmark, that changes follow, that
// lost history results in a 410, and that a watch of three seconds has a bookmark after
// one second.
func TestWatch(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s, lw := serveFew(t, k)
			opts := metav1.ListOptions{
				SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
			}
			w, err := lw.WatchWithContext(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			for range fewObjects {
				next(t, w, watch.Added)
			}
			mark, err := meta.Accessor(next(t, w, watch.Bookmark))
			if err != nil || mark.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" {
				t.Errorf("the bookmark after the list: %v, %v", mark, err)
			}
			before := strconv.FormatInt(time.Now().UnixNano(), 10)
			s.changeNow(1)
			changed, err := meta.Accessor(next(t, w, watch.Modified))
			if err != nil || changed.GetResourceVersion() <= mark.GetResourceVersion() || changed.GetAnnotations()[sentKey] < before {
				t.Errorf("after %s at %s: %v, %v", mark.GetResourceVersion(), before, changed, err)
			}
			s.lose(1)
			if err := errors.FromObject(next(t, w, watch.Error)); !errors.IsResourceExpired(err) {
				t.Errorf("got %v, want a 410", err)
			}
			old, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: mark.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer old.Stop()
			if err := errors.FromObject(next(t, old, watch.Error)); !errors.IsResourceExpired(err) {
				t.Errorf("got %v, want a 410", err)
			}
			s.reset(1)
			begun := time.Now()
			short, err := lw.WatchWithContext(t.Context(), metav1.ListOptions{
				ResourceVersion: mark.GetResourceVersion(), AllowWatchBookmarks: true, TimeoutSeconds: new(int64(3)),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer short.Stop()
			next(t, short, watch.Bookmark)
			if took := time.Since(begun); took < time.Second {
				t.Errorf("the bookmark came after %v", took)
			}
		})
	}
}

func next(t *testing.T, w watch.Interface, want watch.EventType) kruntime.Object {
	t.Helper()
	var e watch.Event
	select {
	case e = <-w.ResultChan():
	case <-time.After(time.Minute):
	}
	if e.Type != want {
		t.Fatalf("got %q, want %s", e.Type, want)
	}
	return e.Object
}
