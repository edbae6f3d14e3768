package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pack"
)

// These tests combine features where one of them fails or has nothing to do: damage,
// trims of the log, dictionaries, views, keys.

// TestTrimBeginsNoLineage checks that a trim before a rewind is written does not begin
// the new lineage: the last place stays.
func TestTrimBeginsNoLineage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	w := openBounded(t, path, 0, "", store.Options{})
	w.list(60, "")
	w.change(5, 5000)
	before, err := w.s.History()
	w.must(err)
	w.must(w.s.Apply(store.Batch{Reason: "rewound", Rewound: true}))
	w.db.committer.trimLogs(1 << 20)
	after, err := w.s.History()
	w.must(err)
	if before.Last != after.Last {
		t.Errorf("a trim has changed the last place from %+v to %+v", before.Last, after.Last)
	}
}

func damagePages(t *testing.T, path, marker string, damage func(page []byte, at int)) (n int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	size := os.Getpagesize()
	for off := 2 * size; off+size <= len(b); off += size {
		page := b[off : off+size]
		if at := bytes.Index(page, []byte(marker)); at >= 0 {
			damage(page, at)
			if _, err := f.WriteAt(page, int64(off)); err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	return n
}

func listMarked(w *sharingScope, n int) {
	r, err := w.s.Relist()
	w.must(err)
	for i := range n {
		w.must(r.Add(w.object(i, fmt.Sprintf("marker-%03d-", i))))
	}
	for b, err := range r.Parts(fmt.Sprint(w.rv)) {
		w.must(errors.Join(err, w.s.Apply(b)))
	}
	w.must(errors.Join(r.Close(), w.s.Flush(w.Context())))
}

// TestMendBesideDamagedPage checks that a damaged record is overwritten although a page
// elsewhere is damaged, which the commit does not need.
func TestMendBesideDamagedPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	w := openBounded(t, path, 0, "", store.Options{})
	listMarked(w, 300)
	if n := damagePages(t, path, "marker-010-", func(p []byte, at int) { p[at] ^= 1 }); n != 1 {
		t.Fatal(n)
	}
	if n := damagePages(t, path, "marker-250-", func(p []byte, _ int) { binary.LittleEndian.PutUint16(p[8:], 0) }); n != 1 {
		t.Fatal(n)
	}
	w.must(w.s.Apply(store.Batch{RV: "1000", Changes: []store.Change{{Object: w.object(10, "new")}}}))
	for range 3 {
		if err := w.db.committer.commit(); err != nil {
			t.Logf("commit: %v", err)
		}
	}
	if n := w.s.Commits().Rebuilds; n != 0 || w.s.isLost() {
		t.Errorf("the file was set aside %d times; lost %t", n, w.s.isLost())
	}
}

// TestMendedChecksum checks that a list mends a record whose payload or checksum is
// damaged: the next Open finds nothing wrong.
func TestMendedChecksum(t *testing.T) {
	for name, back := range map[string]int{"payload": 0, "checksum": 8} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "i.db")
			w := openBounded(t, path, 0, "", store.Options{})
			listMarked(w, 300)
			// value: CRC 4, codec, dictionary, data key, length of key, key, payload
			n := damagePages(t, path, "marker-010-", func(p []byte, at int) {
				if back == 0 {
					p[at] ^= 1
					return
				}
				k := bytes.LastIndex(p[:at], []byte("d/o010"))
				for k >= 8 && !bytes.HasPrefix(p[k-8-6:], []byte("d/o010")) {
					k = bytes.LastIndex(p[:k], []byte("d/o010"))
				}
				p[k-back] ^= 1
			})
			if n != 1 {
				t.Fatal(n)
			}
			if _, _, err := w.s.Object("d/o010"); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("not damaged: %v", err)
			}
			listMarked(w, 300)
			if _, ok, err := w.s.Object("d/o010"); err != nil || !ok {
				t.Fatalf("not mended: %v", err)
			}
			w.must(w.db.Close())
			w = openBounded(t, path, 0, "", store.Options{})
			if aside := w.db.SetAside(); aside != "" {
				reason, _ := os.ReadFile(aside + ".reason")
				t.Errorf("a mended file is set aside: %s", reason)
			}
		})
	}
}

