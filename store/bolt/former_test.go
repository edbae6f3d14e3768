package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// changedType is a codec whose Go type has changed.
type changedType struct{ codec.Codec }

func (c changedType) Fingerprint() string { return "changed " + c.Codec.Fingerprint() }

// loadScript lists some objects of a script.
func loadScript(t *testing.T, s store.Store, rv string, numbers ...int) {
	t.Helper()
	list, err := s.Relist()
	must(t, err)
	for _, i := range numbers {
		must(t, list.Add(small.object(i, 1)))
	}
	for part, err := range list.Parts(rv) {
		must(t, err)
		must(t, s.Apply(part))
	}
	must(t, list.Close())
}

// wantDeparted fails unless the store has these departed objects, in this order.
func wantDeparted(t *testing.T, s store.Store, numbers ...int) {
	t.Helper()
	var want, got []string
	for _, i := range numbers {
		want = append(want, small.key(i))
	}
	found, err := s.(store.Departer).Departed(0, 1000)
	must(t, err)
	for _, d := range found {
		obj, err := s.Decode(d.Before)
		must(t, err)
		key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
		must(t, err)
		got = append(got, key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("departed are %q, want %q", got, want)
	}
}

// TestFormerOfAnotherCluster checks that a list is not compared with objects of another
// cluster: they are not told as deleted.
func TestFormerOfAnotherCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	loadScript(t, s, "1", 0, 1)
	must(t, s.Apply(store.Batch{Reason: store.ForeignContent, Changes: []store.Change{{Object: small.object(2, 1)}}}))
	must(t, s.Flush(t.Context()))
	must(t, db.Close())
	opts := scriptOptions()
	opts.TransformVersion = "2"
	_, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	if s.(store.Departer).Compares() {
		t.Error("the list is compared with another cluster's objects")
	}
	loadScript(t, s, "3", 0)
	must(t, s.Flush(t.Context()))
	wantDeparted(t, s)
}

// TestFormer checks that what a changed type, transform or age makes useless is compared
// with the next list, whichever process gets there, and is dropped then.
func TestFormer(t *testing.T) {
	transformed := func(o *store.Options) { o.TransformVersion = "2" }
	for name, test := range map[string]struct {
		db     bolt.Options
		change func(*store.Options)
	}{
		"transform":            {change: transformed},
		"type":                 {change: func(o *store.Options) { o.Codec = changedType{o.Codec} }},
		"fresh":                {change: func(o *store.Options) { o.Fresh = true }},
		"encrypted":            {db: allWith(fixedKeys{{1}}), change: transformed},
		"without compression":  {db: bolt.Options{Compression: bolt.Uncompressed}, change: transformed},
		"a log of nothing":     {change: func(o *store.Options) { transformed(o); o.History.Bytes = -1 }},
		"every object decoded": {change: func(o *store.Options) { transformed(o); o.DecodedBytes = -1 }},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScriptWith(t, path, test.db, scriptOptions())
			loadScript(t, s, "1", 0, 1, 2, 3)
			must(t, s.Flush(t.Context()))
			must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), Departs: true}}}))
			must(t, s.Flush(t.Context()))
			must(t, db.Close())

			opts := scriptOptions()
			test.change(&opts)
			open := func() {
				t.Helper()
				db, s = mustOpenScriptWith(t, path, test.db, opts)
				if keys, err := s.Keys(store.Query{}); err != nil || len(keys) != 0 || s.Len() != 0 {
					t.Fatalf("keys %q, %v, length %d before the list", keys, err, s.Len())
				}
			}
			for range 2 { // the first process ends before its list does
				open()
				if !s.(store.Departer).Compares() {
					t.Fatal("there is nothing to compare the list with")
				}
				wantDeparted(t, s, 0)
				list, err := s.Relist()
				must(t, err)
				must(t, list.Add(small.object(1, 1)))
				must(t, list.Close())
				wantDeparted(t, s, 0)
				must(t, db.Close())
			}
			open()
			other := small.object(2, 1)
			other.UID = "another"
			list, err := s.Relist()
			must(t, err)
			must(t, list.Add(small.object(1, 1)))
			must(t, list.Add(other))
			for part, err := range list.Parts("3") {
				must(t, err)
				must(t, s.Apply(part))
			}
			must(t, list.Close())
			wantDeparted(t, s, 0, 2, 3) // before the commit
			must(t, s.Flush(t.Context()))
			wantDeparted(t, s, 0, 2, 3)
			if s.Len() != 2 {
				t.Errorf("length %d, want 2", s.Len())
			}
			must(t, db.Close())
			wantNoFormer(t, path)

			if opts.Fresh {
				return // it would be compared again
			}
			db, s = mustOpenScriptWith(t, path, test.db, opts)
			if s.(store.Departer).Compares() || s.Checkpoint().RV != "3" {
				t.Error("the list is not taken over")
			}
			wantDeparted(t, s, 0, 2, 3)
			s.(store.Departer).Settle()
			must(t, db.Close())
			db, s = mustOpenScriptWith(t, path, test.db, opts)
			wantDeparted(t, s)
			must(t, db.Close())
		})
	}
}

