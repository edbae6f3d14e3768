package informer_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

// TestIdentify checks that an informer whose program can say which cluster answers stores
// nothing of another cluster as complete, and lists its own when that is back.
func TestIdentify(t *testing.T) {
	inBubble(t, func(w *world) {
		var answers atomic.Pointer[string]
		one, two := "one", "two"
		answers.Store(&one)
		opts := informer.Options{
			Scope:    store.Scope{Cluster: one},
			Identify: func(context.Context) (string, error) { return *answers.Load(), nil },
		}
		w.put("a", "1")
		w.put("b", "1")
		r := w.run(opts).sync()
		commit()
		answers.Store(&two)
		w.drop("a")
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		if s := r.inf.Status(); s.Checkpoint.RV != "" || !strings.Contains(s.Checkpoint.Reason, "another cluster") {
			t.Errorf("with another cluster, the checkpoint is %+v", s.Checkpoint)
		}
		answers.Store(&one)
		w.server.CloseWatches()
		waitFor(2 * time.Minute)
		w.sameAsServer(r.inf.GetStore().List())
		if s := r.inf.Status(); s.Checkpoint.RV != w.server.RV() {
			t.Errorf("with the right cluster again, the checkpoint is %+v", s.Checkpoint)
		}
		r.end()
	})
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	_, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{Identify: func(context.Context) (string, error) { return "", nil }})
	if err == nil || !strings.Contains(err.Error(), "Scope names no cluster") {
		t.Errorf("without a cluster to compare with: %v", err)
	}
}
