package informer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
)

// permitted is what lists and watches the world's ConfigMaps, of which one is forbidden.
func (w *world) permitted(lists bool) cache.ListerWatcher {
	lw := &cache.ListWatch{ListWithContextFunc: w.server.ListWithContext, WatchFuncWithContext: w.server.WatchWithContext}
	if lists {
		lw.WatchFuncWithContext = func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("cannot watch"))
		}
		return lw
	}
	lw.ListWithContextFunc = func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "", errors.New("cannot list"))
	}
	return lw
}

// outage takes the server away for a second.
func (w *world) outage() {
	w.server.Down()
	waitFor(time.Second)
	w.server.Up()
}

// testPermitted checks that an informer which may only list, or only watch, goes on after
// an outage, and starts warm, even when the collection is not small any more. client-go's
// does the first.
func testPermitted(t *testing.T, lists bool) {
	t.Run("client-go", func(t *testing.T) {
		quietErrors(t)
		inBubble(t, func(w *world) {
			w.put("a", "1")
			inf := cache.NewSharedIndexInformer(w.permitted(lists), &corev1.ConfigMap{}, 0, nil)
			_ = inf.SetWatchErrorHandler(func(*cache.Reflector, error) {})
			ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{}))
			done := make(chan struct{})
			go func() { defer close(done); inf.RunWithContext(ctx) }()
			waitFor(time.Minute)
			w.outage()
			w.put("b", "1")
			waitFor(10 * time.Minute)
			if keys := inf.GetStore().ListKeys(); len(keys) != 2 || !inf.HasSynced() {
				t.Errorf("synced %t, holds %q", inf.HasSynced(), keys)
			}
			cancel()
			<-done
		})
	})
	t.Run("ours", func(t *testing.T) {
		inBubble(t, func(w *world) {
			w.put("a", "1")
			w.lw = w.permitted(lists)
			want := func(when string, r *run, n int) {
				t.Helper()
				waitFor(10 * time.Minute)
				if s := r.inf.Status(); s.Objects != n || !s.Synced {
					t.Errorf("%s: synced %t, holds %d objects, want %d; %d errors, the last: %s", when, s.Synced, s.Objects, n, s.Errors, s.LastError)
				}
			}
			r := w.run(informer.Options{}).sync()
			waitFor(time.Minute)
			w.outage()
			w.put("b", "1")
			want("after an outage", r, 2)
			r.end()
			r = w.run(informer.Options{})
			want("warm", r, 2)
			r.end()
			for i := range 500 {
				w.put(fmt.Sprintf("o-%03d", i), "1")
			}
			r = w.run(informer.Options{})
			want("warm, with many more objects", r, 502)
			r.end()
		})
	})
}

// TestWatchOnly checks an informer that may watch and not list, which a streamed list
// does not need.
func TestWatchOnly(t *testing.T) { testPermitted(t, false) }

// TestListOnly checks an informer that may list and not watch, which lists again and
// again.
func TestListOnly(t *testing.T) { testPermitted(t, true) }
