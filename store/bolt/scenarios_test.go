package bolt

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
)

// TestScenarios plays what has happened, or may happen, to two contents of one scope.
func TestScenarios(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a list that waits for a wipe does not go on in what follows":         testListBesideWipe,
		"a commit of before a loss writes nothing into the file after it":     testCommitOverLoss,
		"a commit before the first list keeps what the list is compared with": testCommitBeforeList,
		"a commit that skips a scope leaves its changes to be written":        testSkippedCommit,
		"places of before an upgrade are refused while its list goes on":      testPlacesWhileLoading,
		"the rest of a walk is not of another transform":                      testWalkOverUpgrade,
		"what cannot be compared is dropped before the list":                  testIncomparable,
		"a list whose bucket is missing is damage and not empty":              testMissingBucket,
		"an object that two writers add counts once":                          testTwoWriters,
		"an older content does not come back after a rewind":                  testRewoundUpgrade,
	} {
		t.Run(name, test)
	}
}

// keysOf returns the keys that readers see.
func (w *sharingScope) keysOf() []string {
	w.Helper()
	keys, err := w.s.Keys(store.Query{})
	w.must(err)
	return keys
}

// loseFile replaces the file by an empty one.
func (w *sharingScope) loseFile() {
	w.Helper()
	w.must(os.Remove(w.db.Path()))
	Quiet(w.db, func() { w.must(w.db.file.Reopen(false, errors.New("gone"))) })
	if !w.s.isLost() {
		w.Fatal("the scope is not lost")
	}
}

func testListBesideWipe(t *testing.T) {
	t.Run("plain", func(t *testing.T) { listBesideWipe(t, Options{CommitInterval: time.Hour}) })
	t.Run("encrypted", func(t *testing.T) { // what is listed next is sealed with new keys
		listBesideWipe(t, Options{CommitInterval: time.Hour, Keys: oneKey{1}, EncryptAll: true})
	})
}

func listBesideWipe(t *testing.T, opts Options) {
	path := filepath.Join(t.TempDir(), "informers.db")
	open := func() *sharingScope {
		t.Helper()
		db, err := Open(path, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return openIn(t, db, "", store.Options{})
	}
	w := open()
	r := w.begin(3, "before")
	SetRelistLimit(r, 1)
	began := atomic.Bool{}
	inWipe, goOn := make(chan struct{}), make(chan struct{})
	HookWrites(w.db, func(next WriteAt) WriteAt {
		return func(b []byte, off int64) (int, error) {
			if began.CompareAndSwap(false, true) {
				close(inWipe)
				<-goOn
			}
			return next(b, off)
		}
	})
	wiped := make(chan error)
	go func() {
		_, err := w.db.Wipe(nil)
		wiped <- err
	}()
	<-inWipe
	w.must(r.Add(w.object(3, "before"))) // its part waits for the file
	close(goOn)
	w.must(<-wiped)
	for b, err := range r.Parts("9") {
		if err == nil {
			err = w.s.Apply(b)
		}
		if !errors.Is(err, store.ErrWiped) {
			t.Errorf("the list goes on: %v", err)
		}
	}
	w.must(r.Close())
	w.list(1, "after")
	if keys := w.keysOf(); !slices.Equal(keys, []string{"d/o000"}) {
		t.Errorf("the next list has %q", keys)
	}
	w.must(w.db.Close())
	w = open()
	if all, err := w.s.Objects(store.Query{}); err != nil || len(all) != 1 || w.db.SetAside() != "" {
		t.Errorf("the next process finds %d objects, %v; %q was set aside", len(all), err, w.db.SetAside())
	}
}

func testCommitOverLoss(t *testing.T) {
	w := openSharing(t)
	w.apply(3, "before") // without a list
	c, due := w.s.capture(math.MaxInt64)
	if !due {
		t.Fatal("nothing to write")
	}
	w.loseFile()
	w.must(errors.Join(c.Pack(), w.db.committer.writeCaptures([]capture{c})))
	w.s.committedUpTo(c, nil)
	if rv := w.s.Checkpoint().RV; rv != "" {
		t.Errorf("what was lost is at %q", rv)
	}
	path := w.db.Path()
	w.must(w.db.Close())
	w = openSharingOf(t, path, "")
	if keys := w.keysOf(); len(keys) > 0 || w.s.Checkpoint().RV != "" {
		t.Errorf("the file after the loss has %q at %q", keys, w.s.Checkpoint().RV)
	}
}

func testCommitBeforeList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(4, "text")
	w.must(w.db.Close())
	for range 2 { // processes that end before their list is whole
		w = openSharingOf(t, path, "2")
		w.must(w.s.Apply(store.Batch{Reason: "rewound", Rewound: true}))
		w.must(w.s.Flush(t.Context()))
		r := w.begin(1, "text")
		w.must(w.s.Apply(store.Batch{Reason: "again"}))
		w.must(errors.Join(w.s.Flush(t.Context()), r.Close(), w.db.Close()))
	}
	w = openSharingOf(t, path, "2")
	w.list(2, "text")
	found, err := w.s.Departed(0, 10)
	w.must(err)
	var keys []string
	for _, d := range found {
		keys = append(keys, d.Before.Key)
	}
	if want := []string{"d/o002", "d/o003"}; !slices.Equal(keys, want) {
		t.Errorf("%q have departed, want %q", keys, want)
	}
}

