package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	bbolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
)

func always(any) ([]string, error) { return []string{"v"}, nil }

// TestWalkGoesOn checks that a walk ends with all objects if its scope is opened again as
// it was: for reading, or from a store that only looks.
func TestWalkGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(2*chunk+10, "text")
	scope, opts := w.s.scope, w.s.opts
	w.must(w.db.Close())
	for name, open := range map[string]func() (*DB, store.Store){
		"for reading": func() (*DB, store.Store) {
			db, err := OpenReadOnly(path, Options{})
			w.must(err)
			s, err := db.Open(scope, opts)
			w.must(err)
			return db, s
		},
		"beside a view": func() (*DB, store.Store) {
			db, err := Open(path, Options{})
			w.must(err)
			s, _, err := db.View(scope.ID())
			w.must(err)
			return db, s
		},
	} {
		db, s := open()
		n := 0
		for _, err := range s.All() {
			if err != nil {
				t.Errorf("%s: after %d objects: %v", name, n, err)
				break
			}
			if n++; n == 1 {
				_, err := db.Open(scope, opts)
				w.must(err)
			}
		}
		if n != 2*chunk+10 {
			t.Errorf("%s: %d objects, want %d", name, n, 2*chunk+10)
		}
		w.must(db.Close())
	}
}

// TestLogGoesOn checks that the log of a scope can be read and followed at each moment
// while the scope is closed and opened again as it was.
func TestLogGoesOn(t *testing.T) {
	w := openSharingOf(t, filepath.Join(t.TempDir(), "informers.db"), "1")
	w.list(10, "text")
	scope, opts := w.s.scope, w.s.opts
	view, _, err := w.db.View(scope.ID())
	w.must(err)
	last, err := view.History()
	w.must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 6)
	check := func(look func() error) {
		go func() { // ends with ctx
			var err error
			for err == nil && ctx.Err() == nil {
				err = look()
			}
			ended <- err
		}()
	}
	check(func() error {
		if now, err := view.History(); err != nil || now.Last.IsZero() {
			return fmt.Errorf("the log is %+v, %w", now, err)
		}
		return nil
	})
	check(func() error {
		_, _, err := view.(store.MarkFinder).MarkAt(last.Last, true)
		return err
	})
	check(func() error {
		for e, err := range view.Follow(ctx, store.Place{RV: last.Last.RV}) {
			if ctx.Err() == nil {
				return fmt.Errorf("follow yields %+v, %w", e, err)
			}
		}
		return nil
	})
	check(func() error {
		for e, err := range view.Follow(ctx, store.Place{}) {
			if ctx.Err() == nil && (err != nil || e.Mark == nil || e.Mark.RV != last.Last.RV) {
				return fmt.Errorf("follow from the beginning yields %+v, %w", e, err)
			}
			break
		}
		return nil
	})
	check(func() error {
		keys, err := view.Keys(store.Query{At: last.Last})
		if len(keys) != 10 {
			err = errors.Join(err, fmt.Errorf("there were %d keys", len(keys)))
		}
		return err
	})
	check(func() error {
		entries, err := view.Select(store.Query{At: last.Last})
		if len(entries) != 10 {
			err = errors.Join(err, fmt.Errorf("there were %d objects", len(entries)))
		}
		return err
	})
	w.must(w.s.Close())
	for range 300 {
		s, err := w.db.Open(scope, opts)
		w.must(err)
		w.must(s.Close())
	}
	cancel()
	for range 6 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestUnloggedOfUnknownOutcome counts what a commit has left out of the log, also if the
// commit returns an error and is in the file.
func TestUnloggedOfUnknownOutcome(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := openUnlogged(t, filepath.Join(t.TempDir(), "informers.db"))
		w.list(10, "text")
		if fails {
			HookWrites(w.db, func(next WriteAt) WriteAt {
				return func(b []byte, off int64) (int, error) {
					n, err := next(b, off)
					if off < int64(2*os.Getpagesize()) { // the meta page
						err = errors.New("on purpose")
					}
					return n, err
				}
			})
		}
		w.apply(3, "other")
		if err := w.db.committer.commit(); (err != nil) != fails {
			t.Fatalf("commit: %v", err)
		}
		w.must(w.s.Flush(t.Context()))
		h, err := w.s.History()
		if w.must(err); h.Unlogged != 3 {
			t.Errorf("fails: %t: %d changes are not logged, want 3", fails, h.Unlogged)
		}
		w.must(w.db.Close())
	}
}

// TestIndexAddedBesideLoss loses the file while the entries of a new index are computed
// for a list that is loaded: those of lost objects do not stay.
func TestIndexAddedBesideLoss(t *testing.T) {
	w := openSharing(t)
	r := w.begin(5, "before")
	calls := 0
	w.must(w.s.AddIndexes(cache.Indexers{"by": func(obj any) ([]string, error) {
		if calls++; calls == 1 {
			w.loseFile()
		}
		return always(obj)
	}}))
	var failed error
	for b, err := range r.Parts("9") {
		if err == nil {
			err = w.s.Apply(b)
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		t.Error("a list that is lost is applied")
	}
	w.must(r.Close())
	w.list(2, "after")
	q := store.Query{Index: "by", Values: []string{"v"}}
	if keys, err := w.s.Keys(q); err != nil || len(keys) != 2 {
		t.Errorf("the index has %q, %v; want 2 keys", keys, err)
	}
	if all, err := w.s.Objects(q); err != nil || len(all) != 2 {
		t.Errorf("the index has %d objects, %v; want 2", len(all), err)
	}
}

// TestWrittenAfterFailedOpen opens a scope whose closed store has changes that could not
// be written. If an attempt fails, they are written.
func TestWrittenAfterFailedOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) { writtenAfterFailedOpen(t, path) })
}

