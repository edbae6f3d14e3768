package informer_test

import (
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// slowClose is a backend whose stores need some seconds to close.
type slowClose struct{ store.Backend }

// Open implements store.Backend.
func (b *slowClose) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	if err != nil {
		return nil, err
	}
	return slowStore{s}, nil
}

type slowStore struct{ store.Store }

// Close implements store.Store.
func (s slowStore) Close() error {
	<-time.After(5 * time.Second)
	return s.Store.Close()
}

// TestHandOver stops an informer, and starts another one of its scope at once: it waits
// for the scope and does not run in memory. One whose scope stays in use runs in memory.
func TestHandOver(t *testing.T) {
	ways := map[string]func(w *world, b store.Backend) *run{
		"New": func(w *world, b store.Backend) *run {
			return w.run(informer.Options{Backend: b, Scope: store.Scope{Cluster: "one"}})
		},
		"a Factory for each": func(w *world, b store.Backend) *run {
			a := &address{}
			a.set(w.server, "one", nil)
			cfg := &rest.Config{Host: "http://api.example", Transport: a}
			factory, client := clientOf(w, b, cfg, informer.FactoryOptions{})
			r := &run{w: w, done: make(chan struct{})}
			r.runClient(factory, client, new([]string))
			return r
		},
	}
	for name, start := range ways {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				b := &slowClose{Backend: mem.New()}
				w.put("a", "1")
				first := start(w, b).sync()
				first.stop()
				next := start(w, b).sync()
				if s := next.inf.Status(); !s.Persisted {
					w.Errorf("after one that ends: in memory: %s", s.Memory)
				}
				other := start(w, b).sync()
				if other.inf.Persisted() {
					w.Error("two informers have one scope")
				}
				other.end()
				<-first.done
				if n := informer.Leases(b); n != 1 {
					w.Errorf("%d informers are held, want 1", n)
				}
				next.end()
				if n := informer.Leases(b); n != 0 {
					w.Errorf("%d informers are held after the end", n)
				}
			})
		})
	}
}
