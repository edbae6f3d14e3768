package bolt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// openLabelled opens the script's scope with the given indexes.
func openLabelled(t *testing.T, db *bolt.DB, indexes ...index.Index) store.Store {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	s, err := db.Open(scriptScope(), store.Options{Codec: c, DecodedBytes: 1, Indexes: indexes})
	must(t, err)
	return s
}

func labelled(name, app string, size int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: "u", ResourceVersion: "1", Labels: map[string]string{"app": app}},
		Data:       map[string]string{"v": strings.Repeat("x", size)},
	}
}

// apply applies a batch with the objects and the checkpoint rv.
func apply(t *testing.T, s store.Store, rv string, objects ...*corev1.ConfigMap) {
	t.Helper()
	b := store.Batch{RV: rv}
	for _, obj := range objects {
		b.Changes = append(b.Changes, store.Change{Object: obj})
	}
	must(t, s.Apply(b))
}

func flushFor(t *testing.T, s store.Store, d time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return s.Flush(ctx)
}

// TestLockWhileReopening checks that no other process can open the file to write or to
// read while a database on a full disk reopens it after each commit.
func TestLockWhileReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond, MaxBytes: 128 << 10, Compression: bolt.Uncompressed})
	must(t, err)
	s := openLabelled(t, db, index.Label("app"))
	apply(t, s, "1", labelled("a", "web", 10))
	must(t, s.Flush(t.Context()))
	apply(t, s, "2", labelled("b", "web", 300_000)) // does not fit
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		for ctx.Err() == nil {
			_ = s.Flush(ctx) // each attempt fails and opens the file again
		}
	}()
	for name, open := range map[string]func(string, bolt.Options) (*bolt.DB, error){"Open": bolt.Open, "OpenReadOnly": bolt.OpenReadOnly} {
		if other, err := open(path, bolt.Options{LockTimeout: 400 * time.Millisecond}); !errors.Is(err, store.ErrLocked) {
			t.Errorf("%s of a file that is in use: %v", name, err)
			if err == nil {
				must(t, other.Close())
			}
		}
	}
	<-writing
	keys, err := store.Indexer(s).IndexKeys("label:app", "web")
	if err != nil || len(keys) != 2 {
		t.Errorf("found %q, %v, want both", keys, err)
	}
	if err := db.Close(); err == nil {
		t.Error("Close does not say that something was not written")
	}
	if _, err := os.Lstat(path + ".lock"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file is left: %v", err)
	}
	other, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	must(t, other.Close())
}

// TestWrittenByAnother checks that the database detects when a program that ignores locks
// has written to its file.
func TestWrittenByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
	must(t, err)
	s := openLabelled(t, db, index.Label("app"))
	apply(t, s, "1", labelled("a", "web", 10))
	must(t, s.Flush(t.Context()))
	bolt.WithoutLock(db, func() {
		other, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
		must(t, err)
		for range 3 {
			must(t, other.Update(func(tx *bbolt.Tx) error {
				return tx.Bucket([]byte("meta")).Put([]byte("note"), []byte("another was here"))
			}))
		}
		must(t, other.Close())
	})
	apply(t, s, "2", labelled("b", "web", 10))
	for began := time.Now(); err == nil && time.Since(began) < 30*time.Second; {
		_ = flushFor(t, s, time.Second)
		_, err = s.Objects(store.Query{})
	}
	if !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("reading what another has written to: %v, want that it is to be listed again", err)
	}
	_ = db.Close()
}

// TestIndexBucketGone checks that a missing bucket of an index with entries in the
// manifest is damage and not an empty answer.
func TestIndexBucketGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	must(t, err)
	s := openLabelled(t, db, index.Label("app"))
	apply(t, s, "1", labelled("a", "web", 10))
	must(t, s.Flush(t.Context()))
	bolt.DropIndexBucket(db, scriptScope(), "label:app")
	if keys, err := store.Indexer(s).IndexKeys("label:app", "web"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("IndexKeys finds %q, %v, want damage", keys, err)
	}
	if objects, err := store.Indexer(s).ByIndex("label:app", "web"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("ByIndex finds %d objects, %v, want damage", len(objects), err)
	}
	must(t, db.Close())
}

