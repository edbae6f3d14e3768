package controllerruntime_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable/controllerruntime"
)

// TestRequests checks that no request that is left comes back as another one.
func TestRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		left := map[reconcile.Request]bool{}
		for range 2 {
			db, c := openConsumer(t, path)
			limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Hour, 24*time.Hour)
			q := controllerruntime.NewQueue(c)("a", limiter)
			if len(left) == 0 {
				for _, n := range []types.NamespacedName{
					{},
					{Name: "a"},
					{Name: "a/b"},
					{Name: "/a"},
					{Namespace: "ns"},
					{Namespace: "ns", Name: "a/b"},
					{Namespace: "ns/other", Name: "a"},
					{Namespace: "/", Name: "b"},
				} {
					r := reconcile.Request{NamespacedName: n}
					left[r] = true
					q.Add(r)
				}
			} else {
				synctest.Wait()
				for range q.Len() {
					if r, _ := q.Get(); !left[r] {
						t.Errorf("nobody has added %#v", r)
					}
				}
			}
			q.ShutDown()
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