func testSkippedCommit(t *testing.T) {
	w := openSharing(t)
	w.list(3, "text")
	w.apply(1, "text")
	w.must(w.s.Apply(store.Batch{RV: "100", Changes: []store.Change{{Object: w.object(7, "text")}}}))
	c, due := w.s.capture(math.MaxInt64)
	if !due {
		t.Fatal("nothing to write")
	}
	w.must(c.Pack())
	current := func(s *scopeStore) {
		w.db.mu.Lock()
		defer w.db.mu.Unlock()
		w.db.scopes[w.s.id] = s
	}
	current(&scopeStore{}) // another store is being opened, and cannot be
	captures := []capture{c}
	w.must(w.db.committer.writeCaptures(captures))
	w.s.committedUpTo(captures[0], nil)
	current(w.s)
	if keys := w.keysOf(); len(keys) != 4 {
		t.Errorf("readers see %q", keys)
	}
	w.s.Settle()
	w.must(w.s.Flush(t.Context()))
	path := w.db.Path()
	w.must(w.db.Close())
	w = openSharingOf(t, path, "")
	if keys := w.keysOf(); len(keys) != 4 || w.s.Checkpoint().RV != "100" {
		t.Errorf("the file has %q at %q", keys, w.s.Checkpoint().RV)
	}
}

func testPlacesWhileLoading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(4, "text")
	w.apply(2, "text")
	w.must(w.s.Flush(t.Context()))
	h, err := w.s.History()
	w.must(err)
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2")
	refused := func(when string) {
		t.Helper()
		for _, at := range []store.Place{h.Last, {RV: h.Last.RV}} {
			keys, err := w.s.Keys(store.Query{At: at})
			if !errors.Is(err, store.ErrLineage) && !errors.Is(err, store.ErrTrimmed) {
				t.Errorf("%s, at %s: %q, %v", when, at, keys, err)
			}
		}
	}
	refused("before the list")
	r := w.begin(2, "text")
	refused("while it goes on")
	w.must(r.Close())
	refused("after it has broken")
}

