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

// TestEndedInformerOfTwoHandlers checks that handlers stay while one of them may return
// from its last call, and that the next informer has what waited behind it.
func TestEndedInformerOfTwoHandlers(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "owner-a")
		l := w.start(2).begin()
		w.pass(time.Minute)
		l.end()
		l = w.open()
		releases := []chan struct{}{make(chan struct{}), make(chan struct{})}
		for _, release := range releases {
			slow := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-release }}
			if _, err := l.inf.AddEventHandler(l.consumer.Handler(slow)); err != nil {
				t.Fatal(err)
			}
		}
		l.run()
		l.begin()
		w.pass(time.Minute)
		w.put("b", "owner-b")
		w.pass(5 * time.Second)
		w.put("c", "owner-c") // it waits behind b
		w.pass(time.Second)
		l.stop()
		for i, release := range releases {
			w.pass(5 * time.Second)
			if n := l.consumer.Status().Scopes[0].Handlers; n != 2 {
				t.Errorf("%d handlers while %d have returned, want 2", n, i)
			}
			close(release)
		}
		w.pass(5 * time.Second)
		if n := l.consumer.Status().Scopes[0].Handlers; n != 0 {
			t.Errorf("%d handlers at the end", n)
		}
		l.inf = w.informer(l.db)
		for range releases {
			l.addHandler(enqueue{l})
		}
		l.run()
		w.pass(5 * time.Second)
		if !l.hasWorked("owner-c") {
			t.Errorf("of the next informer: received %q", l.received())
		}
		l.end()
	})
}

// TestEndedInformerBeforePlace checks the same where the place stays behind what the log
// has: another informer of the scope goes on from there.
func TestEndedInformerBeforePlace(t *testing.T) {
	for name, isRemoved := range map[string]bool{
		"a handler was removed":      true,
		"a handler has not returned": false,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				handlers := 1
				if isRemoved {
					handlers = 2
				}
				w.put("a", "owner-a")
				l := w.start(handlers).begin()
				w.pass(time.Minute)
				l.end()
				l = w.open()
				release := make(chan struct{})
				slow := cache.ResourceEventHandlerFuncs{AddFunc: func(any) { <-release }}
				r, err := l.inf.AddEventHandler(l.consumer.Handler(slow))
				if err != nil {
					t.Fatal(err)
				}
				if isRemoved {
					l.addHandler(enqueue{l})
				}
				l.run()
				l.begin()
				w.pass(11 * time.Minute)
				if isRemoved {
					if err := l.inf.RemoveEventHandler(r); err != nil {
						t.Fatal(err)
					}
				}
				w.put("b", "owner-b")
				w.pass(time.Second)
				w.put("c", "owner-c") // it waits behind b
				w.pass(time.Second)
				l.stop()
				w.pass(5 * time.Second)
				if n := l.consumer.Status().Scopes[0].Handlers; !isRemoved && n != 1 {
					t.Errorf("%d handlers, want the one that may return", n)
				}
				close(release)
				w.pass(5 * time.Second)
				if s := l.consumer.Status().Scopes[0]; s.Handlers != 0 || s.Missing != 0 {
					t.Errorf("at the end: status %+v, want no handlers", s)
				}
				l.mu.Lock()
				clear(l.worked)
				l.mu.Unlock()
				l.inf = w.informer(l.db)
				for range handlers {
					l.addHandler(enqueue{l})
				}
				l.run()
				w.pass(5 * time.Second)
				if !l.hasWorked("owner-b") || !l.hasWorked("owner-c") || l.hasWorked("owner-a") {
					t.Errorf("of the next informer: received %q", l.received())
				}
				l.end()
			})
		})
	}
}
