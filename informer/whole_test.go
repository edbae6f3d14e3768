package informer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// overtaken is a backend whose stores have something happen behind each read that
// has failed, before its caller knows.
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

func (s *overtakenStore) List() []any {
	out, _ := s.TryList()
	return out
}

func (s *overtakenStore) TryList() ([]any, error) {
	out, err := s.Store.TryList()
	if err != nil && s.backend.happens != nil {
		s.backend.happens()
	}
	return out, err
}

// TestListOvertaken: a List that has failed does not take another one's success for
// its own, and what was mended meanwhile is not mended again.
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

// TestReadsWithoutErrorWait: what has no error to return waits after a wipe until the
// scope is listed again, whether it is answered from the file or from memory.
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
