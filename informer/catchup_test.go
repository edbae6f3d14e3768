package informer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
)

// deletedAsWas is a ListerWatcher whose deletions have the resource version of the last
// state, as those of client-go's fakes and of servers without etcd.
func deletedAsWas(w *world, rvOf map[string]string) cache.ListerWatcher {
	inner := cache.ToListerWatcherWithContext(w.server)
	return &cache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			events, err := inner.WatchWithContext(ctx, opts)
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
				if e.Type == watch.Deleted {
					cm := e.Object.(*corev1.ConfigMap).DeepCopy()
					cm.ResourceVersion = rvOf[cm.Name]
					e.Object = cm
				}
				return e, true
			}), nil
		},
	}
}

// TestDeletionAtLastRV checks that a deletion with the resource version of the last state
// is no replay while an informer catches up.
func TestDeletionAtLastRV(t *testing.T) {
	for _, down := range []bool{false, true} {
		inBubble(t, func(w *world) {
			rvOf := map[string]string{}
			w.lw = deletedAsWas(w, rvOf)
			w.put("b", "1")
			rvOf["a"] = w.put("a", "1")
			told := &log{}
			r := w.run(informer.Options{}, handle(w, told)).sync()
			waitFor(time.Minute)
			if down {
				r.end()
			}
			w.drop("a")
			w.put("c", "1")
			if down {
				r = w.run(informer.Options{}, handle(w, told)).sync()
			}
			waitFor(time.Hour)
			if _, held, _ := r.inf.GetStore().GetByKey("default/a"); held {
				t.Errorf("deleted while down %t: a is held an hour after its deletion; told %q", down, told.take())
			}
			r.end()
		})
	}
}

// TestLowerWhileCatchingUp checks that a state with a lower resource version than the
// stored one is not lost while an informer catches up: it lists, since a watch that
// begins with the present state has such, too. Later it is applied.
func TestLowerWhileCatchingUp(t *testing.T) {
	for _, down := range []bool{false, true} {
		inBubble(t, func(w *world) {
			inner := cache.ToListerWatcherWithContext(w.server)
			w.lw = &cache.ListWatch{
				ListWithContextFunc: inner.ListWithContext,
				WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
					events, err := inner.WatchWithContext(ctx, opts)
					if err != nil {
						return nil, err
					}
					return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
						if cm, ok := e.Object.(*corev1.ConfigMap); ok && strings.HasPrefix(cm.Name, "a") && e.Type == watch.Modified {
							cm = cm.DeepCopy()
							cm.ResourceVersion = "1"
							e.Object = cm
						}
						return e, true
					}), nil
				},
			}
			w.put("b", "1")
			w.put("a", "1")
			r := w.run(informer.Options{}).sync()
			waitFor(time.Minute)
			if down {
				r.end()
			}
			w.put("a", "2")
			w.put("c", "1")
			if down {
				r = w.run(informer.Options{}).sync()
			}
			waitFor(time.Hour)
			obj, _, _ := r.inf.GetStore().GetByKey("default/a")
			want := "a@1=2"
			if down {
				want = "a@4=2" // as listed
			}
			if describe(obj) != want {
				t.Errorf("down %t: a is %s, want %s", down, describe(obj), want)
			}
			r.end()
		})
	}
}