// TestClosedStoreIsRead checks that a closed store can still be read, also after its
// scope was opened again and has changed, and that it never returns a shorter list.
func TestClosedStoreIsRead(t *testing.T) {
	for _, decoded := range []int64{0, -1} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
		must(t, err)
		c, err := codec.For(&corev1.ConfigMap{})
		must(t, err)
		opts := store.Options{Codec: c, DecodedBytes: decoded, Indexes: []index.Index{index.Label("app")}}
		first, err := db.Open(scriptScope(), opts)
		must(t, err)
		apply(t, first, "1", labelled("x", "web", 200))
		must(t, first.Close())
		second, err := db.Open(scriptScope(), opts)
		must(t, err)
		var more []*corev1.ConfigMap
		for i := range 300 {
			more = append(more, labelled(fmt.Sprintf("y%03d", i), "db", 200))
		}
		apply(t, second, "2", more...)
		must(t, second.Flush(t.Context()))
		all := 0
		for _, err := range first.All() {
			must(t, err)
			all++
		}
		list, err := first.Objects(store.Query{})
		must(t, err)
		_, there, err := store.Indexer(first).GetByKey("a/y007")
		must(t, err)
		keys, err := store.Indexer(first).IndexKeys("label:app", "db")
		must(t, err)
		if all != 301 || len(list) != 301 || !there || len(keys) != 300 || first.Len() != 301 {
			t.Errorf("All has %d objects, List %d, Len says %d, a new one is there: %t, the index has %d",
				all, len(list), first.Len(), there, len(keys))
		}
		must(t, second.Close())

		opts.Fresh = true // the scope is listed again
		third, err := db.Open(scriptScope(), opts)
		must(t, err)
		if list, err := first.Objects(store.Query{}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("List while there is no whole list: %d objects, %v", len(list), err)
		}
		apply(t, third, "3", labelled("z", "web", 200))
		if list, err := first.Objects(store.Query{}); err != nil || len(list) != 1 {
			t.Errorf("List after that: %d objects, %v", len(list), err)
		}
		must(t, db.Close())
	}
}

// TestWaitingOfAClosedStore checks that pending changes of a closed store no longer count
// when its scope is opened again.
func TestWaitingOfAClosedStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond, MaxPending: 10_000, MaxBytes: 128 << 10, Compression: bolt.Uncompressed})
	must(t, err)
	first := openLabelled(t, db)
	apply(t, first, "1", labelled("x", "web", 300_000))
	if err := first.Close(); err == nil {
		t.Error("Close does not say that something was not written")
	}
	second := openLabelled(t, db)
	apply(t, second, "2", labelled("x", "web", 10))
	must(t, flushFor(t, second, 10*time.Second))
	must(t, flushFor(t, first, time.Second))
	if c := second.(store.Committer).Commits(); c.AllWaiting != 0 || c.TooMuchWaits() != "" {
		t.Errorf("%d bytes wait when all is written: %q", c.AllWaiting, c.TooMuchWaits())
	}
	must(t, db.Close())
}

// TestGivenUpFirstList checks that a first list that was given up while an index was
// added leaves nothing behind, at any stage of the list.
func TestGivenUpFirstList(t *testing.T) {
	for _, whole := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
		must(t, err)
		s := openLabelled(t, db)
		indexers := cache.Indexers{"v": func(any) ([]string, error) { return []string{"v"}, nil }}
		r, err := s.Relist()
		must(t, err)
		must(t, r.Add(labelled("ghost", "web", 10)))
		must(t, r.Add(labelled("stays", "old", 10)))
		if !whole {
			must(t, store.Indexer(s).AddIndexers(indexers))
		}
		for _, err := range r.Parts("1") {
			must(t, err)
			if whole {
				must(t, store.Indexer(s).AddIndexers(indexers))
			}
			break // the list is not applied
		}
		if n := len(store.Indexer(s).ListKeys()); n != 0 {
			t.Errorf("%d objects of a list that was not applied are shown", n)
		}
		must(t, r.Close())
		r, err = s.Relist()
		must(t, err)
		must(t, r.Add(labelled("stays", "new", 10)))
		finish(t, s, r, "7")
		for _, name := range []string{"", "v"} {
			keys := store.Indexer(s).ListKeys()
			if name != "" {
				keys, err = store.Indexer(s).IndexKeys(name, "v")
				must(t, err)
			}
			if !slices.Equal(keys, []string{"a/stays"}) {
				t.Errorf("index %q has %q, want what the second list had", name, keys)
			}
		}
		must(t, db.Close())
		db, err = bolt.Open(path, bolt.Options{})
		must(t, err)
		if s = openLabelled(t, db); len(store.Indexer(s).ListKeys()) != 1 || s.Checkpoint().RV != "7" {
			t.Errorf("after a restart %q at %q", store.Indexer(s).ListKeys(), s.Checkpoint().RV)
		}
		must(t, db.Close())
	}
}

