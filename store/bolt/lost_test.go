package bolt

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
)

// valued returns a ConfigMap with a value for an index function.
func valued(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: "u"}, Data: map[string]string{"v": value}}
}

func byValue(obj any) ([]string, error) { return []string{obj.(*corev1.ConfigMap).Data["v"]}, nil }

func openValued(t *testing.T, path string, decoded int64) (*DB, *scopeStore) {
	t.Helper()
	return openValuedWith(t, path, decoded, Options{})
}

func openValuedWith(t *testing.T, path string, decoded int64, opts Options) (*DB, *scopeStore) {
	t.Helper()
	db, err := Open(path, opts)
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	scope := store.Scope{Cluster: "c", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	s, err := db.Open(scope, store.Options{Codec: c, DecodedBytes: decoded, Indexers: cache.Indexers{"value": byValue}})
	if err != nil {
		t.Fatal(err)
	}
	return db, s.(*scopeStore)
}

// listValued lists objects. It calls between before the list is complete.
func listValued(s *scopeStore, rv string, between func(), objects ...*corev1.ConfigMap) error {
	r, err := s.Relist()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	for _, obj := range objects {
		if err := r.Add(obj); err != nil {
			return err
		}
	}
	between()
	for b, err := range r.Parts(rv) {
		if err == nil {
			err = s.Apply(b)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func wantValued(t *testing.T, s *scopeStore, want ...string) {
	t.Helper()
	var got []string
	objects, err := s.Objects(store.Query{})
	for _, obj := range objects {
		cm := obj.(*corev1.ConfigMap)
		got = append(got, cm.Name+"="+cm.Data["v"])
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got), error %v:\n%s", err, diff)
	}
}

// TestLostBeforeListIsWhole checks that objects of a list that was lost with the file are
// not in the next list, in the same process and after a restart.
func TestLostBeforeListIsWhole(t *testing.T) {
	for _, decoded := range []int64{0, -1} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, s := openValued(t, path, decoded)
		err := listValued(s, "5", func() { _ = os.Remove(path) }, valued("a", "1"), valued("gone", "1"))
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("the list that is lost: error is %v", err)
		}
		if at := s.Checkpoint(); at.RV != "" || at.Reason == "" || at.Time.IsZero() {
			t.Errorf("checkpoint of what was lost: %+v, want a reason and its time", at)
		}
		if err := listValued(s, "9", func() {}, valued("a", "2")); err != nil {
			t.Fatal(err)
		}
		wantValued(t, s, "a=2")
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		db, s = openValued(t, path, decoded)
		wantValued(t, s, "a=2")
		_ = db.Close()
	}
}

// TestLostWhileListIsWritten checks that objects that a list writes in the background do
// not reach the new file.
func TestLostWhileListIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValued(t, path, 0)
	defer func() { _ = db.Close() }()
	r, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	SetRelistLimit(r, 1)
	db.file.Lock()
	if err := r.Add(valued("gone", "1")); err != nil { // its goroutine waits for writeMu
		t.Fatal(err)
	}
	err = errors.Join(os.Remove(path), db.file.Reopen(false, errors.New("gone")))
	db.file.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(valued("x", "1")); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("the list that is lost: error is %v", err)
	}
	_ = r.Close()
	if err := listValued(s, "9", func() {}, valued("a", "2")); err != nil {
		t.Fatal(err)
	}
	wantValued(t, s, "a=2")
}

