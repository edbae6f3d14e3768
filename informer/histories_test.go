package informer_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

// TestRewoundElsewhere has two resources of a server whose history is rewound. That of
// one grows beyond what its informer holds before it could be noticed; the other's
// informer notices, and both list.
func TestRewoundElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		db := w.open()
		scope := func(resource string) store.Scope { return store.Scope{Cluster: "one", Resource: resource} }
		var unaware *run
		w.anotherHistory(func() { unaware = w.run(informer.Options{Backend: db, Scope: scope("configmaps")}).sync() })
		waitFor(time.Hour)
		if lists := unaware.inf.Status().ListsByReason; len(lists) != 1 {
			t.Fatalf("the other history is noticed: %v", lists)
		}
		first := w.server
		w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		w.put("a", "1")
		aware := w.run(informer.Options{Backend: db, Scope: scope("others")}).sync()
		ofEvents := w.run(informer.Options{Backend: db, Scope: scope("events")}).sync()
		w.put("a", "2")
		w.put("a", "3")
		waitFor(time.Minute)
		if err := w.server.Rewind("3"); err != nil {
			t.Fatal(err)
		}
		w.server.CloseWatches()
		waitFor(10 * time.Minute)
		const elsewhere = "history was rewound, as another resource has shown"
		if lists := aware.inf.Status().ListsByReason; lists["history was rewound"] != 1 || lists[elsewhere] != 0 {
			t.Errorf("who has noticed lists %v", lists)
		}
		if lists := unaware.inf.Status().ListsByReason; lists[elsewhere] != 1 {
			t.Errorf("the other one lists %v", lists)
		}
		if lists := ofEvents.inf.Status().ListsByReason; lists["history was rewound"] != 1 || lists[elsewhere] != 0 {
			t.Errorf("that of events lists %v", lists)
		}
		if _, there, err := unaware.inf.GetStore().GetByKey("default/ghost"); there || err != nil {
			t.Errorf("it holds what the history does not have: %v", err)
		}
		if rv := unaware.inf.Status().Checkpoint.RV; rv != first.RV() {
			t.Errorf("it is at %s, want %s", rv, first.RV())
		}
		unaware.end()
		aware.end()
		ofEvents.end()
		if err := db.Close(); err != nil {
			t.Error(fmt.Errorf("close: %w", err))
		}
	})
}
