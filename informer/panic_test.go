package informer_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/mem"
)

// countPanics keeps panics from ending the process, and counts those that apimachinery's
// handlers receive.
func countPanics(t *testing.T) *atomic.Int32 {
	t.Helper()
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers })
	utilruntime.ReallyCrash = false
	told := &atomic.Int32{}
	utilruntime.PanicHandlers = []func(context.Context, any){func(context.Context, any) { told.Add(1) }}
	return told
}

// listing is a ListerWatcher that calls a function before each list.
type listing struct {
	withoutStreams
	before func(metav1.ListOptions)
}

// ListWithContext implements cache.ListerWithContext.
func (l listing) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	l.before(opts)
	return l.withoutStreams.ListWithContext(ctx, opts)
}

// TestPanicBeforeScope checks that a panic of a Factory's informer that does not know its
// scope yet goes to apimachinery's handlers, and that the informer goes on if these do
// not end the process.
func TestPanicBeforeScope(t *testing.T) {
	for name, c := range map[string]struct {
		lists   int  // so many lists panic, after
		after   int  // so many that do not
		handler bool // the error handler panics, and the server is down for a minute
	}{
		"error handler":            {handler: true},
		"question for the scope":   {lists: 1},
		"question for the cluster": {lists: 1, after: 1},
		"whether a server is up":   {lists: 2, after: 1},
	} {
		t.Run(name, func(t *testing.T) {
			told := countPanics(t)
			inBubble(t, func(w *world) {
				a, down := &address{}, &atomic.Bool{}
				a.set(w.server, "one", nil)
				w.put("a", "1")
				down.Store(c.handler)
				cfg := &rest.Config{Host: "http://api.example", Transport: refusingAll(a, http.StatusServiceUnavailable, down)}
				r := &run{w: w, done: make(chan struct{}), db: w.open()}
				factory, client := clientOf(w, r.db, cfg, informer.FactoryOptions{})
				var lists atomic.Int32
				lw := configMapsOf(client)
				r.inf = factory.NewInformer(listing{withoutStreams{lw}, func(metav1.ListOptions) {
					if n := int(lists.Add(1)); n > c.after && n <= c.after+c.lists {
						panic("list")
					}
				}}, &corev1.ConfigMap{}, 0, nil).(*informer.Informer)
				if err := r.inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {
					if c.handler {
						panic("handler")
					}
				}); err != nil {
					w.Fatal(err)
				}
				r.start()
				waitFor(time.Minute)
				down.Store(false)
				r.sync()
				if !r.inf.Persisted() {
					w.Errorf("in memory: %s", r.inf.Status().Memory)
				}
				r.end()
			})
			if n := int(told.Load()); n == 0 || !c.handler && n != c.lists {
				t.Errorf("%d panics were told", n)
			}
		})
	}
}

// panicking is a backend whose first Open panics.
type panicking struct {
	store.Backend
	opened atomic.Bool
}

// Open implements store.Backend.
func (b *panicking) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	if !b.opened.Swap(true) {
		panic("open")
	}
	return b.Backend.Open(scope, opts)
}

// TestPanicOfBackend checks that Run ends after a panic that does not end the process, as
// client-go's does, and that the next informer has the scope.
func TestPanicOfBackend(t *testing.T) {
	told := countPanics(t)
	inBubble(t, func(w *world) {
		b := &panicking{Backend: mem.New()}
		r := w.run(informer.Options{Backend: b})
		<-r.done
		if n := informer.Leases(b); n != 0 || told.Load() != 1 {
			w.Errorf("%d informers are held, %d panics were told", n, told.Load())
		}
		if err := r.inf.AddIndexers(cache.Indexers{}); err == nil {
			w.Error("the informer has not ended")
		}
		next := w.run(informer.Options{Backend: b}).sync()
		if !next.inf.Persisted() {
			w.Errorf("in memory: %s", next.inf.Status().Memory)
		}
		next.end()
		r.end()
	})
}

// TestPanicOfAudit checks that an audit which panics fails, and that the next one is
// made.
func TestPanicOfAudit(t *testing.T) {
	told := countPanics(t)
	inBubble(t, func(w *world) {
		var panics atomic.Bool
		inner := cache.ToListerWatcherWithContext(w.server)
		w.lw = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				if opts.Limit > 1 && panics.Swap(false) {
					panic("list")
				}
				return inner.ListWithContext(ctx, opts)
			},
			WatchFuncWithContext: inner.WatchWithContext,
		}
		w.put("a", "1")
		r := w.run(informer.Options{AuditInterval: time.Hour}).sync()
		panics.Store(true)
		waitFor(90 * time.Minute)
		if s := r.inf.Status().Audit; s == nil || s.Count != 0 || !strings.Contains(s.Error, "list") {
			w.Errorf("after the panic: %+v", s)
		}
		waitFor(90 * time.Minute)
		if s := r.inf.Status().Audit; s == nil || s.Count == 0 || s.Error != "" {
			w.Errorf("later: %+v", s)
		}
		r.end()
	})
	if n := told.Load(); n != 1 {
		t.Errorf("%d panics were told", n)
	}
}