// wantNoFormer fails if the file has content that only waits to be compared.
func wantNoFormer(t *testing.T, path string) {
	t.Helper()
	file, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	must(t, err)
	defer file.Close()
	must(t, file.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("scope")).ForEachBucket(func(id []byte) error {
			if tx.Bucket([]byte("scope")).Bucket(id).Bucket([]byte("former")) != nil {
				t.Errorf("scope %s still has former content", id)
			}
			return nil
		})
	}))
}

// TestFormerUnreadable checks that content with another key is dropped, and that a list
// is served then.
func TestFormerUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScriptWith(t, path, bolt.Options{}, scriptOptions())
	loadScript(t, s, "1", 0, 1, 2)
	must(t, db.Close())
	opts := scriptOptions()
	opts.TransformVersion = "2"
	db, _ = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	must(t, db.Close())

	db, s = mustOpenScriptWith(t, path, allWith(fixedKeys{{1}}), opts)
	loadScript(t, s, "2", 0)
	must(t, s.Flush(t.Context()))
	wantDeparted(t, s)
	must(t, db.Close())
	wantNoFormer(t, path)
}

// TestFormerDamaged checks that damage of the former content is found like any other.
func TestFormerDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScriptWith(t, path, bolt.Options{Compression: bolt.Uncompressed}, scriptOptions())
	loadScript(t, s, "1", 0, 1, 2)
	must(t, db.Close())
	opts := scriptOptions()
	opts.TransformVersion = "2"
	db, _ = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	must(t, db.Close())

	// In old pages, too, whichever comes first.
	content := []byte(small.object(1, 1).Data["content"])
	damaged := bytes.Clone(content)
	damaged[0] ^= 1
	b := read(t, path)
	if !bytes.Contains(b, content) {
		t.Fatal("the former content is not in the file")
	}
	must(t, os.WriteFile(path, bytes.ReplaceAll(b, content, damaged), 0o600))
	db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	if db.SetAside() == "" {
		t.Error("the file was not set aside")
	}
	loadScript(t, s, "2", 0)
	wantDeparted(t, s)
	must(t, db.Close())
}

// TestFormerDamagedLater checks that one object of the former content that is damaged
// after Open does not hide the others that are gone.
func TestFormerDamagedLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScriptWith(t, path, bolt.Options{Compression: bolt.Uncompressed}, scriptOptions())
	loadScript(t, s, "1", 0, 1, 2, 3)
	must(t, db.Close())
	opts := scriptOptions()
	opts.TransformVersion = "2"
	db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	content := []byte(small.object(1, 1).Data["content"])
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	found := 0
	for b, at := read(t, path), 0; ; found++ {
		i := bytes.Index(b[at:], content)
		if i < 0 {
			break
		}
		_, err := f.WriteAt([]byte{content[0] ^ 1}, int64(at+i))
		must(t, err)
		at += i + 1
	}
	must(t, f.Close())
	if found == 0 {
		t.Fatal("the former content is not in the file")
	}
	loadScript(t, s, "2", 0)
	wantDeparted(t, s, 2, 3)
	must(t, db.Close())
}

