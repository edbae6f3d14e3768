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

// inOne returns the scope of a resource of one server.
func inOne(resource string) store.Scope { return store.Scope{Cluster: "one", Resource: resource} }

// TestRewoundElsewhere has two resources of a server whose history is rewound. That of
// one grows beyond what its informer holds before it could be noticed; the other's
// informer notices, and both list.
func TestRewoundElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		db := w.open()
		var unaware *run
		w.anotherHistory(func() { unaware = w.run(informer.Options{Backend: db, Scope: inOne("configmaps")}).sync() })
		waitFor(time.Hour)
		if lists := unaware.inf.Status().ListsByReason; len(lists) != 1 {
			t.Fatalf("the other history is noticed: %v", lists)
		}
		first := w.server
		w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		w.put("a", "1")
		aware := w.run(informer.Options{Backend: db, Scope: inOne("others")}).sync()
		ofEvents := w.run(informer.Options{Backend: db, Scope: inOne("events")}).sync()
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

// TestRewoundBeforeOpened has a rewind that one informer finds while another one, which
// holds what was before, does not run. That lists when it runs again, in the same process
// or in a later one.
func TestRewoundBeforeOpened(t *testing.T) {
	for name, ends := range map[string]bool{"one process": false, "the next process": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				db := w.open()
				stored := w.run(informer.Options{Backend: db, Scope: inOne("configmaps")})
				w.anotherHistory(func() { stored.sync() })
				stored.end()
				first := w.server
				w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
				w.put("a", "1")
				aware := w.run(informer.Options{Backend: db, Scope: inOne("others")}).sync()
				w.put("a", "2")
				waitFor(time.Minute)
				if err := w.server.Rewind("2"); err != nil {
					t.Fatal(err)
				}
				w.server.CloseWatches()
				waitFor(10 * time.Minute)
				if lists := aware.inf.Status().ListsByReason; lists["history was rewound"] != 1 {
					t.Fatalf("the rewind is not noticed: %v", lists)
				}
				if ends {
					aware.end()
					if err := db.Close(); err != nil {
						t.Fatal(err)
					}
					db = w.open()
					aware = w.run(informer.Options{Backend: db, Scope: inOne("others")}).sync()
					if lists := aware.inf.Status().ListsByReason; len(lists) != 0 {
						t.Errorf("who has found it lists again: %v", lists)
					}
				}
				w.server = first
				for _, want := range []int{1, 0} { // what was listed since needs no list
					again := w.run(informer.Options{Backend: db, Scope: inOne("configmaps")}).sync()
					waitFor(time.Minute)
					if lists := again.inf.Status().ListsByReason; lists["history was rewound, as another resource has shown"] != want {
						t.Errorf("it lists %v, want %d because of the other one", lists, want)
					}
					w.sameAsServer(again.inf.GetStore().List())
					again.end()
				}
				aware.end()
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAuditedElsewhere has two resources of a server whose history is another one. An
// audit of one shows that, and both list.
func TestAuditedElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		db := w.open()
		options := func(resource string, every time.Duration) informer.Options {
			return informer.Options{Backend: db, AuditInterval: every, Scope: inOne(resource)}
		}
		var unaware, audited *run
		w.anotherHistory(func() { unaware = w.run(options("configmaps", 0)).sync() })
		first := w.server
		w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		w.anotherHistory(func() { audited = w.run(options("others", time.Hour)).sync() })
		waitFor(2 * time.Hour)
		w.sameAsServer(audited.inf.GetStore().List())
		w.server = first
		w.sameAsServer(unaware.inf.GetStore().List())
		if lists := audited.inf.Status().ListsByReason; lists["history was rewound, as another resource has shown"] != 0 {
			t.Errorf("who has found it lists %v", lists)
		}
		unaware.end()
		audited.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRewoundOnceElsewhere has a resource whose lists fail after a rewind. The other one
// lists once because of it, and not at each attempt.
func TestRewoundOnceElsewhere(t *testing.T) {
	inBubble(t, func(w *world) {
		db := w.open()
		w.put("a", "1")
		other := w.run(informer.Options{Backend: db, Scope: inOne("configmaps")}).sync()
		w.server = fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		w.put("a", "1")
		lists, _ := w.failingLists()
		aware := w.run(informer.Options{Backend: db, Scope: inOne("others")}).sync()
		w.put("a", "2")
		waitFor(time.Minute)
		lists.Store(true)
		if err := w.server.Rewind("2"); err != nil {
			t.Fatal(err)
		}
		w.server.CloseWatches()
		waitFor(time.Hour)
		if n := other.inf.Status().ListsByReason["history was rewound, as another resource has shown"]; n != 1 {
			t.Errorf("the other one has listed %d times because of the rewind, want once", n)
		}
		other.end()
		aware.end()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
