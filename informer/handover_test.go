package informer

import (
	"testing"
	"testing/synctest"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// slowOpen is a backend whose first Open takes until it is let go.
type slowOpen struct {
	store.Backend
	begun bool
	letGo chan struct{}
}

// Open implements store.Backend.
func (b *slowOpen) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	s, err := b.Backend.Open(scope, opts)
	if !b.begun {
		b.begun = true
		<-b.letGo
	}
	return s, err
}

// TestHandOverWhileOpening removes an informer that still opens its scope, and starts
// another one of the scope at once: it waits, and does not run in memory.
func TestHandOverWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &slowOpen{Backend: mem.New(), letGo: make(chan struct{})}
		scope := store.Scope{Cluster: "c", Resource: "pods"}
		scope.Kind.Version, scope.Kind.Kind = "v1", "Pod"
		first := &Informer{ending: make(chan struct{}), released: make(chan struct{}), scope: scope, opts: Options{Backend: b}}
		next := &Informer{ending: make(chan struct{}), released: make(chan struct{}), scope: scope, opts: Options{Backend: b}}
		opened := make(chan store.Store)
		go func() {
			s, err := first.lease(t.Context(), scope, store.Options{})
			if err != nil {
				t.Error(err)
			}
			opened <- s
		}()
		synctest.Wait()
		close(first.ending)
		ended := make(chan error)
		go func() {
			s, err := next.lease(t.Context(), scope, store.Options{})
			if err == nil {
				err = s.Close()
			}
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("the next one did not wait: %v", err)
		default:
		}
		close(b.letGo)
		s := <-opened
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		first.forgetLease()
		close(first.released)
		if err := <-ended; err != nil {
			t.Errorf("the next one: %v", err)
		}
		if next.forgetLease(); Leases(b) != 0 {
			t.Errorf("%d informers are held", Leases(b))
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}