// TestFormerBound checks that the bound of the log holds for what departs at once.
func TestFormerBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := scriptOptions()
	db, s := mustOpenScriptWith(t, path, bolt.Options{}, opts)
	var all []int
	for i := range small.keys {
		all = append(all, i)
	}
	loadScript(t, s, "1", all...)
	must(t, db.Close())

	opts.TransformVersion, opts.History.Bytes = "2", 4<<10
	db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	loadScript(t, s, "2")
	must(t, s.Flush(t.Context()))
	kept, dropped := s.(store.Departer).Departures()
	if kept == 0 || dropped == 0 || kept+dropped != small.keys {
		t.Errorf("%d are kept and %d are not, want some of both, %d in all", kept, dropped, small.keys)
	}
	must(t, db.Close())
}

// TestDepartedWhileLoading checks that departed objects of an earlier process, and the
// log, can be read while a first list is loaded, even if there is nothing to compare it
// with.
func TestDepartedWhileLoading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := scriptOptions()
	db, s := mustOpenScriptWith(t, path, bolt.Options{}, opts)
	loadScript(t, s, "1", 0)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), RV: "2", Departs: true}}}))
	must(t, db.Close())
	opts.TransformVersion = "2"
	db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	list, err := s.Relist()
	must(t, err)
	wantDeparted(t, s, 0)
	var deleted []string
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for e, err := range s.Follow(over, store.Place{}) {
		if err == nil && e.Mark == nil {
			deleted = append(deleted, e.Key)
		}
	}
	if !slices.Equal(deleted, []string{small.key(0)}) {
		t.Errorf("the log has %q while the list is loaded", deleted)
	}
	must(t, list.Close())
	must(t, db.Close())
}

// TestLogOverDrop checks that the log does not take what the next list has brought for a
// state that an earlier change has led to, and that places of before lead nowhere.
func TestLogOverDrop(t *testing.T) {
	l := newLogScope(t, store.History{})
	l.put(1)
	l.put(1)
	before := l.history().Last
	l.opts.TransformVersion = "2"
	l.reopen()
	list, err := l.s.Relist()
	must(t, err)
	must(t, list.Add(l.object(1, 30)))
	for part, err := range list.Parts("30") {
		must(t, errors.Join(err, l.s.Apply(part)))
	}
	must(t, errors.Join(list.Close(), l.s.Flush(t.Context())))
	l.rv = 30
	l.put(1)
	changes := 0
	events, err := eventsUntil(l.s, store.Place{}, l.history().Last)
	must(t, err)
	for _, e := range events {
		if e.Mark != nil || e.New == nil {
			continue
		}
		if changes++; e.New.IsKnown() && e.New.Header.RV != e.RV {
			t.Errorf("the change to %s has led to a state of %s", e.RV, e.New.Header.RV)
		}
	}
	if changes != 3 {
		t.Errorf("%d changes, want 3", changes)
	}
	for _, at := range []store.Place{before, {RV: before.RV}} {
		if _, err := eventsUntil(l.s, at, l.history().Last); !errors.Is(err, store.ErrLineage) && !errors.Is(err, store.ErrTrimmed) {
			t.Errorf("Follow from %s: %v", at, err)
		}
	}
	l.verify()
}

// TestFormerCompressed checks that the bound is for bytes as they are in the log.
func TestFormerCompressed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	const n = 400
	db, s := openPods(t, path, bolt.Options{})
	listPods(t, s, n, 1)
	must(t, s.Flush(t.Context()))
	bytes := bytesOf(t, db)
	must(t, db.Close())
	c, err := codec.For(&corev1.Pod{})
	must(t, err)
	db, err = bolt.Open(path, bolt.Options{})
	must(t, err)
	s, err = db.Open(podScope, store.Options{Codec: c, TransformVersion: "2", History: store.History{Bytes: 2 * bytes}})
	must(t, err)
	loadScript(t, s, "2")
	for range 2 {
		gone, err := s.(store.Departer).Departed(0, n)
		must(t, err)
		if _, dropped := s.(store.Departer).Departures(); len(gone) != n || dropped > 0 {
			t.Errorf("%d are kept and %d are not, want %d", len(gone), dropped, n)
		}
		for _, d := range gone {
			if _, err := s.Decode(d.Before); err != nil {
				t.Fatal(err)
			}
		}
		must(t, s.Flush(t.Context()))
	}
	must(t, db.Close())
}