// TestFailedWipe checks that changes that were pending when a wipe failed are written
// afterwards.
func TestFailedWipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{CommitInterval: time.Hour})
	applyScript(t, s, small, 1, 3)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(small.batch(4)))
	began := atomic.Bool{}
	inWipe, goOn := make(chan struct{}), make(chan struct{})
	bolt.HookWrites(db, func(bolt.WriteAt) bolt.WriteAt {
		return func([]byte, int64) (int, error) {
			if began.CompareAndSwap(false, true) {
				close(inWipe)
				<-goOn
			}
			return 0, errFault
		}
	})
	wiped := make(chan error)
	go func() {
		_, err := db.Wipe(nil)
		wiped <- err
	}()
	<-inWipe
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	flushed := make(chan error)
	go func() { flushed <- s.Flush(ctx) }()
	for range 3 { // the committer has found nothing that it may write
		bolt.Wake(db)
	}
	close(goOn)
	if err := <-wiped; !errors.Is(err, errFault) {
		t.Errorf("the wipe has not failed: %v", err)
	}
	must(t, <-flushed)
	wantState(t, s, small, 4)
	must(t, db.Close())
}

// TestBookmarkOfWhatIsLost checks that a bookmark does not set the checkpoint of a wiped
// store, and that Close does not wait for a commit of it.
func TestBookmarkOfWhatIsLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{CommitInterval: time.Millisecond})
	applyScript(t, s, small, 1, 3)
	_, err := db.Wipe(nil)
	must(t, err)
	store.Indexer(s).Bookmark("77")
	if c := s.Checkpoint(); c.RV != "" {
		t.Errorf("what was wiped is complete up to %q", c.RV)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Close hangs")
	}
	must(t, db.Close())
}

// openBeforeRemap opens a file that bbolt has to map anew after a few megabytes more.
func openBeforeRemap(t *testing.T) (*bolt.DB, store.Store) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 1)
	raiseHighWater(t, path, 1<<30-1<<20) // bbolt's first mapping is 1 GiB
	return mustOpenScript(t, path, bolt.Options{CommitInterval: time.Hour, CommitBytes: 1 << 30, Compression: bolt.Uncompressed})
}

// remap applies these megabytes, and returns when the committer waits to map the file.
func remap(t *testing.T, db *bolt.DB, s store.Store) {
	t.Helper()
	var big []*corev1.ConfigMap
	for i := range 40 {
		big = append(big, labelled(fmt.Sprint("big", i), "web", 100_000))
	}
	apply(t, s, "2", big...)
	bolt.Wake(db)
	bolt.AwaitRemap(db)
}

// TestRemapBesideReaders checks that readers do not deadlock while bbolt's writer waits
// for them to map a longer file: a running reader must not wait for one that waits for
// the writer.
func TestRemapBesideReaders(t *testing.T) {
	db, s := openBeforeRemap(t)
	inView, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}, 2)
	go func() {
		bolt.ViewBucket(db, s, func() {
			close(inView)
			<-goOn
		})
		ended <- struct{}{}
	}()
	<-inView
	remap(t, db, s) // the committer waits for the reader
	go func() {
		_, _, _ = s.Object(small.key(0)) // its transaction waits for the committer
		ended <- struct{}{}
	}()
	bolt.AwaitReader(s)
	close(goOn)
	for range 2 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("a reader hangs")
		}
	}
	must(t, db.Close())
}

// stalled is a writer that does not take what it is given until goOn is closed.
type stalled struct{ begun, goOn chan struct{} }

func (s *stalled) Write(b []byte) (int, error) {
	select {
	case <-s.begun:
	default:
		close(s.begun)
	}
	<-s.goOn
	return len(b), nil
}