// openUnlogged opens a scope whose log uses no dictionary.
func openUnlogged(t *testing.T, path string) *sharingScope {
	t.Helper()
	db, err := Open(path, Options{CommitInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return openIn(t, db, "", store.Options{History: store.History{Bytes: -1}})
}

// TestTidyAgain checks that a dictionary that nothing uses is dropped although the first
// commit after the start has failed.
func TestTidyAgain(t *testing.T) {
	for _, fails := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "i.db")
		open := func() *sharingScope { return openUnlogged(t, path) }
		count := func(w *sharingScope) (n int) {
			w.must(w.db.view("test", func(tx *bbolt.Tx) error {
				return pack.Each(w.s.bucket(tx), func(uint64, []byte, []byte) error { n++; return nil })
			}))
			return n
		}
		w := open()
		w.list(200, randomText(300))
		w.s.packer.Load().SetTrials(1)
		text := randomText(300)
		w.apply(140, text)
		w.must(w.s.Flush(t.Context()))
		w.apply(200, text)
		w.must(w.s.Flush(t.Context()))
		if n := count(w); n != 2 {
			t.Fatalf("%d dictionaries: this tests nothing", n)
		}
		w.must(w.db.Close())
		w = open()
		if fails {
			HookWrites(w.db, func(WriteAt) WriteAt {
				return func([]byte, int64) (int, error) { return 0, errors.New("on purpose") }
			})
		}
		w.apply(1, text)
		_ = w.db.committer.commit()
		w.must(w.db.committer.commit())
		w.apply(1, text)
		w.must(w.db.committer.commit())
		if n := count(w); n != 1 {
			t.Errorf("fails %t: %d dictionaries, want that the one that nothing uses was dropped", fails, n)
		}
		w.must(w.db.Close())
	}
}

// TestViewerSettlesNothing checks that a trim of the log of a viewed scope does not make
// departures undelivered that were delivered.
func TestViewerSettlesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	w := openBounded(t, path, 0, "", store.Options{})
	w.list(60, "")
	w.rv++
	w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv), Changes: []store.Change{{Key: "d/o059", RV: fmt.Sprint(w.rv), Departs: true}}}))
	w.must(w.s.Flush(t.Context()))
	w.s.Settle()
	w.must(w.s.Flush(t.Context()))
	w.apply(3, randomText(2000))
	w.must(w.s.Flush(t.Context()))
	settled, logs := w.s.changelog.Log.Settled, from(w.s, (*state).logBytes)
	w.must(w.db.Close())
	db, err := Open(path, Options{CommitInterval: time.Hour, Compression: Uncompressed, HistoryBytes: logs * 3 / 4})
	w.must(err)
	_, _, err = db.View(w.s.id)
	w.must(err)
	w.must(db.committer.commit())
	var now uint64
	w.must(db.view("test", func(tx *bbolt.Tx) error {
		m, err := layout.ReadManifest(w.s.id, layout.Scope(tx, w.s.id))
		if err == nil {
			now = m.Log.Settled
		}
		return err
	}))
	if now != settled {
		t.Errorf("settled up to %d, was %d", now, settled)
	}
	w.must(db.Close())
}

// TestTrimmedIsSaidOnce checks the error that a damaged block gives a follower.
func TestTrimmedIsSaidOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	w := openBounded(t, path, 0, "", store.Options{})
	w.list(60, "")
	w.change(3, 3000)
	DamageLog(w.db, w.s.scope, 3)
	_, err := w.s.readLog(w.s.changelog.Log.Full+1, "", false, &changelog.Ahead{})
	if n := bytes.Count([]byte(fmt.Sprint(err)), []byte(store.ErrTrimmed.Error())); n != 1 {
		t.Errorf("%q says it %d times", err, n)
	}
}

// TestDamagedBlockLeavesTheRest checks that the first block of the log, if it is damaged,
// does not hide where the log ends: lists and new watches begin there.
func TestDamagedBlockLeavesTheRest(t *testing.T) {
	w := openBounded(t, filepath.Join(t.TempDir(), "i.db"), 0, "", store.Options{})
	w.list(60, "")
	w.change(3, 3000)
	before, err := w.s.History()
	w.must(err)
	DamageLog(w.db, w.s.scope, 0)
	after, err := w.s.History()
	w.must(err)
	if !after.Oldest.IsZero() || after.Last != before.Last || after.Readable != before.Readable {
		t.Errorf("the log is %+v, was %+v", after, before)
	}
}