// TestFormerUnwritten checks that a scope that could not begin anew when it was opened
// does so later, with the same departed objects and their numbers. The process may end
// before there is a list.
func TestFormerUnwritten(t *testing.T) {
	for name, killed := range map[string]bool{"listed": false, "ended before the list": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			opts := scriptOptions()
			db, s := mustOpenScriptWith(t, path, bolt.Options{}, opts)
			loadScript(t, s, "1", 0, 1, 2, 3)
			must(t, s.Flush(t.Context()))
			must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), Departs: true}}}))
			s.(store.Departer).Settle()
			must(t, db.Close())

			opts.TransformVersion = "2"
			db, err := bolt.Open(path, bolt.Options{})
			must(t, err)
			bolt.HookWrites(db, func(bolt.WriteAt) bolt.WriteAt {
				return func([]byte, int64) (int, error) { return 0, errors.New("there is no room") }
			})
			s, err = db.Open(scriptScope(), opts)
			must(t, err)
			if killed {
				must(t, s.Flush(t.Context()))
				must(t, db.Close())
				db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
			}
			if !s.(store.Departer).Compares() {
				t.Error("there is nothing to compare the list with")
			}
			loadScript(t, s, "3", 1, 2)
			wantDeparted(t, s, 3) // 0 was settled
			must(t, s.Flush(t.Context()))
			wantDeparted(t, s, 3)
			must(t, db.Close())
			db, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
			wantDeparted(t, s, 3)
			must(t, db.Close())
		})
	}
}

// TestFormerOfReplacedFile checks that nothing of a file that takes the place of a lost
// one is taken over.
func TestFormerOfReplacedFile(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "informers.db"), filepath.Join(dir, "other.db")
	db, s := mustOpenScript(t, other, bolt.Options{})
	loadScript(t, s, "1", 0, 1, 2, 3, 4)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(0), Departs: true}, {Key: small.key(1), Departs: true}}}))
	must(t, db.Close())
	db, s = mustOpenScript(t, path, bolt.Options{})
	loadScript(t, s, "1", 5, 6)
	must(t, s.Flush(t.Context()))

	must(t, os.Rename(other, path))
	must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Key: small.key(5)}}}))
	_ = s.Flush(t.Context()) // finds the other file
	if _, err := s.Keys(store.Query{}); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("the file was not lost: %v", err)
	}
	loadScript(t, s, "3", 5, 6, 7)
	must(t, s.Flush(t.Context()))
	wantDeparted(t, s)
	must(t, s.Apply(store.Batch{RV: "4", Changes: []store.Change{{Key: small.key(6), Departs: true}}}))
	wantDeparted(t, s, 6)
	must(t, s.Flush(t.Context()))
	wantDeparted(t, s, 6)
	must(t, db.Close())
	db, s = mustOpenScript(t, path, bolt.Options{})
	wantDeparted(t, s, 6)
	must(t, db.Close())
}

