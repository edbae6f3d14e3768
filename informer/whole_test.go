package informer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// overtaken is a backend that calls happens after each failed read, before the caller
// receives the error.
type overtaken struct {
	store.Backend
	happens func()
}

func (b *overtaken) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	return &overtakenStore{s, b}, err
}

type overtakenStore struct {
	store.Store
	backend *overtaken
}

func (s *overtakenStore) Objects(q store.Query) ([]runtime.Object, error) {
	out, err := s.Store.Objects(q)
	if err != nil && s.backend.happens != nil {
		s.backend.happens()
	}
	return out, err
}

// TestListOvertaken checks that a failed List does not treat another call's success as
// its own, and that an object that was repaired meanwhile is not repaired again.
func TestListOvertaken(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "1")
		w.put("b", "1")
		db := w.open()
		backend := &overtaken{Backend: db}
		r := w.run(informer.Options{Backend: backend}).sync()
		waitFor(2 * time.Second)
		backend.happens = func() {
			backend.happens = nil // once
			if got := len(r.inf.GetStore().List()); got != 2 {
				t.Errorf("the other List has %d objects, want 2", got)
			}
		}
		since := len(w.server.Requests())
		if _, err := db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		if got := len(r.inf.GetStore().List()); got != 2 {
			t.Errorf("List has %d objects, want 2", got)
		}
		waitFor(10 * time.Minute)
		if lists := w.lists(since); len(lists) != 1 {
			t.Errorf("listed by %q, want once", lists)
		}
		r.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestReadsWithoutErrorWait checks that methods that return no error wait after a wipe
// until the scope is listed again, whether they read the file or memory.
func TestReadsWithoutErrorWait(t *testing.T) {
	for _, decoded := range []int64{0, -1} {
		for name, read := range map[string]func(cache.Indexer) int{
			"List":                          func(x cache.Indexer) int { return len(x.List()) },
			"ListKeys":                      func(x cache.Indexer) int { return len(x.ListKeys()) },
			"ListIndexFuncValues":           func(x cache.Indexer) int { return len(x.ListIndexFuncValues("label:app")) },
			"ListIndexFuncValues in memory": func(x cache.Indexer) int { return len(x.ListIndexFuncValues("v")) },
		} {
			t.Run(fmt.Sprint(name, decoded), func(t *testing.T) {
				inBubble(t, func(w *world) {
					w.put("a", "1")
					w.put("b", "2")
					r := w.run(informer.Options{
						DecodedBytes: decoded, Indexes: []index.Index{index.Label("app")},
						Indexers: cache.Indexers{"v": byValue(new(bool), false)},
					}).sync()
					w.server.Hold()
					if _, err := r.db.Wipe(nil); err != nil {
						t.Fatal(err)
					}
					found := make(chan int, 1)
					go func() { found <- read(r.inf.GetIndexer()) }()
					synctest.Wait()
					select {
					case n := <-found:
						t.Errorf("does not wait, finds %d", n)
						found <- n
					default:
					}
					w.server.Release()
					if n := <-found; n != 2 {
						t.Errorf("finds %d, want 2", n)
					}
					r.end()
				})
			})
		}
	}
}

// TestReadsOfCallbacksDoNotWait checks reads by transforms, index functions, watch error
// handlers and ListerWatchers. The list that repairs the cause of a failed read waits for
// these callbacks, so their reads return nothing instead of waiting.
func TestReadsOfCallbacksDoNotWait(t *testing.T) {
	for _, where := range []string{"transform", "index function", "error handler", "list"} {
		t.Run(where, func(t *testing.T) {
			inBubble(t, func(w *world) {
				var inf *informer.Informer
				wiped := atomic.Bool{}
				found := make(chan int, 100)
				read := func(now string) {
					if now == where && wiped.Load() {
						found <- len(inf.GetStore().List())
					}
				}
				w.put("a", "1")
				lists := &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
						read("list")
						return w.server.ListWithContext(ctx, opts)
					},
					WatchFuncWithContext: w.server.WatchWithContext,
				}
				db := w.open()
				var err error
				inf, err = informer.New(cache.ToListWatcherWithWatchListSemantics(lists, pagesOnly{}), &corev1.ConfigMap{}, informer.Options{
					Backend: db,
					Indexers: cache.Indexers{"x": func(any) ([]string, error) {
						read("index function")
						return nil, nil
					}},
				})
				if err != nil {
					t.Fatal(err)
				}
				_ = inf.SetTransform(func(obj any) (any, error) {
					read("transform")
					return obj, nil
				})
				_ = inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) { read("error handler") })
				r := &run{w: w, inf: inf, db: db, done: make(chan struct{})}
				r.start()
				r.sync()
				wiped.Store(true)
				w.server.FailWatch(errOnPurpose)
				w.server.FailList(errOnPurpose)
				if _, err := db.Wipe(nil); err != nil {
					t.Fatal(err)
				}
				w.server.CloseWatches()
				waitFor(5 * time.Minute)
				select {
				case n := <-found:
					if n != 0 {
						t.Errorf("found %d objects of a store that was wiped", n)
					}
				default:
					t.Error("nothing was read")
				}
				wiped.Store(false)
				if got := len(inf.GetStore().List()); got != 1 {
					t.Errorf("List has %d objects after five minutes, want 1", got)
				}
				r.end()
			})
		})
	}
}

// pagesOnly is a client without streamed lists.
type pagesOnly struct{}

func (pagesOnly) IsWatchListSemanticsUnSupported() bool { return true }