// TestDepartsOnceBesideTrim checks that a departure of a commit of unknown outcome is in
// the log once after a rewind and a trim.
func TestDepartsOnceBesideTrim(t *testing.T) {
	for _, trim := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "i.db")
		w := openBounded(t, path, 0, "", store.Options{})
		w.list(60, "")
		w.change(5, 5000)
		HookWrites(w.db, func(next WriteAt) WriteAt {
			return func(b []byte, off int64) (int, error) {
				n, err := next(b, off)
				if off < 2*int64(os.Getpagesize()) { // a meta page: written, but it fails
					return n, errors.Join(err, errors.New("on purpose"))
				}
				return n, err
			}
		})
		w.rv++
		w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv), Changes: []store.Change{{Key: "d/o059", RV: fmt.Sprint(w.rv), Departs: true}}}))
		if err := w.db.committer.commit(); err == nil {
			t.Fatal("the commit has not failed")
		}
		w.must(w.s.Apply(store.Batch{Reason: "rewound", Rewound: true}))
		if trim {
			w.db.committer.trimLogs(1 << 19) // as keepReserve does
		}
		w.must(w.db.committer.commit())
		out, err := w.s.Departed(0, 10)
		w.must(err)
		for _, d := range out {
			t.Logf("trim %t: %d %s, %d bytes", trim, d.Number, d.Before.Key, len(d.Before.Raw))
		}
		if len(out) != 1 {
			t.Errorf("trim %t: %d departed, want 1", trim, len(out))
		}
	}
}

// TestDictionaryBesideDamagedPage checks that a damaged page of the log leaves the file
// in use, also when a dictionary is written.
func TestDictionaryBesideDamagedPage(t *testing.T) {
	for _, train := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "i.db")
		w := openSharingOf(t, path, "")
		w.list(10, "")
		for round := range 8 {
			w.apply(10, fmt.Sprintf("marker-%d-", round)+randomText(9000))
			w.must(w.s.Flush(t.Context()))
		}
		b, err := os.ReadFile(path)
		w.must(err)
		size, n := os.Getpagesize(), 0
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		w.must(err)
		for off := 2 * size; off+size <= len(b); off += size {
			p := b[off:]
			if binary.LittleEndian.Uint64(p) != uint64(off/size) || binary.LittleEndian.Uint16(p[8:]) != 2 {
				continue
			}
			end := min((int(binary.LittleEndian.Uint32(p[12:]))+1)*size, len(p))
			if bytes.Contains(p[:end], []byte("marker-1-")) && !bytes.Contains(p[:end], []byte("marker-7-")) {
				_, err := f.WriteAt([]byte{0, 0}, int64(off+8))
				w.must(err)
				n++
			}
		}
		w.must(f.Close())
		if train {
			w.apply(4*codec.MinSamples, "text that is the same for all of them, so that a dictionary of it saves something")
		} else {
			w.apply(10, "short")
		}
		for range 3 {
			if err := w.db.committer.commit(); err != nil {
				t.Logf("train %t: commit: %v", train, err)
			}
		}
		if n := w.s.Commits().Rebuilds; n != 0 || w.s.isLost() {
			t.Errorf("train %t: the file was set aside %d times; lost %t", train, n, w.s.isLost())
		}
	}
}

type slowKeys struct{ asked, answer chan struct{} }

func (k slowKeys) Keys(ctx context.Context) ([]codec.Key, error) {
	close(k.asked)
	select {
	case <-k.answer:
	case <-ctx.Done():
	}
	return nil, errors.New("away")
}

// TestCommitBesideProvider checks that a commit of one scope does not wait for the key
// provider of another one.
func TestCommitBesideProvider(t *testing.T) {
	k := slowKeys{make(chan struct{}), make(chan struct{})}
	db, err := Open(filepath.Join(t.TempDir(), "i.db"), Options{CommitInterval: time.Hour, Keys: k})
	if err != nil {
		t.Fatal(err)
	}
	w := openIn(t, db, "", store.Options{})
	w.list(3, "")
	go func() {
		_, _ = db.Open(store.Scope{Cluster: "c", Resource: "secrets", Kind: corev1.SchemeGroupVersion.WithKind("Secret")}, store.Options{})
	}()
	<-k.asked
	w.apply(1, "x")
	done := make(chan error, 1)
	go func() { done <- w.db.committer.commit() }()
	select {
	case err := <-done:
		w.must(err)
	case <-time.After(time.Minute):
		t.Error("a commit waits for the key provider of another scope")
	}
	close(k.answer)
	w.must(db.Close())
}