// TestCloseBesideStalledCopy checks that Close does not wait for a copy whose reader has
// stalled, while a commit waits for it to map a longer file, and a read for the commit.
func TestCloseBesideStalledCopy(t *testing.T) {
	db, s := openBeforeRemap(t)
	w := &stalled{make(chan struct{}), make(chan struct{})}
	copied := make(chan error, 1)
	go func() {
		_, err := db.CopyTo(w)
		copied <- err
	}()
	<-w.begun
	remap(t, db, s) // the committer waits for the copy
	go func() { _, _, _ = s.Object(small.key(0)) }()
	bolt.AwaitReader(s)
	closed := make(chan error, 1)
	go func() { closed <- db.Close() }()
	select {
	case err := <-closed:
		must(t, err)
	case <-time.After(time.Minute):
		t.Error("Close waits for the copy")
	}
	close(w.goOn)
	if err := <-copied; !errors.Is(err, store.ErrClosed) {
		t.Errorf("the copy: %v", err)
	}
}

// TestLongKeys checks keys that are longer than bbolt's limit. Two objects whose keys
// have a long common prefix must remain separate in every operation.
func TestLongKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	long := strings.Repeat("long/", 9000)
	names := []string{"short", long + "1", long + "2", long[:bolt.MaxKey-2], long[:bolt.MaxKey-1]}
	db, err := bolt.Open(path, bolt.Options{CommitInterval: time.Millisecond})
	must(t, err)
	other, err := db.Open(store.Scope{Cluster: "c", Resource: "others", Kind: scriptScope().Kind}, store.Options{Codec: mustCodec(t)})
	must(t, err)
	s := openLabelled(t, db, index.Label("app"))
	var objects []*corev1.ConfigMap
	var keys []string
	for _, name := range names {
		objects = append(objects, labelled(name, "web", 10))
		keys = append(keys, "a/"+name)
	}
	slices.Sort(keys)
	check := func(when string) {
		t.Helper()
		entries, err := s.Select(store.Query{Index: "label:app", Values: []string{"web"}})
		must(t, err)
		var selected, headers, scanned []string
		for _, e := range entries {
			selected = append(selected, e.Key)
		}
		for h, err := range store.HeadersOfAll(s) {
			must(t, err)
			headers = append(headers, h.Key)
		}
		for after := ""; ; {
			entries, err := s.Select(store.Query{After: after, Limit: 1})
			must(t, err)
			if len(entries) == 0 {
				break
			}
			after = entries[0].Key
			scanned = append(scanned, after)
		}
		indexed, err := store.Indexer(s).IndexKeys("label:app", "web")
		must(t, err)
		for what, got := range map[string][]string{
			"ListKeys": store.Indexer(s).ListKeys(), "Select": selected, "Headers": headers, "pages": scanned, "IndexKeys": indexed,
		} {
			if slices.Sort(got); !slices.Equal(got, keys) {
				t.Errorf("%s: %s has %d keys, want %d", when, what, len(got), len(keys))
			}
		}
		for _, key := range keys {
			obj, ok, err := store.Indexer(s).GetByKey(key)
			if err != nil || !ok || "a/"+obj.(*corev1.ConfigMap).Name != key {
				t.Errorf("%s: a key of %d bytes: %t, %v", when, len(key), ok, err)
			}
		}
	}
	apply(t, s, "1", objects...)
	apply(t, other, "1", labelled("x", "web", 10))
	check("pending")
	must(t, flushFor(t, other, 10*time.Second))
	must(t, flushFor(t, s, 10*time.Second))
	check("written")
	must(t, db.Close())

	db, err = bolt.Open(path, bolt.Options{})
	must(t, err)
	s = openLabelled(t, db, index.Label("app"))
	check("opened again")
	r, err := s.Relist()
	must(t, err)
	for _, obj := range objects[:2] {
		must(t, r.Add(obj))
	}
	r.Keep(keys[0])
	gone := 0
	for b, err := range r.Parts("2") {
		must(t, err)
		gone += len(b.Changes)
		must(t, s.Apply(b))
	}
	must(t, r.Close())
	if keys = store.Indexer(s).ListKeys(); len(keys) != len(objects)-gone || gone != 2 {
		t.Errorf("a list that lacks two leaves %d after %d changes", len(keys), gone)
	}
	must(t, db.Close())
}