// TestFormerKeepsDictionary checks that a list with another dictionary leaves that of the
// former content in the file.
func TestFormerKeepsDictionary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	const n = 400
	open := func(path, transform string) (*bolt.DB, store.Store) {
		t.Helper()
		c, err := codec.For(&corev1.Pod{})
		must(t, err)
		db, err := bolt.Open(path, bolt.Options{})
		must(t, err)
		s, err := db.Open(podScope, store.Options{Codec: c, DecodedBytes: 1, TransformVersion: transform})
		must(t, err)
		return db, s
	}
	db, s := open(path, "1")
	listPods(t, s, n, 1)
	must(t, db.Close())
	db, s = open(path, "2")
	bolt.SetTrials(s, 1<<20)
	list, err := s.Relist()
	must(t, err)
	bolt.SetRelistLimit(list, 100<<10)
	for _, i := range inKeyOrder(n, 1) {
		must(t, list.Add(changedPod(i)))
	}
	var killed []byte
	bolt.Quiet(db, func() { killed = read(t, path) })
	must(t, list.Close())
	must(t, db.Close())

	path += ".killed"
	writeContent(t, path, killed)
	if keys := dictionariesOf(t, path); len(keys) != 2 {
		t.Fatalf("there are dictionaries %q: this tests nothing", keys)
	}
	db, s = open(path, "2")
	if aside := db.SetAside(); aside != "" {
		t.Errorf("the file was set aside as %s", aside)
	}
	listPods(t, s, n-10, 1)
	gone, err := s.(store.Departer).Departed(0, n)
	if must(t, err); len(gone) != 10 {
		t.Errorf("%d have departed, want 10", len(gone))
	}
	for _, d := range gone {
		if _, err := s.Decode(d.Before); err != nil {
			t.Errorf("%s: %v", d.Before.Key, err)
		}
	}
	must(t, db.Close())
}

// TestFormerInFullFile checks that a list is written that fits into a file beside nothing
// but itself: the former content, with which it was compared, makes room for what it has
// left. What was deleted while no process ran is told, by the next process, too.
func TestFormerInFullFile(t *testing.T) {
	big := script{keys: 200, pad: 8 << 10}
	list := func(s store.Store, rv string, from, to int) {
		t.Helper()
		r, err := s.Relist()
		must(t, err)
		bolt.SetRelistLimit(r, 256<<10)
		for i := from; i < to; i++ {
			must(t, r.Add(big.object(i, 1)))
		}
		for part, err := range r.Parts(rv) {
			must(t, err)
			must(t, s.Apply(part))
		}
		must(t, r.Close())
	}
	departed := func(s store.Store) []string {
		t.Helper()
		found, err := s.(store.Departer).Departed(0, 1000)
		must(t, err)
		var keys []string
		for _, d := range found {
			if d.Before.Raw == nil {
				t.Errorf("%s has no content", d.Before.Key)
			}
			keys = append(keys, d.Before.Key)
		}
		return keys
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	full := bolt.Options{MaxBytes: 4 << 20, Compression: bolt.Uncompressed, CommitInterval: time.Hour}
	db, s := mustOpenScriptWith(t, path, full, scriptOptions())
	list(s, "1", 0, 200)
	must(t, db.Close())

	opts := scriptOptions()
	opts.TransformVersion = "2"
	db, s = mustOpenScriptWith(t, path, full, opts)
	list(s, "2", 3, 200)
	want := []string{big.key(0), big.key(1), big.key(2)}
	if got := departed(s); !slices.Equal(got, want) {
		t.Errorf("before the commit %q have departed, want %q", got, want)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Flush(ctx); err != nil {
		t.Fatalf("the list is never written: %v", err)
	}
	must(t, s.Apply(store.Batch{RV: "3", Changes: []store.Change{{Key: big.key(9), RV: "3", Departs: true}}}))
	must(t, s.Flush(ctx))
	want = append(want, big.key(9))
	for range 2 {
		if got := departed(s); !slices.Equal(got, want) {
			t.Errorf("%q have departed, want %q", got, want)
		}
		if kept, dropped := s.(store.Departer).Departures(); kept != 4 || dropped != 0 {
			t.Errorf("%d are kept and %d dropped, want 4 and 0", kept, dropped)
		}
		if s.Len() != 196 || s.Checkpoint().RV != "3" {
			t.Errorf("%d objects at %s, want 196 at 3", s.Len(), s.Checkpoint().RV)
		}
		must(t, logAddsUp(s))
		must(t, db.Close())
		db, s = mustOpenScriptWith(t, path, full, opts)
	}
	must(t, db.Close())
	wantNoFormer(t, path)
}