// TestDictionariesComeAgain checks that a scope that once had as many dictionaries as are
// allowed gets another one when it does not use them any more and was opened again.
func TestDictionariesComeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	open := func() *sharingScope { return openUnlogged(t, path) }
	w := open()
	w.list(200, randomText(300))
	for k := range 12 {
		text := randomText(300)
		w.s.packer.Load().SetTrials(1)
		w.apply(140, text)
		w.must(w.s.Flush(t.Context()))
		// This one stays as it is.
		w.must(w.s.Apply(store.Batch{RV: "5", Changes: []store.Change{{Object: w.object(500+k, text)}}}))
		w.must(w.s.Flush(t.Context()))
		w.must(w.db.Close())
		w = open()
	}
	// now nothing uses the earlier ones
	last := randomText(300)
	var gone []store.Change
	for k := range 12 {
		gone = append(gone, store.Change{Key: fmt.Sprintf("d/o%03d", 500+k)})
	}
	w.must(w.s.Apply(store.Batch{RV: "6", Changes: gone}))
	w.apply(200, last)
	w.must(w.s.Flush(t.Context()))
	w.must(w.db.Close())
	for range 3 {
		w = open()
		w.s.packer.Load().SetTrials(1)
		for range 3 {
			w.apply(200, last)
			w.must(w.s.Flush(t.Context()))
		}
		if !w.has(last) {
			t.Error("no dictionary of what is written now, although nothing uses the others")
		}
		w.must(w.db.Close())
	}
}

// TestOldIndexBesideTrim checks that an index that could not be dropped when the scope
// was opened is dropped whole, also if the next write is a trim of the log that finds
// nothing to trim.
func TestOldIndexBesideTrim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	open := func(idx index.Index, hook bool) *sharingScope {
		db, err := Open(path, Options{CommitInterval: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if aside := db.SetAside(); aside != "" {
			reason, _ := os.ReadFile(aside + ".reason")
			t.Fatalf("set aside: %s", reason)
		}
		if hook {
			HookWrites(db, func(next WriteAt) WriteAt {
				return func([]byte, int64) (int, error) { return 0, errors.New("on purpose") }
			})
		}
		return openIn(t, db, "", store.Options{Indexes: []index.Index{idx}})
	}
	w := open(index.Namespace(), false)
	w.list(20, "text")
	w.must(w.s.Flush(t.Context()))
	w.must(w.db.Close())
	w = open(index.Label("app"), true)
	if len(w.s.oldIndexes) == 0 {
		t.Fatal("the index was dropped: this tests nothing")
	}
	w.db.committer.trimLogs(1) // as keepReserve does, before each commit
	w.must(w.db.committer.commit())
	w.must(w.db.Close())
	w = open(index.Label("app"), false)
	w.must(w.db.Close())
}

// TestViewWhileOpening checks that View waits for a scope that is being opened: until
// then the store has content without a count.
func TestViewWhileOpening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValued(t, path, 0)
	if err := errors.Join(listValued(s, "5", func() {}, valued("a", "1"), valued("b", "1")), db.Close()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		db, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		viewed := make(chan error, 1)
		var once sync.Once
		opening := func(obj any) ([]string, error) {
			once.Do(func() {
				go func() {
					v, _, err := db.View(s.id)
					if err == nil {
						var keys []string
						if keys, err = v.Keys(store.Query{}); err == nil && len(keys) != 2 {
							err = fmt.Errorf("%d keys", len(keys))
						}
					}
					viewed <- err
				}()
				synctest.Wait()
				if len(viewed) > 0 {
					t.Error("a scope is viewed that is not open yet")
				}
			})
			return byValue(obj)
		}
		if _, err := db.Open(s.scope, store.Options{Codec: s.opts.Codec, Indexers: cache.Indexers{"value": opening}}); err != nil {
			t.Fatal(err)
		}
		if err := <-viewed; err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestViewsOfALog checks that a log that is viewed without its key does not count as one
// that the process holds, however often it is viewed.
func TestViewsOfALog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValuedWith(t, path, 0, Options{Keys: oneKey{1}, EncryptAll: true})
	err := errors.Join(listValued(s, "5", func() {}, valued("a", "1")), s.Flush(t.Context()))
	err = errors.Join(err, s.Apply(store.Batch{RV: "6", Changes: []store.Change{{Object: valued("a", "2")}}}), db.Close())
	if err != nil {
		t.Fatal(err)
	}
	if db, err = Open(path, Options{}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for range 3 {
		v, _, err := db.View(s.id)
		if err != nil {
			t.Fatal(err)
		}
		if log, err := v.History(); err != nil || log.Bytes == 0 {
			t.Fatalf("a log of %d bytes, %v: this tests nothing", log.Bytes, err)
		}
	}
	if n := db.logs.Bytes.Load(); n != 0 {
		t.Errorf("%d bytes of logs are held, want none", n)
	}
}