func mustCodec(t *testing.T) codec.Codec {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	return c
}

// TestIndexNames checks that Open refuses index names that bbolt would refuse at the next
// commit.
func TestIndexNames(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Millisecond})
	must(t, err)
	for _, name := range []string{"", strings.Repeat("x", 40_000)} {
		idx := index.Label("app")
		idx.Name = name
		if _, err := db.Open(scriptScope(), store.Options{Codec: mustCodec(t), Indexes: []index.Index{idx}}); err == nil {
			t.Errorf("an index with a name of %d bytes was taken", len(name))
		}
	}
	// client-go accepts an indexer without a name. Its entries are held in memory.
	s, err := db.Open(scriptScope(), store.Options{Codec: mustCodec(t), Indexers: cache.Indexers{"": cache.MetaNamespaceIndexFunc}})
	must(t, err)
	apply(t, s, "1", labelled("a", "web", 10))
	must(t, flushFor(t, s, 10*time.Second))
	if keys, err := store.Indexer(s).IndexKeys("", "a"); err != nil || len(keys) != 1 {
		t.Errorf("the index without a name has %q, %v", keys, err)
	}
	must(t, db.Close())
}

// TestHugeObject checks that an object of any size that can be stored can be read.
func TestHugeObject(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{Compression: bolt.Zstd})
	must(t, err)
	s := openLabelled(t, db)
	apply(t, s, "1", labelled("huge", "web", codec.MaxDecompressed+1))
	must(t, s.Flush(t.Context()))
	if _, ok, err := store.Indexer(s).GetByKey("a/huge"); err != nil || !ok {
		t.Errorf("an object of %d bytes: %t, %v", codec.MaxDecompressed+1, ok, err)
	}
	must(t, db.Close())
}

// TestRelativePath checks that the file stays at its place when the process changes its
// working directory.
func TestRelativePath(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	t.Chdir(one)
	db, s := mustOpenScript(t, "informers.db", bolt.Options{CommitInterval: time.Millisecond})
	applyScript(t, s, small, 1, 3)
	must(t, s.Flush(t.Context()))
	must(t, os.Chdir(two))
	must(t, s.Apply(small.batch(4)))
	must(t, flushFor(t, s, 10*time.Second))
	wantState(t, s, small, 4)
	if db.Path() != filepath.Join(one, "informers.db") {
		t.Errorf("Path() is %s", db.Path())
	}
	must(t, db.Close())
	wantFiles(t, filepath.Join(two, "informers.db"), 0)
}

// TestMaxBytesOfAnyLength checks that the file never exceeds its bound and uses at least
// half of it.
func TestMaxBytesOfAnyLength(t *testing.T) {
	for _, bound := range []int{300 << 10, 1000 << 10, 3 << 20, 5 << 20} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, err := bolt.Open(path, bolt.Options{MaxBytes: bound, CommitInterval: time.Millisecond, Compression: bolt.Uncompressed})
		must(t, err)
		s := openLabelled(t, db)
		written := 0
		for n := 0; n < bound/3000; n += 10 {
			for i := range 10 {
				apply(t, s, fmt.Sprint(n+i+1), labelled(fmt.Sprint("o", n+i), "web", 4000))
			}
			if flushFor(t, s, time.Second) != nil {
				break
			}
			written = n + 10
		}
		size := mustStat(t, path).Size()
		if size > int64(bound) || written*4000 < bound/4 {
			t.Errorf("bound %d: the file has %d bytes, %d objects of 4000 bytes were written", bound, size, written)
		}
		_ = db.Close()
	}
}

// TestSuspendedLeavesTheFile checks that a database does not touch a file that it does
// not trust.
func TestSuspendedLeavesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	scriptFile(t, path, small, 1)
	must(t, os.Chmod(path, 0o666))
	before := read(t, path)
	db, err := bolt.Open(path, bolt.Options{})
	if must(t, err); db.Suspended() == nil {
		t.Fatal("the file is used")
	}
	if err := db.SetLedger(t.Context(), "clusters", map[string][]byte{"asked": nil}); !errors.Is(err, db.Suspended()) {
		t.Errorf("SetLedger: %v", err)
	}
	if _, err := db.Wipe(nil); !errors.Is(err, db.Suspended()) {
		t.Errorf("Wipe: %v", err)
	}
	must(t, db.Close())
	if string(before) != string(read(t, path)) {
		t.Error("the file was changed")
	}
}

