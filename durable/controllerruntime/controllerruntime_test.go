package controllerruntime_test

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/store/bolt"
)

// TestQueue checks that a queue is a priority queue to controller-runtime, and that the
// next process gets what was left with its priority and its failures.
func TestQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	request := func(name string) reconcile.Request {
		return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "a", Name: name}}
	}
	var consumer *durable.Consumer
	open := func() (q priorityqueue.PriorityQueue[reconcile.Request], end func()) {
		t.Helper()
		db, c := openConsumer(t, path)
		consumer = c
		limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, 24*time.Hour)
		q, ok := controllerruntime.NewQueue(c)("a", limiter).(priorityqueue.PriorityQueue[reconcile.Request])
		if !ok {
			t.Fatal("it is no priority queue")
		}
		return q, func() {
			t.Helper()
			q.ShutDown()
			if err := errors.Join(c.Close(), db.Close()); err != nil {
				t.Error(err)
			}
		}
	}
	get := func(q priorityqueue.PriorityQueue[reconcile.Request], name string, priority int) {
		t.Helper()
		got, p, over := q.GetWithPriority()
		if over || got != request(name) || p != priority {
			t.Errorf("got %v with priority %d, want %s with %d", got, p, name, priority)
		}
	}
	q, end := open()
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, request("low"))
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(5)}, request("high"), request("failed"))
	q.Add(request("normal"))
	get(q, "high", 5)
	q.Forget(request("high"))
	q.Done(request("high"))
	get(q, "failed", 5)
	q.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request("failed"))
	q.Done(request("failed"))
	end()
	q, end = open()
	get(q, "normal", 0)
	// Asked for again, and then added at once: the queue has one place for a key.
	q.AddWithOpts(priorityqueue.AddOpts{After: time.Hour}, request("normal"))
	q.Done(request("normal"))
	q.Add(request("normal"))
	get(q, "normal", 0)
	q.Forget(request("normal"))
	q.Done(request("normal"))
	get(q, "low", handler.LowPriority)
	if s := consumer.Status(); s.Delayed != 1 || s.Waiting != 0 || s.InWork != 1 {
		t.Errorf("status %+v, want the failed one delayed and the low one in work", s)
	}
	if n := q.NumRequeues(request("failed")); n != 1 || q.Len() != 0 {
		t.Errorf("failed has %d failures, and %d wait; want 1 and 0", n, q.Len())
	}
	end()
}

// logged has what controller-runtime has logged since logTo was called.
var logged = make(chan string, 100)

// logTo makes controller-runtime log to logged. Its logger can be set once.
var logTo = sync.OnceFunc(func() {
	log.SetLogger(funcr.New(func(_, args string) {
		select {
		case logged <- args:
		default: // nobody reads it
		}
	}, funcr.Options{Verbosity: 5}))
})

// openConsumer opens a file and a consumer of it.
func openConsumer(t *testing.T, path string) (*bolt.DB, *durable.Consumer) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := durable.Open(db, "a", durable.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return db, c
}

// TestQueueLogs checks that the queue logs what is in it, as controller-runtime's own
// does.
func TestQueueLogs(t *testing.T) {
	logTo()
	for len(logged) > 0 {
		<-logged
	}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		db, c := openConsumer(t, filepath.Join(dir, "informers.db"))
		q := controllerruntime.NewQueue(c)("widgets", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		pass(15 * time.Second)
		q.ShutDown()
		if err := errors.Join(c.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	for len(logged) > 0 {
		if line := <-logged; strings.Contains(line, `"workqueue_items"`) && strings.Contains(line, `"controller"="widgets"`) {
			return
		}
	}
	t.Error("it has not logged what is in it")
}
