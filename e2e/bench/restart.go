package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	crcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	crsource "sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

const (
	reconcilers = 10
	// reconcileTime is how long a reconcile takes, as one request to a server does.
	reconcileTime = 5 * time.Millisecond
	// changedPerMille of the objects are changed while the controller is down.
	changedPerMille = 1
	// calm is how many reconciles at most there are while a controller has settled.
	calm = 10
)

// restart measures the second start of a controller of controller-runtime whose first
// one has reconciled every object: how many objects it reconciles, and how long it takes
// until those are that were changed meanwhile. Ours has a durable consumer.
func (c *child) restart(ctx context.Context, lw cache.ListerWatcher) error {
	if err := remove(c.File); err != nil {
		return err
	}
	first, err := c.control(ctx, lw)
	if err != nil {
		return err
	}
	if err := first.wait(ctx, func(r *reconciles) bool { return r.count >= c.Objects }); err != nil {
		return errors.Join(err, first.stop())
	}
	if err := first.stop(); err != nil {
		return err
	}
	changed := max(1, c.Objects*changedPerMille/1000)
	if _, err := c.server.ask(ctx, "change", changed, 0); err != nil {
		return err
	}
	bytes, requests, cpu, began := c.traffic.bytes.Load(), c.traffic.requests.Load(), cpuSeconds(), time.Now()
	second, err := c.control(ctx, lw)
	if err != nil {
		return err
	}
	err = second.wait(ctx, func(r *reconciles) bool { return len(r.changed) >= changed })
	c.figures["changed"] = time.Since(began).Seconds()
	// What trickles does not end.
	for before := -1; err == nil && second.number()-before > calm; {
		before, began = second.number(), time.Now()
		err = second.wait(ctx, func(*reconciles) bool { return time.Since(began) > c.Quiet })
	}
	c.figures["reconciles"] = float64(second.number())
	c.figures["cpu"] = cpuSeconds() - cpu
	c.figures["bytes"], c.figures["requests"] = float64(c.traffic.bytes.Load()-bytes), float64(c.traffic.requests.Load()-requests)
	return errors.Join(err, second.stop())
}

// reconciles counts what a controller does.
type reconciles struct {
	inf  cache.SharedIndexInformer
	stop func() error

	mu      sync.Mutex // protects the fields below
	count   int
	changed map[string]struct{} // objects that the server has changed
}

// control starts a controller of the kind's objects.
func (c *child) control(ctx context.Context, lw cache.ListerWatcher) (*reconciles, error) {
	r := &reconciles{changed: map[string]struct{}{}}
	options := crcontroller.Options{
		Reconciler: reconcile.Func(r.reconcile), MaxConcurrentReconciles: reconcilers,
		SkipNameValidation: new(true), LogConstructor: func(*reconcile.Request) logr.Logger { return logr.Discard() },
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })
		},
	}
	closeAll := func() error { return nil }
	watched := cache.SharedIndexInformer(nil)
	if c.Ours {
		db, err := bolt.Open(c.File, bolt.Options{})
		if err != nil {
			return nil, err
		}
		consumer, err := durable.Open(db, "bench", durable.Options{Version: "1"})
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		closeAll = func() error { return errors.Join(consumer.Close(), db.Close()) }
		ours, err := informer.New(lw, c.kind.example(), informer.Options{Backend: db})
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		r.inf, watched = ours, durableInformer{ours, consumer}
		options.NewQueue = controllerruntime.NewQueue(consumer)
	} else {
		r.inf = cache.NewSharedIndexInformer(lw, c.kind.example(), 0, cache.Indexers{})
		watched = r.inf
	}
	ctl, err := crcontroller.NewUnmanaged("bench", options)
	if err == nil {
		err = ctl.Watch(&crsource.Informer{Informer: watched, Handler: &handler.EnqueueRequestForObject{}})
	}
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	var failed error
	running.Go(func() { failed = ctl.Start(ctx) })
	running.Go(func() { r.inf.RunWithContext(ctx) })
	r.stop = func() error {
		cancel()
		running.Wait()
		return errors.Join(failed, closeAll())
	}
	return r, nil
}

func (r *reconciles) reconcile(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
	obj, exists, err := r.inf.GetIndexer().GetByKey(request.String())
	if err != nil || !exists {
		return reconcile.Result{}, err
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return reconcile.Result{}, err
	}
	time.Sleep(reconcileTime)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if _, changed := accessor.GetAnnotations()[sentKey]; changed {
		r.changed[request.String()] = struct{}{}
	}
	return reconcile.Result{}, nil
}

func (r *reconciles) number() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

func (r *reconciles) wait(ctx context.Context, done func(*reconciles) bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		r.mu.Lock()
		over := done(r)
		r.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("after %d reconciles: %w", r.number(), ctx.Err())
		}
	}
}

// durableInformer adds handlers to a consumer.
type durableInformer struct {
	cache.SharedIndexInformer
	consumer *durable.Consumer
}

// AddEventHandlerWithOptions implements cache.SharedInformer.
func (i durableInformer) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.consumer.Handler(h), o)
}
