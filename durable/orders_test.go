package durable_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

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

// TestInterruptedBeforeDelay checks that a key whose work ends without Forget runs after
// the next start, and again at the time of an earlier delay, unless that work has added
// it.
func TestInterruptedBeforeDelay(t *testing.T) {
	for name, again := range map[string]bool{"interrupted": false, "tried again": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				x := cache.ObjectName{Namespace: "default", Name: "x"}
				l := w.start(0)
				l.queue.AddAfter(x, time.Hour)
				l.queue.Add(x)
				got, _ := l.queue.Get()
				unresolved, atStart := 1, []string{"x"}
				if again {
					l.queue.AddAfter(got, 2*time.Hour)
					unresolved, atStart = 0, nil
				}
				l.queue.Done(got)
				w.pass(5 * time.Second)
				if s := l.consumer.Status(); s.Unresolved != unresolved || s.Delayed != 1 {
					t.Errorf("status %+v, want %d unresolved and one delayed", s, unresolved)
				}
				l.end()
				l = w.start(0).begin()
				w.pass(30 * time.Minute)
				l.want("after the start", atStart...)
				w.pass(time.Hour)
				l.want("in an hour", "x")
				l.end()
				l = w.start(0).begin()
				w.pass(3 * time.Hour)
				l.want("when all is done")
				l.end()
			})
		})
	}
}

// panicsOnce is a rate limiter whose first call of When panics.
type panicsOnce struct {
	workqueue.TypedRateLimiter[cache.ObjectName]
	once sync.Once
}

func (l *panicsOnce) When(item cache.ObjectName) time.Duration {
	l.once.Do(func() { panic("a rate limiter") })
	return l.TypedRateLimiter.When(item)
}

// refuses is a codec that panics until it is told not to.
type refuses struct {
	durable.Codec[cache.ObjectName]
	refuses bool
}

func (c *refuses) Encode(item cache.ObjectName) ([]byte, error) {
	if c.refuses {
		panic("a codec")
	}
	return c.Codec.Encode(item)
}

// TestPanicOfLimiter checks that a panic of the program's rate limiter or codec leaves
// the consumer to the other workers, where the process goes on.
func TestPanicOfLimiter(t *testing.T) {
	inBubble(t, func(w *world) {
		db, c := w.openConsumer()
		limiter := &panicsOnce{TypedRateLimiter: workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()}
		codec := &refuses{Codec: durable.ObjectNames}
		inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
		queue := durable.WrapQueue(c, limiter, codec, inner)
		panics := func(what string, f func()) {
			t.Helper()
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", what)
				}
			}()
			f()
		}
		x, y := cache.ObjectName{Namespace: "default", Name: "x"}, cache.ObjectName{Namespace: "default", Name: "y"}
		panics("When", func() { queue.AddRateLimited(x) })
		codec.refuses = true
		inner.Add(y) // nobody has recorded it
		panics("Encode", func() { _, _ = queue.Get() })
		inner.Done(y)
		codec.refuses = false
		queue.Add(x)
		if got, _ := queue.Get(); got != x {
			t.Errorf("got %v, want %v", got, x)
		}
		queue.Forget(x)
		queue.Done(x)
		if err := errors.Join(c.Close(), db.Close()); err != nil {
			t.Error(err)
		}
		inner.ShutDown()
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

// TestStatusesWhileOpened checks that no status is that of a consumer that is read still.
func TestStatusesWhileOpened(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	left := map[string][]byte{"state": []byte(`{"version":""}`)}
	for i := range 50 {
		left[fmt.Sprint("place/", i)] = []byte(`{"lineage":"a","mark":1,"resourceVersion":"1","handlers":1}`)
	}
	for i := range 10_000 {
		left[fmt.Sprint("key/default/", i)] = []byte(`{"waits":true}`)
	}
	if err := db.SetLedger(t.Context(), "consumer/test", left); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		asked, opened := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(asked)
			for {
				for _, s := range durable.Statuses(db) {
					if len(s.Scopes) != 50 {
						t.Errorf("a status has %d scopes of 50", len(s.Scopes))
					}
				}
				select {
				case <-opened:
					return
				default:
				}
			}
		}()
		c, err := durable.Open(db, "test", durable.Options{})
		if err != nil {
			t.Fatal(err)
		}
		close(opened)
		<-asked
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWorkerAfterClose checks that a worker that still takes keys after Close writes
// nothing into the ledger, which the next consumer of the name has.
func TestWorkerAfterClose(t *testing.T) {
	inBubble(t, func(w *world) {
		var ledger fullLedger
		w.opts.CommitFirst = true
		w.ledger = func(db *bolt.DB) store.Backend {
			ledger.DB = db
			return &ledger
		}
		w.put("a", "owner-a")
		l := w.start(1)
		release := make(chan struct{})
		l.work = func(name string) outcome {
			if name == "owner-b" {
				<-release
			}
			return outcome{}
		}
		l.begin()
		w.pass(time.Minute)
		w.put("b", "owner-b")
		w.pass(time.Minute) // it is in work
		ledger.isFull.Store(true)
		w.put("c", "owner-c")
		w.put("d", "owner-d")
		w.pass(time.Minute)
		l.queue.ShutDown()
		l.stop()
		synctest.Wait()
		if err := l.consumer.Close(); err == nil {
			t.Error("Close has written what could not be written")
		}
		ledger.isFull.Store(false)
		next, err := durable.Open(&ledger, "test", w.opts)
		if err != nil {
			t.Fatal(err)
		}
		before, err := ledger.Ledger(w.Context(), "consumer/test")
		if err != nil {
			t.Fatal(err)
		}
		before = maps.Clone(before)
		close(release)
		l.running.Wait()
		after, err := ledger.Ledger(w.Context(), "consumer/test")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the ledger of the next consumer (-before +after):\n%s", diff)
		}
		if err := errors.Join(next.Close(), l.db.Close()); err != nil {
			t.Error(err)
		}
	})
}
