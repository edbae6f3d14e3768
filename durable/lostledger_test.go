package durable_test

import (
	"errors"
	"os"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store/bolt"
)

// TestQueueOutlivesLostFile checks that a key that waits outlives the loss of the file
// under a running process, and then a restart.
func TestQueueOutlivesLostFile(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "a")
		l := w.start(1).begin()
		l.want("the first start", "a")
		// It is no object of the informer.
		later := cache.ObjectName{Namespace: "other", Name: "later"}
		l.queue.AddAfter(later, 10*time.Hour)
		w.pass(5 * time.Second) // it is written
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.put("b", "b") // the next commit finds that the file is gone
		w.pass(time.Minute)
		w.put("c", "c")
		w.pass(time.Minute)
		if _, err := os.Stat(w.path); err != nil {
			t.Fatal("there is no new file")
		}
		l.end()
		if stored := storedStatus(w); len(stored) != 1 || stored[0].Delayed != 1 {
			t.Errorf("stored: %+v", stored)
		}
		l = w.start(1).begin()
		l.mu.Lock()
		clear(l.worked)
		l.calls = nil
		l.mu.Unlock()
		w.pass(11 * time.Hour)
		l.want("after ten hours", "later")
		l.end()
	})
}

func storedStatus(w *world) []durable.Status {
	db, err := bolt.Open(w.path, bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	got, err := durable.Stored(w.Context(), db)
	if err != nil {
		w.Errorf("stored: %v", err)
	}
	return got
}

// TestDamagedLedgerHeals checks that a damaged value of the ledger costs one start in
// which handlers receive everything, and not that every start is one, and that Reset
// forgets it, too.
func TestDamagedLedgerHeals(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("a", "a")
		l := w.start(1).begin()
		w.pass(time.Minute)
		l.end()
		damageLedger(t, w.path)
		for i := range 4 {
			l := w.start(1).begin()
			w.pass(time.Minute)
			if (i == 0) != (len(l.received()) > 0) {
				t.Errorf("start %d after the damage: received %q", i, l.received())
			}
			l.end()
		}
		damageLedger(t, w.path)
		db, err := bolt.Open(w.path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := durable.Reset(w.Context(), db, "test"); err != nil {
			t.Error(err)
		}
		if values, err := db.Ledger(w.Context(), "consumer/test"); err != nil || len(values) != 1 || values["state"] == nil {
			t.Errorf("after Reset: %q, %v", values, err)
		}
		_ = db.Close()
	})
}

// TestDamagedLedgerOfShared checks that a key whose value in the ledger is damaged comes
// from what is shared, and that the others are those of the file.
func TestDamagedLedgerOfShared(t *testing.T) {
	for name, waits := range map[string]bool{"at once": false, "by the process after one that only waits": true} {
		t.Run(name, func(t *testing.T) { takesOverDamaged(t, waits) })
	}
}

func takesOverDamaged(t *testing.T, waits bool) {
	t.Helper()
	inBubble(t, func(w *world) {
		shared := w.shared()
		w.put("a", "a")
		l := w.start(1).begin()
		l.want("at first", "a")
		for _, name := range []string{"gone", "kept"} {
			l.queue.AddAfter(cache.ObjectName{Namespace: "default", Name: name}, 10*time.Hour)
		}
		w.pass(time.Minute)
		shared.fail(errors.New("forbidden"))
		kept := cache.ObjectName{Namespace: "default", Name: "kept"}
		l.queue.AddAfter(kept, time.Hour) // only the file knows
		w.pass(5 * time.Second)
		l.dies(shared)
		damageLedger(t, w.path)
		if waits { // the ledger has no damage after it
			shared.fail(errors.New("the API server is down"))
			l = w.start(1)
			w.pass(5 * time.Second)
			l.kill()
			shared.fail(nil)
		}
		l = w.start(1).begin()
		w.pass(time.Minute)
		l.want("after the damage", "a")
		l.kill()
		l = w.start(1).begin()
		w.pass(2 * time.Hour)
		l.want("of the file", "kept")
		w.pass(10 * time.Hour)
		l.want("of what was shared", "gone")
		l.end()
	})
}

func damageLedger(t *testing.T, path string) {
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Bucket([]byte("ledger")).Bucket([]byte("consumer/test")).Put([]byte("key/default/gone"), []byte("garbage"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
