package informer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/store/bolt"
)

// TestWipe checks a scope that is wiped under a running informer. The informer lists at
// once, before a change or a read detects the loss. Handlers receive the differences from
// what they received before, and the next start is warm.
func TestWipe(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 300 {
			w.put(fmt.Sprintf("o-%03d", i), "first")
		}
		l, told := &log{}, guarantees.New(nil)
		r := w.run(informer.Options{}, handle(w, l), handle(w, told)).sync()
		waitFor(2 * time.Second)
		l.take()
		w.server.Hold()
		told.Damaged()
		if _, err := r.db.Wipe(nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.inf.Status(); got.Listing != "what was stored was wiped" || got.Checkpoint.RV != "" {
			t.Errorf("status: listing %q, at %q", got.Listing, got.Checkpoint.RV)
		}
		listed := make(chan int, 1)
		go func() { listed <- len(r.inf.GetStore().List()) }()
		w.put("o-000", "second")
		w.put("o-300", "new")
		w.drop("o-001")
		synctest.Wait()
		select {
		case n := <-listed:
			t.Errorf("List does not wait, it has %d objects", n)
		default:
		}
		if _, _, err := r.inf.GetStore().GetByKey("default/o-002"); err == nil {
			t.Error("Get has an answer")
		}
		w.server.Release()
		waitFor(time.Minute)
		if n := <-listed; n != 300 {
			t.Errorf("List has %d objects, want 300", n)
		}
		r.atRest(told)
		kinds := map[string]int{}
		for _, line := range l.take() {
			kinds[line[:6]]++
		}
		// The list, from before the changes, causes 300 updates; then comes one more of
		// o-000.
		if diff := cmp.Diff(map[string]int{"add o-": 1, "update": 301, "delete": 1}, kinds); diff != "" {
			t.Errorf("told of (-want +got):\n%s", diff)
		}
		r.end()
		since := len(w.server.Requests())
		told.Start(told.Held())
		r = w.run(informer.Options{}, handle(w, told)).sync()
		if lists := w.lists(since); len(lists) > 0 {
			t.Errorf("the next start lists: %q", lists)
		}
		r.atRest(told)
		r.end()
	})
}

// full returns a database whose file has no room for objects.
func (w *world) full() *bolt.DB {
	w.Helper()
	db, err := bolt.Open(w.path, bolt.Options{MaxBytes: 64 << 10, MaxPending: 4 << 10})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = db.Close() })
	return db
}

// TestTooMuchWaits checks that the status reports that too much is waiting for the disk,
// and how much.
func TestTooMuchWaits(t *testing.T) {
	inBubble(t, func(w *world) {
		r := w.run(informer.Options{Backend: w.full()}).sync()
		before := r.inf.Status().Commits
		if before.Degraded || before.MaxPendingBytes != 4<<10 {
			t.Errorf("before: %+v", before)
		}
		for i := range 100 {
			w.put(fmt.Sprintf("o-%03d", i), "first")
		}
		waitFor(time.Minute)
		got := r.inf.Status().Commits
		if !got.Degraded || got.FilePendingBytes <= got.MaxPendingBytes || !contains([]string{got.Error}, fmt.Sprintf("; %d bytes of changes wait for the disk, more than 4096", got.FilePendingBytes)) {
			t.Errorf("status: %+v", got)
		}
		if n := len(r.inf.GetStore().List()); n != 100 {
			t.Errorf("List has %d objects, want 100", n)
		}
		r.end()
	})
}
