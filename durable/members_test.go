package durable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// slowLedger is a backend whose ledger is written while the gate is open.
type slowLedger struct {
	*bolt.DB
	once sync.Once     // closes come
	come chan struct{} // somebody waits at the gate
	gate chan struct{}
}

func (s *slowLedger) SetLedger(ctx context.Context, name string, changes map[string][]byte) error {
	s.once.Do(func() { close(s.come) })
	<-s.gate
	return s.DB.SetLedger(ctx, name, changes)
}

// TestRemovedBeforeOpened checks handlers that are removed while the first place of their
// scope is written: the place moves with those that are left.
func TestRemovedBeforeOpened(t *testing.T) {
	for name, others := range map[string]int{"the only one": 0, "one of two": 1} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "owner-a")
				slow := &slowLedger{come: make(chan struct{}), gate: make(chan struct{})}
				w.ledger = func(db *bolt.DB) store.Backend {
					slow.DB = db
					return slow
				}
				l := w.open()
				for range others {
					l.addHandler(enqueue{l})
				}
				r, err := l.inf.AddEventHandler(l.consumer.Handler(enqueue{l}))
				if err != nil {
					t.Fatal(err)
				}
				l.run()
				<-slow.come // in Opened
				if err := l.inf.RemoveEventHandler(r); err != nil {
					t.Error(err)
				}
				close(slow.gate)
				w.pass(5 * time.Second)
				if others == 0 {
					l.addHandler(enqueue{l})
				}
				l.begin()
				w.pass(5 * time.Second)
				l.want("at first", "owner-a")
				w.put("b", "owner-b")
				w.pass(5 * time.Second)
				l.want("live", "owner-b")
				want := durable.ScopeStatus{ResourceVersion: w.server.RV(), Handlers: 1, Everything: "there is no place"}
				got := l.consumer.Status().Scopes[0]
				if got.ID = ""; got != want {
					t.Errorf("status %+v, want %+v", got, want)
				}
				l.end()
			})
		})
	}
}

// endedFeed is the feed of an informer that has ended.
type endedFeed struct{ feedOf }

func (*endedFeed) Mark() (store.Place, uint64, bool) { return store.Place{}, 0, false }
func (*endedFeed) Ended() bool                       { return true }

// TestEndedBeforeOpened checks an informer that has ended before its handler is a member:
// one that was made anew may have come first.
func TestEndedBeforeOpened(t *testing.T) {
	inBubble(t, func(w *world) {
		db, c := w.openConsumer()
		opened := func(f resume.Feed) { c.Handler(cache.ResourceEventHandlerFuncs{}).(resume.Handler).Opened(f) }
		opened(&feedOf{keys: &[]string{}})
		opened(&endedFeed{feedOf{keys: &[]string{}}})
		if s := c.Status().Scopes; len(s) != 1 || s[0].Handlers != 1 {
			t.Errorf("scopes %+v, want one with one handler", s)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestEndedInformer checks that nothing but the place stays of a scope whose informer has
// ended, and that another informer of the scope goes on from there.
func TestEndedInformer(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		l = w.start(1).begin()
		w.pass(11 * time.Minute)
		w.put("b", "owner-b")
		w.pass(500 * time.Millisecond)
		l.stop()
		w.pass(5 * time.Second)
		l.want("live", "owner-b")
		want := durable.ScopeStatus{ResourceVersion: w.server.RV()}
		got := l.consumer.Status().Scopes[0]
		if got.ID = ""; got != want {
			t.Errorf("status %+v, want %+v", got, want)
		}
		w.put("c", "owner-c")
		l.inf = w.informer(l.db)
		l.addHandler(enqueue{l})
		l.run()
		w.pass(5 * time.Second)
		l.wantCalls("of the next informer", "add c of owner-c")
		want = durable.ScopeStatus{ResourceVersion: w.server.RV(), Handlers: 1}
		got = l.consumer.Status().Scopes[0]
		if got.ID = ""; got != want {
			t.Errorf("status %+v, want %+v", got, want)
		}
		l.end()
		l = w.start(1).begin()
		w.pass(time.Minute)
		l.want("after a restart")
		l.end()
	})
}
