package controllerruntime_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/store/bolt"
)

// hooked is controller-runtime's queue. after runs when it has handed a key out, before
// the durable queue knows.
type hooked struct {
	priorityqueue.PriorityQueue[cache.ObjectName]
	after func()
}

func (q *hooked) AddWithPriority(item cache.ObjectName, after time.Duration, priority *int) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: priority}, item)
}

func (q *hooked) GetWithPriority() (item cache.ObjectName, priority int, shutdown bool) {
	item, priority, shutdown = q.PriorityQueue.GetWithPriority()
	if q.after != nil {
		q.after()
		q.after = nil
	}
	return item, priority, shutdown
}

// TestDelayOfWaitingKey checks that a delay outlives that its key is worked on at once,
// although a queue with priorities has one place for a key: after a kill, if Get meets
// the delay, and if a process that was not active yet has worked on it.
func TestDelayOfWaitingKey(t *testing.T) {
	key := cache.ObjectName{Namespace: "a", Name: "key"}
	const inWork, inGet, early = "in work and killed", "during Get", "before the consumer is active"
	for _, name := range []string{inWork, inGet, early} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(dir, "informers.db")
				var consumer *durable.Consumer
				var queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
				var inner *hooked
				var opts durable.Options
				open := func() (end func()) {
					t.Helper()
					db, err := bolt.Open(path, bolt.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if consumer, err = durable.Open(db, "a", opts); err != nil {
						t.Fatal(err)
					}
					limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
					inner = &hooked{PriorityQueue: priorityqueue.New[cache.ObjectName]("a")}
					queue = durable.WrapQueue(consumer, limiter, durable.ObjectNames, inner)
					c, q := consumer, queue
					return func() {
						t.Helper()
						q.ShutDown()
						if err := errors.Join(c.Close(), db.Close()); err != nil {
							t.Error(err)
						}
					}
				}
				// killed ends the process: the next one finds the file as it was.
				killed := func(end func()) {
					t.Helper()
					pass(5 * time.Second)
					b, err := os.ReadFile(path)
					if err != nil {
						t.Fatal(err)
					}
					end()
					path += "-next"
					if err := os.WriteFile(path, b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				work := func() {
					t.Helper()
					if got, over := queue.Get(); over || got != key {
						t.Errorf("got %v, want %v", got, key)
					}
					queue.Forget(key)
					queue.Done(key)
				}
				begun := time.Now()
				end := open()
				switch name {
				case early:
					queue.AddAfter(key, time.Hour)
					end()
					elected := make(chan struct{})
					opts.Elected = elected
					end = open()
					queue.Add(key)
					work()
					pass(time.Minute) // nothing is left of it
					close(elected)
					pass(5 * time.Second)
				case inGet:
					queue.Add(key)
					inner.after = func() { queue.AddAfter(key, time.Hour) }
					work()
				case inWork:
					queue.Add(key)
					_, _ = queue.Get()
					queue.AddAfter(key, time.Hour)
					killed(end)
					end = open()
					work()
				}
				isDelayed := func(where string) bool {
					t.Helper()
					s := consumer.Status()
					if s.Delayed != 1 || s.Waiting != 0 {
						t.Errorf("in %s: status %+v, want one that is delayed", where, s)
					}
					return !t.Failed()
				}
				if isDelayed("the process that has worked") {
					killed(end)
					end = open()
				}
				if isDelayed("the next process") {
					work()
					if age := time.Since(begun); age < time.Hour || age > time.Hour+time.Minute {
						t.Errorf("it came after %s, want an hour", age)
					}
				}
				end()
			})
		})
	}
}

// TestInterruptedBeforeDelay checks that a request whose work ends without Forget, as
// after a terminal error, runs after the next start although a delay of it is pending.
func TestInterruptedBeforeDelay(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		key := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: "key"}}
		var consumer *durable.Consumer
		open := func() (q workqueue.TypedRateLimitingInterface[reconcile.Request], end func()) {
			t.Helper()
			db, c := openConsumer(t, filepath.Join(dir, "informers.db"))
			consumer = c
			limiter := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
			q = controllerruntime.NewQueue(c)("a", limiter)
			return q, func() {
				t.Helper()
				q.ShutDown()
				if err := errors.Join(c.Close(), db.Close()); err != nil {
					t.Error(err)
				}
			}
		}
		get := func(q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			t.Helper()
			if got, over := q.Get(); over || got != key {
				t.Errorf("got %v, want %v", got, key)
			}
		}
		begun := time.Now()
		q, end := open()
		q.Add(key)
		q.AddAfter(key, time.Hour) // by an event, while it waits
		get(q)
		q.Done(key)
		pass(5 * time.Second)
		if s := consumer.Status(); s.Unresolved != 1 || s.Delayed != 1 {
			t.Errorf("status %+v, want one that is unresolved and delayed", s)
		}
		end()
		q, end = open()
		for _, want := range []time.Duration{0, time.Hour} {
			if t.Failed() {
				break // it would wait for ever
			}
			get(q)
			if age := time.Since(begun); age < want || age > want+time.Minute {
				t.Errorf("it came after %s, want %s", age, want)
			}
			q.Forget(key)
			q.Done(key)
		}
		end()
	})
}

// pass lets time pass in the bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