// raiseHighWater makes a file as long as one in which that many bytes are used. It takes
// no space on disk.
func raiseHighWater(t *testing.T, path string, bytes int64) {
	t.Helper()
	content := read(t, path)
	meta := newestMetaOf(content)
	binary.LittleEndian.PutUint64(meta[40:], uint64(bytes)/uint64(pageSize))
	sum := fnv.New64a()
	sum.Write(meta[:56])
	binary.LittleEndian.PutUint64(meta[56:], sum.Sum64())
	must(t, os.WriteFile(path, content, 0o600))
	must(t, os.Truncate(path, bytes))
}

// TestEncodeWritesNothing checks that Encode does not write to its object, which readers
// share. The generated protobuf code fills a cache in the quantities that it encodes.
func TestEncodeWritesNothing(t *testing.T) {
	disk, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	must(t, err)
	for name, db := range map[string]store.Backend{"bolt": disk, "mem": mem.New()} {
		t.Run(name, func(t *testing.T) {
			pod := func() *corev1.Pod {
				return &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"},
					Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
						EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(5<<20, resource.BinarySI)},
					}}}},
				}
			}
			c, err := codec.For(&corev1.Pod{})
			must(t, err)
			s, err := db.Open(scriptScope(), store.Options{Codec: c})
			must(t, err)
			shared := pod()
			_, err = s.Encode(shared)
			must(t, err)
			if !reflect.DeepEqual(pod(), shared) {
				t.Errorf("the object was changed from %#v to %#v", pod(), shared)
			}
			must(t, db.Close())
		})
	}
}

// TestEpochOfReplacedFile checks that a file which takes the place of a lost one is of
// the epoch of the process: what is stored in it survives a start with that epoch, and
// nothing of another epoch is taken over, also for scopes that are opened later.
func TestEpochOfReplacedFile(t *testing.T) {
	foreign := func(epoch string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			other := filepath.Join(t.TempDir(), "other.db")
			db, err := bolt.Open(other, bolt.Options{Epoch: epoch})
			must(t, err)
			for _, namespace := range []string{"", "later"} {
				s, err := db.Open(inNamespace(namespace), scriptOptions())
				must(t, err)
				loadScript(t, s, "900", 7, 8)
			}
			must(t, db.Close())
			must(t, os.Rename(other, path))
		}
	}
	for name, replace := range map[string]func(*testing.T, string){
		"removed":                  func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"one without an epoch":     foreign(""),
		"one of another epoch":     foreign("other"),
		"one of the same epoch":    foreign("e"),
		"replaced twice":           func(t *testing.T, path string) { foreign("other")(t, path); must(t, os.Remove(path)) },
		"nothing happens to it":    nil,
		"one of an earlier backup": foreign("d"),
	} {
		for _, epoch := range []string{"e", ""} { // "" keeps that of the file
			t.Run(name+", epoch "+epoch, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "informers.db")
				db, s := mustOpenScript(t, path, bolt.Options{Epoch: "e"})
				loadScript(t, s, "1", 0, 1)
				must(t, db.Close())

				db, s = mustOpenScript(t, path, bolt.Options{Epoch: epoch})
				if replace != nil {
					replace(t, path)
					must(t, s.Apply(store.Batch{RV: "2"}))
					_ = s.Flush(t.Context()) // finds that
				}
				later, err := db.Open(inNamespace("later"), scriptOptions())
				must(t, err)
				if got, _ := bolt.Epoch(db); got != "e" {
					t.Errorf("the file has epoch %q, want e", got)
				}
				if rv := later.Checkpoint().RV; rv != "" && name != "one of the same epoch" {
					t.Errorf("a scope that is opened later goes on at %q of another epoch", rv)
				}
				loadScript(t, s, "3", 0, 1, 2)
				must(t, s.Flush(t.Context()))
				must(t, db.Close())

				_, s = mustOpenScript(t, path, bolt.Options{Epoch: "e"})
				if rv := s.Checkpoint().RV; rv != "3" || s.Len() != 3 {
					t.Errorf("%d objects at %q after a start with the same epoch, want 3 at 3", s.Len(), rv)
				}
			})
		}
	}
}
