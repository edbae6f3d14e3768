package informer_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer"
)

// TestRenamingTransformFails checks that an object which a transform has refused, and
// then renames, does not freeze the resource version.
func TestRenamingTransformFails(t *testing.T) {
	for _, prefix := range []string{"", "r-"} {
		inBubble(t, func(w *world) {
			var fails atomic.Bool
			w.put("a", "1")
			r := w.run(informer.Options{TransformVersion: "1"}, func(inf *informer.Informer) {
				_ = inf.SetTransform(func(obj any) (any, error) {
					cm := obj.(*corev1.ConfigMap)
					if fails.Load() && cm.Name == "x" {
						return nil, errors.New("on purpose")
					}
					cm.Name = prefix + cm.Name
					return cm, nil
				})
			}).sync()
			fails.Store(true)
			w.put("x", "1")
			waitFor(10 * time.Minute)
			fails.Store(false)
			w.put("x", "2")
			last := w.put("a", "2")
			waitFor(10 * time.Minute)
			if rv := r.inf.GetStore().LastStoreSyncResourceVersion(); rv < last {
				t.Errorf("prefix %q: the store is at %q, want %s: %+v", prefix, rv, last, r.inf.Status().Rejected)
			}
			r.end()
		})
	}
}

// TestAuditOfRenamed checks that an audit compares objects under the names that the
// transform gives them.
func TestAuditOfRenamed(t *testing.T) {
	for _, prefix := range []string{"", "r-"} {
		inBubble(t, func(w *world) {
			w.put("a", "1")
			r := w.run(informer.Options{TransformVersion: "1", AuditInterval: time.Hour}, func(inf *informer.Informer) {
				_ = inf.SetTransform(func(obj any) (any, error) {
					cm := obj.(*corev1.ConfigMap)
					cm.Name = prefix + cm.Name
					return cm, nil
				})
			}).sync()
			since := len(w.server.Requests())
			waitFor(10 * time.Hour)
			if s := r.inf.Status().Audit; s.Total > 0 {
				t.Errorf("prefix %q: %d findings of a store that is right (%s), %d lists", prefix, s.Total, s.First, len(w.lists(since)))
			}
			r.end()
			synctest.Wait()
		})
	}
}