func writtenAfterFailedOpen(t *testing.T, path string) {
	w := openSharingOf(t, path, "")
	w.list(300, "text")
	w.must(w.db.update("damage", func(tx *bbolt.Tx) error {
		b := layout.Scope(tx, w.s.id).Bucket(layout.Objects)
		v := append([]byte(nil), b.Get([]byte("d/o290"))...) // in the second chunk
		v[len(v)-1] ^= 1
		return b.Put([]byte("d/o290"), v)
	}))
	w.apply(3, "new")
	synctest.Wait()                                    // for the committer
	w.s.locked(func(s *state) { s.role = roleViewer }) // as after a Close on a full disk
	passedOver := false
	opts := w.s.opts
	opts.Indexes = []index.Index{{Name: "x", Version: "1", Func: func(obj any) ([]string, error) {
		if !passedOver {
			passedOver = true
			w.must(w.db.committer.commit())
			select {
			case <-w.db.changed: // of what was applied
			default:
			}
		}
		return always(obj)
	}}}
	if _, err := w.db.openOnce(w.s.scope, opts, false); err == nil || !passedOver {
		t.Fatalf("an attempt to open damage: %v", err)
	}
	if len(w.db.changed) == 0 {
		t.Error("nobody tells the committer of what was left")
	}
	w.must(w.db.committer.commit())
	if n := w.s.Commits().Waiting; n != 0 {
		t.Errorf("%d bytes still wait", n)
	}
}

// TestDroppedIndexOfClosedStore reads a closed store by an index while its scope is
// opened without that: it is refused, and not empty.
func TestDroppedIndexOfClosedStore(t *testing.T) {
	w := openSharingOf(t, filepath.Join(t.TempDir(), "informers.db"), "")
	scope, opts := w.s.scope, w.s.opts
	open := func(idx index.Index) {
		w.must(w.s.Close())
		opts.Indexes = []index.Index{idx}
		s, err := w.db.Open(scope, opts)
		w.must(err)
		w.s = s.(*scopeStore)
	}
	open(index.Index{Name: "y", Version: "1", Func: always})
	w.list(10, "text")
	old := w.s
	q := store.Query{Index: "y", Values: []string{"v"}}
	if keys, err := old.Keys(q); err != nil || len(keys) != 10 {
		t.Fatalf("%d keys, %v, want 10", len(keys), err)
	}
	asked := false
	open(index.Index{Name: "x", Version: "1", Func: func(obj any) ([]string, error) {
		if !asked {
			asked = true
			if keys, err := old.Keys(q); !errors.Is(err, store.ErrNoIndex) {
				t.Errorf("%d keys, %v, want %v", len(keys), err, store.ErrNoIndex)
			}
		}
		return always(obj)
	}})
	if !asked {
		t.Fatal("nothing was read while the scope was opened")
	}
}

// putAway takes the file away and has a write fail, so that the file cannot be opened
// again until putBack is called.
func putAway(w *sharingScope, path string) (putBack func()) {
	w.Helper()
	w.must(os.Rename(path, path+".away"))
	w.must(os.Symlink(path, path)) // which leads nowhere
	if err := w.db.SetLedger(w.Context(), "a", map[string][]byte{"k": nil}); err == nil {
		w.Fatal("a file that is away is written")
	}
	return func() {
		w.Helper()
		w.must(os.Remove(path))
		w.must(os.Rename(path+".away", path))
	}
}

// TestLogWithoutHandle checks that a log is not reported as trimmed while its file could
// not be opened again: whoever follows it goes on later, and does not begin anew.
func TestLogWithoutHandle(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(3, "text")
	before, err := w.s.History()
	w.must(err)
	putBack := putAway(w, path)
	follow := func() (err error) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err = range w.s.Follow(ctx, before.Last) {
		}
		return err
	}
	_, err = w.s.History()
	for what, err := range map[string]error{"History": err, "Follow": follow()} {
		if !errors.Is(err, boltfile.ErrNoHandle) || errors.Is(err, store.ErrTrimmed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	putBack()
	// It opens the file again.
	_ = w.db.SetLedger(t.Context(), "a", map[string][]byte{"k": nil})
	if after, err := w.s.History(); err != nil || after.Last != before.Last {
		t.Errorf("with the file: %+v, %v, want %+v", after.Last, err, before.Last)
	}
	if err := follow(); !errors.Is(err, context.Canceled) {
		t.Errorf("with the file: %v", err)
	}
}

// TestListOpensAgain checks that a list opens a file again that could not be opened after
// a write that failed: nothing else may write.
func TestListOpensAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(3, "text")
	w.must(w.s.Flush(t.Context()))
	putAway(w, path)()
	if _, err := w.s.Keys(store.Query{}); !errors.Is(err, boltfile.ErrNoHandle) {
		t.Fatalf("the file is read: %v", err)
	}
	r, err := w.s.Relist()
	w.must(err)
	if err := r.Add(w.object(0, "text")); !errors.Is(err, boltfile.ErrNoHandle) {
		t.Errorf("the first list: %v", err)
	}
	w.must(r.Close())
	w.list(3, "other")
	w.must(w.db.Close())
}