// TestAddIndexersBeforeLoaded checks that an index contains the objects of a list that is
// in the file but was not applied when the index was added.
func TestAddIndexersBeforeLoaded(t *testing.T) {
	db, s := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	defer func() { _ = db.Close() }()
	r, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Add(valued("a", "1")); err != nil {
		t.Fatal(err)
	}
	for b, err := range r.Parts("5") {
		if err == nil {
			err = store.Indexer(s).AddIndexers(cache.Indexers{"late": byValue})
		}
		if err == nil {
			err = s.Apply(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = r.Close()
	for _, name := range []string{"value", "late"} {
		if got, err := store.Indexer(s).ByIndex(name, "1"); len(got) != 1 || err != nil {
			t.Errorf("%s has %d objects (%v)", name, len(got), err)
		}
	}
}

// TestAddIndexersWhileLoaded adds an index while the last part of a list is written. It
// has all objects, whatever comes first.
func TestAddIndexersWhileLoaded(t *testing.T) {
	db, first := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	defer func() { _ = db.Close() }()
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 100 {
		scope := first.scope
		scope.Namespace = fmt.Sprint(n)
		opened, err := db.Open(scope, store.Options{Codec: c, Indexers: cache.Indexers{"value": byValue}})
		if err != nil {
			t.Fatal(err)
		}
		var adding sync.WaitGroup
		var added error
		listed := listValued(opened.(*scopeStore), "5", func() {
			adding.Go(func() { added = store.Indexer(opened).AddIndexers(cache.Indexers{"late": byValue}) })
		}, valued("a", "1"), valued("b", "1"))
		adding.Wait()
		if err := errors.Join(listed, added); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Indexer(opened).ByIndex("late", "1"); len(got) != 2 || err != nil {
			t.Fatalf("in round %d it has %d objects (%v)", n, len(got), err)
		}
	}
}

// TestAddIndexersAfterWriteBesideList checks that an index which is added during a first
// list has an object that was applied beside the list before.
func TestAddIndexersAfterWriteBesideList(t *testing.T) {
	db, s := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	defer func() { _ = db.Close() }()
	x := store.Indexer(s)
	var added error
	listed := listValued(s, "5", func() {
		added = errors.Join(x.Add(valued("beside", "1")), x.AddIndexers(cache.Indexers{"late": byValue}))
	}, valued("a", "1"))
	if err := errors.Join(listed, added); err != nil {
		t.Fatal(err)
	}
	if got, err := x.ByIndex("late", "1"); len(got) != 2 || err != nil {
		t.Errorf("the index has %d objects (%v), want 2", len(got), err)
	}
}

// TestIndexerThatFailsWhileLoading checks that an indexer which is added during a first
// list, and fails for one of the objects before, has the others.
func TestIndexerThatFailsWhileLoading(t *testing.T) {
	db, s := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	defer func() { _ = db.Close() }()
	late := func(obj any) ([]string, error) {
		if obj.(*corev1.ConfigMap).Name == "bad" {
			return nil, errors.New("on purpose")
		}
		return byValue(obj)
	}
	r, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	SetRelistLimit(r, 1) // each object is written at once
	for _, name := range []string{"a", "bad", "c"} {
		if name == "c" {
			err = store.Indexer(s).AddIndexers(cache.Indexers{"late": late})
		}
		if err = errors.Join(err, r.Add(valued(name, "1"))); err != nil {
			t.Fatal(err)
		}
	}
	for b, err := range r.Parts("5") {
		if err = errors.Join(err, s.Apply(b)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Keys(store.Query{Index: "late", Values: []string{"1"}}); !slices.Equal(got, []string{"d/a", "d/c"}) {
		t.Errorf("the index has %q, %v", got, err)
	}
}

// TestCloseWithoutFile checks that Close writes what waits although the file could not be
// opened again after a write, if it can be now, and returns the error if it cannot.
func TestCloseWithoutFile(t *testing.T) {
	for name, isBack := range map[string]bool{"back": true, "away": false} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := openValuedWith(t, path, 0, Options{CommitInterval: time.Hour})
			err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), s.Flush(t.Context()))
			// A file with two hard links is refused, so it cannot be opened again.
			if err := errors.Join(err, os.Link(path, path+".link")); err != nil {
				t.Fatal(err)
			}
			failWrite(t, db)
			if err := s.Apply(store.Batch{RV: "7", Changes: []store.Change{{Object: valued("b", "1")}}}); err != nil {
				t.Fatal(err)
			}
			if isBack {
				err = os.Remove(path + ".link")
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := db.Close(); (err == nil) != isBack {
				t.Errorf("Close: error is %v", err)
			}
			if !isBack {
				return
			}
			db, s = openValued(t, path, 0)
			wantValued(t, s, "a=1", "b=1")
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// failWrite fails a commit, so that the file has to be opened again.
func failWrite(t *testing.T, db *DB) {
	t.Helper()
	failed := failWrites(db)
	if err := db.update("test", func(*bbolt.Tx) error { return nil }); !errors.Is(err, failed) {
		t.Fatal(err)
	}
}

// TestViewWithoutFile checks that View reports a missing file as such and not as a
// damaged scope.
func TestViewWithoutFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValued(t, path, 0)
	if err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), db.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var attach func()
	Quiet(db, func() { attach = db.file.Detach() })
	_, _, err = db.View(s.id)
	if !errors.Is(err, boltfile.ErrNoHandle) || !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("error is %v", err)
	}
	Quiet(db, attach)
	if _, _, err = db.View(s.id); err != nil {
		t.Errorf("with the file: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestLedgerWithoutFile checks that a ledger of a file that could not be opened again is
// not taken for a damaged one, whose owner would begin anew, and is read once the file
// can be opened.
func TestLedgerWithoutFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.SetLedger(t.Context(), "l", map[string][]byte{"key": []byte("value")}); err != nil {
		t.Fatal(err)
	}
	aside := path + ".aside"
	failed := failWrites(db)
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	err = db.update("test", func(*bbolt.Tx) error {
		move(path, aside)
		return os.Mkdir(path, 0o700) // it cannot be opened, nor replaced
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if values, err := db.Ledger(t.Context(), "l"); !errors.Is(err, boltfile.ErrNoHandle) || errors.Is(err, store.ErrCorrupt) {
		t.Errorf("values %q, error %v", values, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	move(aside, path)
	if values, err := db.Ledger(t.Context(), "l"); err != nil || string(values["key"]) != "value" {
		t.Errorf("values %q, error %v", values, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// failWrites makes all writes fail until the file is opened again.
func failWrites(db *DB) (cause error) {
	cause = errors.New("the disk fails")
	HookWrites(db, func(WriteAt) WriteAt {
		return func([]byte, int64) (int, error) { return 0, cause }
	})
	return cause
}

// failAndPutAway makes the next write fail, and moves the file away before it is opened
// again, so that it cannot even be read. putBack moves it back.
func failAndPutAway(db *DB, path string) (putBack func() error, cause error) {
	cause = errors.New("the disk fails")
	away := path + ".away"
	HookWrites(db, func(WriteAt) WriteAt {
		return func([]byte, int64) (int, error) {
			if _, err := os.Stat(away); err == nil {
				return 0, cause
			}
			return 0, errors.Join(cause, os.Rename(path, away), os.Mkdir(path, 0o700))
		}
	})
	return func() error { return errors.Join(os.Remove(path), os.Rename(away, path)) }, cause
}

// failingWipe calls Wipe while all writes fail.
func failingWipe(t *testing.T, db *DB) {
	t.Helper()
	failed := failWrites(db)
	if _, err := db.Wipe(nil); !errors.Is(err, failed) {
		t.Errorf("Wipe: error is %v", err)
	}
}

// TestWipeFailsTwice checks that a scope that a wipe with an unknown outcome has dropped
// is not shown as empty after a second wipe that fails.
func TestWipeFailsTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValued(t, path, 0)
	defer func() { _ = db.Close() }()
	if err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	putBack, failed := failAndPutAway(db, path)
	if _, err := db.Wipe(nil); !errors.Is(err, failed) {
		t.Errorf("Wipe: error is %v", err)
	}
	err := putBack()
	Quiet(db, func() { err = errors.Join(err, db.file.Reopen(false, errors.New("the disk fails"))) })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if found, err := s.Objects(store.Query{}); !errors.Is(err, store.ErrWiped) {
			t.Errorf("List has %d objects, error is %v", len(found), err)
		}
		failingWipe(t, db)
	}
	if err := listValued(s, "9", func() {}, valued("b", "1")); err != nil {
		t.Fatal(err)
	}
	wantValued(t, s, "b=1")
}

// TestWipeFailsAfterWipe checks that a failing wipe does not treat objects listed after
// an earlier wipe as wiped, and that they are not in the next list.
func TestWipeFailsAfterWipe(t *testing.T) {
	db, s := openValuedWith(t, filepath.Join(t.TempDir(), "informers.db"), 0, Options{CommitInterval: time.Hour})
	defer func() { _ = db.Close() }()
	if _, err := db.Wipe(nil); err != nil {
		t.Fatal(err)
	}
	if err := listValued(s, "9", func() {}, valued("a", "1")); err != nil {
		t.Fatal(err)
	}
	failingWipe(t, db) // before the list's checkpoint is committed
	wantValued(t, s, "a=1")
	if err := listValued(s, "11", func() {}, valued("b", "1")); err != nil {
		t.Fatal(err)
	}
	wantValued(t, s, "b=1")
}

// TestReplaceOfUnreadable checks that Replace fails if the stored keys cannot be read.
// Otherwise objects that are not in the list would stay.
func TestReplaceOfUnreadable(t *testing.T) {
	db, s := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	defer func() { _ = db.Close() }()
	if err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), s.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.length++ // as if a page had lost an object
	s.mu.Unlock()
	if err := store.Indexer(s).Replace([]any{valued("b", "1")}, "9"); !errors.Is(err, store.ErrCorrupt) || s.Checkpoint().RV != "5" {
		t.Errorf("error is %v, at %q", err, s.Checkpoint().RV)
	}
}

// TestUnreadableWhileWritten checks changes that are applied while the file cannot be
// opened again, when it is not known which objects are new. They must not look like
// damage once the file is back.
func TestUnreadableWhileWritten(t *testing.T) {
	for _, decoded := range []int64{0, -1} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, s := openValued(t, path, decoded)
		defer func() { _ = db.Close() }()
		if err := listValued(s, "5", func() {}, valued("a", "1"), valued("b", "1")); err != nil {
			t.Fatal(err)
		}
		putBack, failed := failAndPutAway(db, path)
		if err := db.update("test", func(*bbolt.Tx) error { return nil }); !errors.Is(err, failed) {
			t.Fatal(err)
		}
		apply := store.Batch{RV: "7", Changes: []store.Change{{Object: valued("c", "1")}, {Object: valued("a", "2")}, {Key: "d/never"}}}
		if err := s.Apply(apply); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Select(store.Query{}); !errors.Is(err, boltfile.ErrNoHandle) {
			t.Errorf("a read without a file: error is %v", err)
		}
		if err := putBack(); err != nil {
			t.Fatal(err)
		}
		Quiet(db, func() {
			if err := db.file.Reopen(false, errors.New("the disk fails")); err != nil {
				t.Fatal(err)
			}
			wantValued(t, s, "a=2", "b=1", "c=1")
		})
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantValued(t, s, "a=2", "b=1", "c=1")
		if n := s.Len(); n != 3 {
			t.Errorf("%d objects after what waited is written, want 3", n)
		}
	}
}

// TestCloseTriesOnce checks that a broken disk does not keep Close: after the commit that
// may run already, there is one more.
func TestCloseTriesOnce(t *testing.T) {
	for range 10 {
		path := filepath.Join(t.TempDir(), "informers.db")
		var tries atomic.Int32
		logger := funcr.New(func(_, line string) {
			if strings.Contains(line, "Could not write the cache") {
				tries.Add(1)
			}
		}, funcr.Options{})
		db, s := openValuedWith(t, path, 0, Options{CommitInterval: time.Hour, Logger: logger})
		if err := listValued(s, "5", func() {}, valued("a", "1")); err != nil {
			t.Fatal(err)
		}
		// A file with two hard links is refused, so it cannot be opened again.
		if err := os.Link(path, path+".link"); err != nil {
			t.Fatal(err)
		}
		failed := failWrites(db)
		if err := db.Close(); !errors.Is(err, failed) {
			t.Errorf("closed: %v", err)
		}
		if n := tries.Load(); n < 1 || n > 2 {
			t.Errorf("%d attempts, want 2 at most", n)
		}
	}
}

// TestLostChangesAreTold checks that Flush and Close return an error if what they were to
// write is lost with the file.
func TestLostChangesAreTold(t *testing.T) {
	for name, write := range map[string]func(db *DB, s *scopeStore) error{
		"flush":       func(_ *DB, s *scopeStore) error { return s.Flush(t.Context()) },
		"store close": func(_ *DB, s *scopeStore) error { return s.Close() },
		"close":       func(db *DB, _ *scopeStore) error { return db.Close() },
		"commit, then flush": func(db *DB, s *scopeStore) error {
			_ = Commit(db)
			return s.Flush(t.Context())
		},
	} {
		for _, replaced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, replaced %v", name, replaced), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "informers.db")
				db, s := openValuedWith(t, path, 0, Options{CommitInterval: time.Hour})
				err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), s.Flush(t.Context()))
				if err := errors.Join(err, s.Apply(store.Batch{RV: "7", Changes: []store.Change{{Object: valued("b", "1")}}})); err != nil {
					t.Fatal(err)
				}
				if err = os.Remove(path); replaced {
					other, openErr := Open(path+".other", Options{})
					if openErr != nil {
						t.Fatal(openErr)
					}
					err = errors.Join(err, other.Close(), os.Rename(path+".other", path))
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := write(db, s); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "last changes are lost") {
					t.Errorf("error is %v", err)
				}
				_ = db.Close()
			})
		}
	}
}

// TestLostChangesListedAgain checks that a loss is no error any more once a later list is
// written, and that a wipe is none.
func TestLostChangesListedAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValuedWith(t, path, 0, Options{CommitInterval: time.Hour})
	apply := store.Batch{RV: "7", Changes: []store.Change{{Object: valued("b", "1")}}}
	if err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), os.Remove(path)); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("error is %v", err)
	}
	if err := errors.Join(listValued(s, "9", func() {}, valued("a", "1")), s.Flush(t.Context()), s.Apply(apply)); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Wipe(nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Flush(t.Context()), s.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}
