package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestAddAfterOfDueKey checks that a delay is recorded although an earlier one is over,
// and its key waits for a worker.
func TestAddAfterOfDueKey(t *testing.T) {
	for name, killed := range map[string]bool{"lives": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				x := cache.ObjectName{Namespace: "default", Name: "x"}
				l := w.start(0)
				l.queue.AddAfter(x, 10*time.Second)
				w.pass(15 * time.Second) // it is due; no worker is free
				l.queue.AddAfter(x, time.Hour)
				l.begin()
				l.want("at once", "x")
				w.pass(5 * time.Second)
				if killed {
					l.kill()
					l = w.start(0).begin()
				}
				w.pass(2 * time.Hour)
				l.want("in an hour", "x")
				l.end()
			})
		})
	}
}

// TestForgetAfterDone checks that Forget may come after Done, as with client-go's queue.
func TestForgetAfterDone(t *testing.T) {
	inBubble(t, func(w *world) {
		x := cache.ObjectName{Namespace: "default", Name: "x"}
		l := w.start(0)
		l.queue.Add(x)
		got, _ := l.queue.Get()
		l.queue.Done(got)
		l.queue.Forget(got)
		w.pass(5 * time.Second)
		if s := l.consumer.Status(); s.Unresolved != 0 {
			t.Errorf("%d unresolved, want none", s.Unresolved)
		}
		l.kill()
		l = w.start(0).begin()
		w.pass(time.Minute)
		l.want("after the restart")
		l.end()
	})
}

// TestAddAfterAfterDone checks that a delay may be asked for after Done.
func TestAddAfterAfterDone(t *testing.T) {
	inBubble(t, func(w *world) {
		x := cache.ObjectName{Namespace: "default", Name: "x"}
		l := w.start(0)
		l.queue.Add(x)
		got, _ := l.queue.Get()
		l.queue.Done(got)
		l.queue.AddAfter(got, time.Hour)
		w.pass(5 * time.Second)
		l.kill()
		l = w.start(0).begin()
		w.pass(30 * time.Minute)
		l.want("before the hour is over")
		w.pass(time.Hour)
		l.want("after it", "x")
		l.end()
	})
}

// TestClockWasBack checks that a delayed key that was worked on is done, whatever the
// clock said.
func TestClockWasBack(t *testing.T) {
	var path string
	for _, ahead := range []time.Duration{240 * time.Hour, 0} {
		inBubble(t, func(w *world) {
			if path != "" {
				w.path = path
			}
			w.pass(ahead)
			l := w.start(0)
			if ahead > 0 {
				l.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: "later"}, time.Hour)
				w.pass(5 * time.Second)
				l.end()
				path = w.path
				return
			}
			l.begin()
			w.pass(2 * time.Hour)
			l.want("after it", "later")
			if s := l.consumer.Status(); s.Delayed != 0 {
				t.Errorf("%d delayed, want none: it was worked on and forgotten", s.Delayed)
			}
			l.end()
		})
	}
}

// TestDelayOfWorkedOn checks that a delay that was left is kept although its key is added
// and worked on before the consumer is active.
func TestDelayOfWorkedOn(t *testing.T) {
	for name, wait := range map[string]time.Duration{"written meanwhile": time.Minute, "at once": 0} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				shared := w.shared()
				later := cache.ObjectName{Namespace: "default", Name: "later"}
				l := w.start(1).begin()
				l.queue.AddAfter(later, time.Hour)
				w.pass(time.Minute)
				l.end()
				shared.fail(errors.New("forbidden"))
				l = w.start(1).begin()
				l.queue.Add(later)
				l.want("before it is active", "later")
				w.pass(wait)
				shared.fail(nil)
				w.pass(time.Minute)
				l.want("when it is")
				l.kill()
				l = w.start(1).begin()
				l.wantDelayed(57*time.Minute-wait, 2*time.Hour)
			})
		})
	}
}

// feedOf is the feed of a handler over objects that go between two sweeps.
type feedOf struct {
	keys  *[]string
	got   []string
	after func()
}

func (f *feedOf) Scope() (store.Scope, bool)        { return store.Scope{Resource: "configmaps"}, true }
func (f *feedOf) Begin(store.Place, bool)           {}
func (f *feedOf) First() store.Place                { return store.Place{} }
func (f *feedOf) Last() store.Place                 { return store.Place{} }
func (f *feedOf) Mark() (store.Place, uint64, bool) { return store.Place{}, 0, true }
func (f *feedOf) Passed(uint64) bool                { return true }
func (f *feedOf) Ended() bool                       { return false }
func (f *feedOf) Flush(context.Context) error       { return nil }
func (f *feedOf) Len() int                          { return len(*f.keys) }
func (f *feedOf) Live() bool                        { return true }
func (f *feedOf) Sweep(after string, limit int) (string, bool, error) {
	n := 0
	for _, k := range *f.keys {
		if k > after && n < limit {
			f.got, after, n = append(f.got, k), k, n+1
		}
	}
	if f.after != nil {
		f.after()
		f.after = nil
	}
	return after, n == limit, nil
}

// TestSweepOfTwo checks that no handler misses an object if another one goes between the
// sweeps of two handlers.
func TestSweepOfTwo(t *testing.T) {
	inBubble(t, func(w *world) {
		db, err := bolt.Open(w.path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := durable.Open(db, "sweep", durable.Options{Every: 8 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		first, second := &feedOf{keys: &keys}, &feedOf{keys: &keys}
		first.after = func() { keys = keys[1:] } // a is deleted
		c.Handler(cache.ResourceEventHandlerFuncs{}).(resume.Handler).Opened(first)
		c.Handler(cache.ResourceEventHandlerFuncs{}).(resume.Handler).Opened(second)
		w.pass(8 * time.Second)
		w.pass(500 * time.Millisecond)
		seen := map[string]bool{}
		for _, k := range first.got {
			seen[k] = true
		}
		if !seen["b"] {
			t.Errorf("the first handler never received b in this sweep: %v, and the second %v", first.got, second.got)
		}
		_ = c.Close()
		_ = db.Close()
	})
}
