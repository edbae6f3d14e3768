// Package controllerruntime lets controllers of controller-runtime go on after a restart
// with what is left to do; see package durable. It takes one line and one option:
//
//	options := durable.Options{Version: "1", Elected: mgr.Elected()}
//	c, err := durable.Open(db, "widgets", options)
//	...
//	err = ctrl.NewControllerManagedBy(controllerruntime.Manager(c, mgr)).
//		For(&v1.Widget{}).Owns(&corev1.Pod{}).
//		WithOptions(controller.Options{NewQueue: controllerruntime.NewQueue(c)}).
//		Complete(r)
//	// After an error, or with a GracefulShutdownTimeout of 0, reconcilers may still
//	// run: end without Close then.
//	if err = mgr.Start(ctx); err == nil {
//		err = errors.Join(c.Close(), db.Close())
//	}
//
// db is the backend of the manager's informers. A consumer is of one controller. What the
// controller watches with For, Owns and Watches goes on; predicates and functions that
// map events to requests are part of what is confirmed.
package controllerruntime

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable"
)

// Manager returns a manager for the builder of one controller: its cache is Cache. A
// controller that does not need to be the leader makes the consumer active although its
// Options.Elected is not closed.
func Manager(c *durable.Consumer, m manager.Manager) manager.Manager {
	return &wrapped{m, c}
}

type wrapped struct {
	manager.Manager
	c *durable.Consumer
}

// GetCache implements cluster.Cluster.
func (w *wrapped) GetCache() cache.Cache { return Cache(w.c, w.Manager.GetCache()) }

// Add implements manager.Manager.
func (w *wrapped) Add(r manager.Runnable) error {
	_, isController := r.(reconcile.Reconciler)
	if e, ok := r.(manager.LeaderElectionRunnable); ok && isController && !e.NeedLeaderElection() {
		w.c.Activate()
	}
	return w.Manager.Add(r)
}

// Cache returns a cache whose informers add handlers to the consumer. It is for
// source.Kind and for the caches of other clusters; Manager uses it.
func Cache(c *durable.Consumer, k cache.Cache) cache.Cache { return &durableCache{k, c} }

type durableCache struct {
	cache.Cache
	c *durable.Consumer
}

// GetInformer implements cache.Informers.
func (k *durableCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	inf, err := k.Cache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return &informer{inf, k.c, ctx}, nil
}

// GetInformerForKind implements cache.Informers.
func (k *durableCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	inf, err := k.Cache.GetInformerForKind(ctx, gvk, opts...)
	if err != nil {
		return nil, err
	}
	return &informer{inf, k.c, ctx}, nil
}

// informer adds handlers to a consumer.
type informer struct {
	cache.Informer
	c   *durable.Consumer
	ctx context.Context // with which it was asked for
}

// handler returns what is added for a handler.
func (i *informer) handler(h toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	t := reflect.TypeOf(h)
	if t != nil && t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/controller-runtime/pkg/internal/source") {
		h = &ending{h, i.c, i.ctx}
	}
	return i.c.Handler(h)
}

// ending is the handler of a source.Kind, which has the context with which it has asked
// for the informer. When that ends, a map function that asks the API server gets an error
// and returns no requests. So an event during whose call it has ended is received once
// more by the next process, whether the queue has been told to end by then or not.
type ending struct {
	toolscache.ResourceEventHandler
	c   *durable.Consumer
	ctx context.Context
}

func (e *ending) freeze() {
	if e.ctx.Err() != nil {
		e.c.Freeze()
	}
}

// OnAdd implements cache.ResourceEventHandler.
func (e *ending) OnAdd(obj any, isInInitialList bool) {
	defer e.freeze()
	e.ResourceEventHandler.OnAdd(obj, isInInitialList)
}

// OnUpdate implements cache.ResourceEventHandler.
func (e *ending) OnUpdate(before, obj any) {
	defer e.freeze()
	e.ResourceEventHandler.OnUpdate(before, obj)
}

// OnDelete implements cache.ResourceEventHandler.
func (e *ending) OnDelete(obj any) {
	defer e.freeze()
	e.ResourceEventHandler.OnDelete(obj)
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(i.handler(h))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(
	h toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(i.handler(h), period)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(
	h toolscache.ResourceEventHandler, opts toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(i.handler(h), opts)
}

// NewQueue returns what controller.Options.NewQueue takes: the durable queue of a
// consumer, which is a priorityqueue.PriorityQueue around controller-runtime's own.
func NewQueue(
	c *durable.Consumer,
) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		inner := inner{priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) {
			o.Log = log.Log.WithValues("controller", name)
		})}
		outer := durable.WrapQueue(c, limiter, requests{}, inner)
		return &queue{outer, outer.(prioritized), c} //nolint:forcetypeassert // as WrapQueue says
	}
}

// inner is controller-runtime's queue as WrapQueue needs it.
type inner struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

var _ durable.Prioritized[reconcile.Request] = inner{}

// AddWithPriority implements durable.Prioritized.
func (q inner) AddWithPriority(item reconcile.Request, after time.Duration, priority *int) {
	q.AddWithOpts(priorityqueue.AddOpts{After: after, Priority: priority}, item)
}

// prioritized is what WrapQueue returns around an inner.
type prioritized interface {
	durable.Prioritized[reconcile.Request]
	AddRateLimitedWithPriority(item reconcile.Request, priority *int)
}

// queue is a priorityqueue.PriorityQueue.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	prioritized prioritized
	c           *durable.Consumer
}

var _ priorityqueue.PriorityQueue[reconcile.Request] = (*queue)(nil)

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, items ...reconcile.Request) {
	for _, item := range items {
		if o.RateLimited {
			q.prioritized.AddRateLimitedWithPriority(item, o.Priority)
		}
		if !o.RateLimited || o.After > 0 {
			q.prioritized.AddWithPriority(item, o.After, o.Priority)
		}
	}
}

// ShutDown implements workqueue.TypedInterface. The controller calls it when its context
// ends, but its informers run on, and their handlers have that context: a map function
// that asks the API server gets an error then, and returns no requests. So the next
// process receives these events once more.
func (q *queue) ShutDown() {
	q.c.Freeze()
	q.TypedRateLimitingInterface.ShutDown()
}

// ShutDownWithDrain implements workqueue.TypedInterface.
func (q *queue) ShutDownWithDrain() {
	q.c.Freeze()
	q.TypedRateLimitingInterface.ShutDownWithDrain()
}

// GetWithPriority implements priorityqueue.PriorityQueue.
func (q *queue) GetWithPriority() (item reconcile.Request, priority int, shutdown bool) {
	return q.prioritized.GetWithPriority()
}

// requests is the durable.Codec of reconcile.Request. A name may have slashes.
type requests struct{}

// Encode implements durable.Codec.
func (requests) Encode(r reconcile.Request) ([]byte, error) {
	if strings.Contains(r.Namespace, "/") {
		return nil, fmt.Errorf("the namespace %q of a request has a slash; want one without", r.Namespace)
	}
	return []byte(r.Namespace + "/" + r.Name), nil
}

// Decode implements durable.Codec.
func (requests) Decode(b []byte) (r reconcile.Request, err error) {
	namespace, name, ok := strings.Cut(string(b), "/")
	if !ok {
		return r, fmt.Errorf("%q is not NAMESPACE/NAME", b)
	}
	r.Namespace, r.Name = namespace, name
	return r, nil
}
