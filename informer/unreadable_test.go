package informer_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// noKeys is a backend whose Keys fails a number of times.
type noKeys struct {
	store.Backend
	failures atomic.Int32
}

func (b *noKeys) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	if err != nil {
		return nil, err
	}
	return &noKeysStore{s, s.(store.Departer), b}, nil
}

type noKeysStore struct {
	store.Store
	store.Departer
	backend *noKeys
}

func (s *noKeysStore) Keys(q store.Query) ([]string, error) {
	if s.backend.failures.Add(-1) >= 0 {
		return nil, errors.New("keys cannot be read")
	}
	return s.Store.Keys(q)
}

// runUnreadable starts an informer whose stored keys cannot be read at the start, beside
// a server that is down. The object b is deleted and a is updated meanwhile.
func runUnreadable(w *world, prepare func(*informer.Informer)) (r *run, end func()) {
	w.Helper()
	w.put("a", "1")
	w.put("b", "1")
	w.run(informer.Options{}).sync().end()
	w.server.Down()
	w.drop("b")
	w.put("a", "2")
	db := w.open()
	backend := &noKeys{Backend: db}
	backend.failures.Store(1)
	r = w.run(informer.Options{Backend: backend}, prepare)
	waitFor(3 * time.Second)
	return r, func() {
		r.end()
		if err := db.Close(); err != nil {
			w.Error(err)
		}
	}
}

// TestKeysUnreadableAtStart checks that a handler receives the deletion of an object that
// was stored at the start, if the stored keys could not be read at once.
func TestKeysUnreadableAtStart(t *testing.T) {
	inBubble(t, func(w *world) {
		var told []string
		note := func(what string) func(any) {
			return func(obj any) {
				key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
				if err != nil {
					w.Error(err)
				}
				told = append(told, what+" "+key)
			}
		}
		r, end := runUnreadable(w, handle(w, cache.ResourceEventHandlerFuncs{
			AddFunc: note("add"), DeleteFunc: note("delete"),
			UpdateFunc: func(_, obj any) { note("update")(obj) },
		}))
		w.server.Up()
		r.sync()
		waitFor(2 * time.Minute)
		has := map[string]int{}
		for _, what := range told {
			has[what]++
		}
		want := map[string]int{"add default/a": 1, "add default/b": 1, "delete default/b": 1, "update default/a": 1}
		if diff := cmp.Diff(want, has); diff != "" {
			t.Errorf("the handler was told %q (-want +got):\n%s", told, diff)
		}
		end()
	})
}
