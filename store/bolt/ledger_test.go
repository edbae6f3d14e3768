package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestLedger checks that the next process finds what was set, under its name only, and
// that a damaged value is an error that leaves the others readable.
func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	with := func(f func(*bolt.DB)) {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		f(db)
		must(t, db.Close())
	}
	want := func(db *bolt.DB, name string, values map[string]string, is error) {
		t.Helper()
		found, err := db.Ledger(t.Context(), name)
		got := map[string]string{}
		for key, value := range found {
			got[key] = string(value)
		}
		if diff := cmp.Diff(values, got); diff != "" || !errors.Is(err, is) {
			t.Errorf("ledger %q: %v (-want +got):\n%s", name, err, diff)
		}
	}
	set := func(db *bolt.DB, name string, changes map[string][]byte) {
		t.Helper()
		must(t, db.SetLedger(t.Context(), name, changes))
	}
	with(func(db *bolt.DB) {
		want(db, "a", map[string]string{}, nil)
		set(db, "a", map[string][]byte{"one": []byte("1"), "two": []byte("second-value"), "three": {}})
		set(db, "b", map[string][]byte{"one": []byte("other")})
		set(db, "a", map[string][]byte{"one": []byte("first"), "three": nil, "none": nil})
		set(db, "a", nil)
	})
	with(func(db *bolt.DB) {
		want(db, "a", map[string]string{"one": "first", "two": "second-value"}, nil)
		want(db, "b", map[string]string{"one": "other"}, nil)
		want(db, "c", map[string]string{}, nil)
		if err := db.SetLedger(t.Context(), "", map[string][]byte{"one": nil}); err == nil {
			t.Error("a ledger without a name was set")
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if err := db.SetLedger(ended, "b", map[string][]byte{"one": nil}); !errors.Is(err, context.Canceled) {
			t.Errorf("SetLedger after the end of its context: %v", err)
		}
		want(db, "b", map[string]string{"one": "other"}, nil)
	})
	data := read(t, path)
	spoiled := bytes.ReplaceAll(data, []byte("second-value"), []byte("secomd-value"))
	must(t, os.WriteFile(path, spoiled, 0o600))
	with(func(db *bolt.DB) {
		want(db, "a", map[string]string{"one": "first"}, store.ErrCorrupt)
		set(db, "a", map[string][]byte{"two": []byte("2")})
		want(db, "a", map[string]string{"one": "first", "two": "2"}, nil)
	})
	reader, err := bolt.OpenReadOnly(path, bolt.Options{})
	must(t, err)
	want(reader, "b", map[string]string{"one": "other"}, nil)
	if err := reader.SetLedger(t.Context(), "b", map[string][]byte{"one": nil}); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("SetLedger of a read-only file: %v", err)
	}
	must(t, reader.Close())
}

// TestLedgerOfLongKeys checks keys that are longer than bbolt takes: the key of an object
// may be as long as a request.
func TestLedgerOfLongKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	defer func() { must(t, db.Close()) }()
	long := strings.Repeat("k", 40_000)
	must(t, db.SetLedger(t.Context(), "a", map[string][]byte{long + "1": []byte("1"), long + "2": []byte("2"), "short": []byte("3")}))
	must(t, db.SetLedger(t.Context(), "a", map[string][]byte{long + "1": nil}))
	got, err := db.Ledger(t.Context(), "a")
	must(t, err)
	if diff := cmp.Diff(map[string][]byte{long + "2": []byte("2"), "short": []byte("3")}, got); diff != "" {
		t.Error(diff)
	}
	must(t, db.VerifyLedgers(t.Context()))
}

// TestLedgerEndsWithContext checks that SetLedger ends with its context while something
// else is written.
func TestLedgerEndsWithContext(t *testing.T) {
	db, _ := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	done := make(chan error, 1)
	bolt.Quiet(db, func() { // as while a disk hangs
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		go func() { done <- db.SetLedger(ctx, "consumer/x", map[string][]byte{"a": []byte("b")}) }()
		select {
		case err := <-done:
			done <- err
		case <-time.After(2 * time.Second):
			t.Error("SetLedger still waits 2 s after the start, with a context of 50 ms")
		}
	})
	t.Log(<-done)
}

// TestCancelledLedger checks that the file is not opened again because of a call that was
// cancelled.
func TestCancelledLedger(t *testing.T) {
	db, _ := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
	writes := 0
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) { writes++; return next(b, off) }
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	t.Log(db.SetLedger(ctx, "consumer/x", map[string][]byte{"a": []byte("b")}))
	must(t, db.SetLedger(t.Context(), "consumer/x", map[string][]byte{"a": []byte("b")}))
	if writes == 0 {
		t.Error("the file was opened again: the hook of its handle is gone")
	}
}

// TestLedgerWithoutChanges checks that a change of nothing has the error that another
// change would have.
func TestLedgerWithoutChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	set := func(db *bolt.DB) error { return db.SetLedger(t.Context(), "a", nil) }
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	must(t, set(db))
	must(t, db.Close())
	if err := set(db); !errors.Is(err, store.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	db, err = bolt.OpenReadOnly(path, bolt.Options{})
	must(t, err)
	if err := set(db); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	must(t, db.Close())
	must(t, os.Link(path, path+".link")) // a file with two names is not used
	db, err = bolt.Open(path, bolt.Options{})
	must(t, err)
	if err := set(db); err == nil || !errors.Is(err, db.Suspended()) {
		t.Errorf("without a file: %v, want %v", err, db.Suspended())
	}
	must(t, db.Close())
}