func testWalkOverUpgrade(t *testing.T) {
	for name, then := range map[string]struct {
		versions []string // the scope is opened again with
		list     bool
	}{
		"not listed":             {[]string{"2"}, false},
		"listed":                 {[]string{"2"}, true},
		"listed, at a next time": {[]string{"1", "2"}, true},
	} {
		w := openSharingOf(t, filepath.Join(t.TempDir(), "informers.db"), "1")
		w.list(2*chunk+10, "before")
		seen := 0
		var failed error
		for obj, err := range w.s.All() {
			if failed = err; err != nil {
				break
			}
			if seen++; seen == 1 {
				last := w.s
				for _, version := range then.versions {
					w.must(last.Close())
					s, err := w.db.Open(w.s.scope, store.Options{Codec: w.s.opts.Codec, TransformVersion: version})
					w.must(err)
					last = s.(*scopeStore)
				}
				if next := (&sharingScope{T: t, db: w.db, s: last, rv: w.rv}); then.list {
					next.list(2*chunk+10, "after")
				}
			}
			if text := obj.(*corev1.ConfigMap).Data["text"]; text[:6] != "before" {
				t.Fatalf("%s: object %d is of what was listed after", name, seen)
			}
		}
		if !errors.Is(failed, store.ErrClosed) {
			t.Errorf("%s: %d objects, then %v; want that it was closed", name, seen, failed)
		}
	}
}

// otherCodec is a codec that cannot read what another one has written.
type otherCodec struct{ codec.Codec }

func (otherCodec) Name() string { return "other" }

func testIncomparable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(3, "text")
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2") // keeps it to be compared
	scope, opts := w.s.scope, w.s.opts
	w.must(w.db.Close())
	db, err := Open(path, Options{CommitInterval: time.Hour})
	w.must(err)
	t.Cleanup(func() { _ = db.Close() })
	opts.Codec = otherCodec{opts.Codec}
	opened, err := db.Open(scope, opts)
	w.must(err)
	s := opened.(*scopeStore)
	w.must(db.view("test", func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		for _, name := range [][]byte{layout.Former, layout.Log, layout.Dictionaries} {
			if b.Bucket(name) != nil && b.Bucket(name).Stats().KeyN > 0 {
				t.Errorf("%s is kept", name)
			}
		}
		if n := b.Bucket(layout.Objects).Stats().KeyN; n > 0 {
			t.Errorf("%d objects are kept", n)
		}
		return nil
	}))
	if s.Compares() {
		t.Error("the list is to be compared with it")
	}
}

func testMissingBucket(t *testing.T) {
	for _, name := range [][]byte{layout.Headers, layout.Objects} {
		w := openSharing(t)
		w.list(3, "text")
		w.must(w.db.update("test", func(tx *bbolt.Tx) error { return w.s.bucket(tx).DeleteBucket(name) }))
		for read, fn := range map[string]func() (int, error){
			"Keys":   func() (int, error) { keys, err := w.s.Keys(store.Query{}); return len(keys), err },
			"Select": func() (int, error) { all, err := w.s.Select(store.Query{}); return len(all), err },
			"Entry":  func() (int, error) { _, ok, err := w.s.Entry("d/o001"); return oneIf(ok), err },
		} {
			if n, err := fn(); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s without %s: %d, %v", read, name, n, err)
			}
		}
	}
}

func testTwoWriters(t *testing.T) {
	w := openSharing(t)
	w.list(2, "text")
	added := store.Batch{RV: "100", Changes: []store.Change{{Object: w.object(7, "text")}, {Key: "d/o000"}}}
	w.must(w.s.Prepare(&added))
	w.must(store.Indexer(w.s).Add(w.object(7, "other")))
	w.must(store.Indexer(w.s).Delete(w.object(0, "other")))
	w.must(w.s.Apply(added))
	for range 2 {
		if keys := w.keysOf(); len(keys) != 2 || w.s.Len() != 2 {
			t.Errorf("readers see %q, and Len is %d", keys, w.s.Len())
		}
		w.must(w.s.Flush(t.Context()))
	}
}

func testRewoundUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(3, "text")
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2")
	w.must(w.s.Apply(store.Batch{Reason: "rewound", Rewound: true}))
	w.must(errors.Join(w.s.Flush(t.Context()), w.db.Close()))
	w = openSharingOf(t, path, "1") // the upgrade is taken back
	if keys := w.keysOf(); len(keys) > 0 || w.s.Checkpoint().RV != "" {
		t.Errorf("%q are there at %q", keys, w.s.Checkpoint().RV)
	}
}
