package bolt

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/pack"
)

// randomText returns a text that nothing else has.
func randomText(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%032x", rand.Uint64())))).Read(b)
	return hex.EncodeToString(b)
}

// sharingScope is a scope whose objects have a text in common, as those of a rollout.
type sharingScope struct {
	*testing.T
	db *DB
	s  *scopeStore
	rv int
}

func openSharing(t *testing.T) *sharingScope {
	return openSharingOf(t, filepath.Join(t.TempDir(), "informers.db"), "")
}

func openSharingOf(t *testing.T, path, transform string) *sharingScope {
	t.Helper()
	db, err := Open(path, Options{CommitInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Open(store.Scope{Cluster: "c", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}, store.Options{Codec: c, TransformVersion: transform})
	if err != nil {
		t.Fatal(err)
	}
	return &sharingScope{T: t, db: db, s: s.(*scopeStore)}
}

func (w *sharingScope) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *sharingScope) object(i int, text string) *corev1.ConfigMap {
	w.rv++
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprintf("o%03d", i), UID: "u", ResourceVersion: fmt.Sprint(w.rv)},
		Data:       map[string]string{"text": text + randomText(40)},
	}
}

func (w *sharingScope) begin(n int, text string) store.Relist {
	w.Helper()
	r, err := w.s.Relist()
	w.must(err)
	for i := range n {
		w.must(r.Add(w.object(i, text)))
	}
	return r
}

func (w *sharingScope) list(n int, text string) {
	w.Helper()
	r := w.begin(n, text)
	for b, err := range r.Parts(fmt.Sprint(w.rv)) {
		w.must(errors.Join(err, w.s.Apply(b)))
	}
	w.must(errors.Join(r.Close(), w.s.Flush(w.Context())))
}

func (w *sharingScope) apply(n int, text string) {
	w.Helper()
	var changes []store.Change
	for i := range n {
		changes = append(changes, store.Change{Object: w.object(i, text)})
	}
	w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv), Changes: changes}))
}

// has reports whether a dictionary of the scope, in memory or in the file, contains a
// part of a text. Those that only decode what was read before do not count.
func (w *sharingScope) has(text string) (is bool) {
	w.Helper()
	b, _ := w.s.packer.Load().Current()
	is = bytes.Contains(b, []byte(text[100:160]))
	w.must(w.db.view("test", func(tx *bbolt.Tx) error {
		return pack.Each(w.s.bucket(tx), func(_ uint64, b, _ []byte) error {
			is = is || bytes.Contains(b, []byte(text[100:160]))
			return nil
		})
	}))
	return is
}

// TestNoDictionaryOfSamplesOfWhatWasDropped checks that nothing of what was wiped or lost
// gets into a dictionary of what is stored afterwards, also not by a commit or a list
// that was in flight.
func TestNoDictionaryOfSamplesOfWhatWasDropped(t *testing.T) {
	for drop, lose := range map[string]func(*sharingScope){
		"wiped": func(w *sharingScope) {
			_, err := w.db.Wipe(nil)
			w.must(err)
		},
		"lost": func(w *sharingScope) {
			w.must(os.Remove(w.db.Path()))
			_ = w.db.SetLedger(w.Context(), "any", map[string][]byte{"write": nil})
			if !w.s.isLost() {
				w.Fatal("the scope is not lost")
			}
		},
	} {
		for name, run := range map[string]func(w *sharingScope, lose func(), dropped, kept string){
			"samples of a trial": func(w *sharingScope, lose func(), dropped, kept string) {
				w.list(200, "common")
				w.s.packer.Load().SetTrials(1)
				w.apply(100, dropped)
				w.must(w.s.Flush(w.Context()))
				lose()
				w.list(200, kept)
				w.s.packer.Load().SetTrials(1)
				w.apply(100, kept)
			},
			"commit in flight": func(w *sharingScope, lose func(), dropped, kept string) {
				w.apply(100, dropped)
				c, due := w.s.capture(1 << 40)
				if !due {
					w.Fatal("nothing to write")
				}
				lose()
				w.must(c.Pack())
				w.list(200, kept)
			},
			"commit in flight with a trial": func(w *sharingScope, lose func(), dropped, kept string) {
				w.list(200, "common")
				w.s.packer.Load().SetTrials(1)
				w.apply(100, dropped)
				c, _ := w.s.capture(1 << 40)
				lose()
				w.must(c.Pack())
				w.list(200, kept)
				w.s.packer.Load().SetTrials(1)
				w.apply(40, kept)
			},
			"list in flight": func(w *sharingScope, lose func(), dropped, kept string) {
				r := w.begin(0, "").(*relist)
				entries := make([]*overlay.Entry, 100)
				for i := range entries {
					var err error
					entries[i], err = r.Prepare(w.object(i, dropped))
					w.must(err)
				}
				lose()
				_, err := r.packer.PackList(entries, false)
				w.must(err)
				w.must(r.Close())
				w.list(200, kept)
			},
		} {
			t.Run(drop+", "+name, func(t *testing.T) {
				w := openSharing(t)
				dropped, kept := randomText(300), randomText(300)
				run(w, func() { lose(w) }, dropped, kept)
				w.must(w.s.Flush(t.Context()))
				if w.has(dropped) {
					t.Error("a dictionary contains what was dropped")
				}
				if !w.has(kept) {
					t.Error("no dictionary contains what is stored")
				}
			})
		}
	}
}

// TestHidden checks that every read returns store.ErrWiped while a wipe is going on, and
// answers again after one that has not happened, whether or not the object is decoded.
func TestHidden(t *testing.T) {
	for _, bytes := range []int64{0, -1} {
		db, err := Open(filepath.Join(t.TempDir(), "informers.db"), Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := codec.For(&corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		opened, err := db.Open(store.Scope{Resource: "pods"}, store.Options{Codec: c, DecodedBytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		s, pod := opened.(*scopeStore), testobjects.Pod(1, 1)
		key := pod.Namespace + "/" + pod.Name
		if err := s.Apply(store.Batch{RV: "5", Changes: []store.Change{{Object: pod}}}); err != nil {
			t.Fatal(err)
		}
		reads := map[string]func() (int, error){
			"Len":   func() (int, error) { return s.Len(), nil },
			"Entry": func() (int, error) { _, ok, err := s.Entry(key); return oneIf(ok), err },
			"Object": func() (int, error) {
				_, ok, err := s.Object(key)
				return oneIf(ok), err
			},
			"Keys":      func() (int, error) { keys, err := s.Keys(store.Query{}); return len(keys), err },
			"Select":    func() (int, error) { all, err := s.Select(store.Query{}); return len(all), err },
			"Objects":   func() (int, error) { all, err := s.Objects(store.Query{}); return len(all), err },
			"HeadersOf": func() (int, error) { all, err := s.HeadersOf([]string{key}); return len(all), err },
			"Compare":   func() (int, error) { h, _, err := s.Compare(pod); return oneIf(h.Key != ""), err },
			"Records":   func() (int, error) { all, err := s.Records([]string{key}); return len(all.Records), err },
		}
		check := func(when string, n int, want error) {
			t.Helper()
			for name, read := range reads {
				got, err := read()
				if name != "Len" && !errors.Is(err, want) || got != n {
					t.Errorf("%s: %s is %d, %v, want %d, %v", when, name, got, err, n, want)
				}
			}
		}
		check("before", 1, nil)
		s.locked((*state).wiping)
		check("while a wipe is going on", 0, store.ErrWiped)
		s.locked((*state).notWiped)
		check("after a wipe that has not happened", 1, nil)
		s.lose(store.ErrWiped)
		check("after a wipe", 0, store.ErrWiped)
		_ = db.Close()
	}
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestFormerDroppedFirst checks that the former content may be dropped before the list is
// written for which it was kept: a process that dies then has logged what has departed,
// and one that goes on logs nothing twice.
func TestFormerDroppedFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(20, "text")
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2")
	r := w.begin(17, "text")
	departed := func(w *sharingScope, want ...string) {
		t.Helper()
		found, err := w.s.Departed(0, 100)
		w.must(err)
		var got []string
		for _, d := range found {
			got = append(got, d.Before.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q have departed, want %q", got, want)
		}
	}
	for b, err := range r.Parts("500") {
		w.must(errors.Join(err, w.s.Apply(b)))
	}
	w.must(r.Close())
	gone := []string{"d/o017", "d/o018", "d/o019"}
	departed(w, gone...)

	c, due := w.s.capture(math.MaxInt64)
	if w.must(c.Pack()); !due || !w.db.committer.makeRoom([]capture{c}) {
		t.Fatal("the former content is not dropped")
	}
	departed(w, gone...)
	content, err := os.ReadFile(path)
	w.must(err)
	died := filepath.Join(t.TempDir(), "died.db")
	w.must(os.WriteFile(died, content, 0o600))
	for range 2 {
		next := openSharingOf(t, died, "2")
		departed(next, gone...)
		if next.s.Checkpoint().RV != "" || next.s.Len() != 0 {
			t.Errorf("%d objects of a list that was not written are there", next.s.Len())
		}
		next.must(next.db.Close())
	}

	w.must(w.s.Flush(t.Context()))
	departed(w, gone...)
	if kept, _ := w.s.Departures(); w.s.Len() != 17 {
		t.Errorf("%d objects, and %d departed, want 17", w.s.Len(), kept)
	}
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2")
	departed(w, gone...)
	if kept, _ := w.s.Departures(); kept != 3 || w.s.Checkpoint().RV != "500" {
		t.Errorf("%d departed at %q, want 3 at 500", kept, w.s.Checkpoint().RV)
	}
	w.must(w.db.Close())
}

// TestDeletionBeforeFormerDropped checks that a deletion that a commit of unknown outcome
// has logged is not logged again after the former content has made room.
func TestDeletionBeforeFormerDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(20, "text")
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2")
	w.must(w.s.Apply(store.Batch{Changes: []store.Change{{Object: w.object(50, "text")}}}))
	w.must(w.s.Flush(t.Context()))
	from, err := w.s.History()
	w.must(err)
	w.must(w.s.Apply(store.Batch{Changes: []store.Change{{Key: "d/o050", RV: "40"}}}))
	HookWrites(w.db, func(next WriteAt) WriteAt {
		return func(b []byte, off int64) (int, error) {
			n, err := next(b, off)
			if off < int64(2*os.Getpagesize()) { // the meta page ends a commit
				err = errors.New("unknown outcome")
			}
			return n, err
		}
	})
	if err := Commit(w.db); err == nil {
		t.Fatal("the commit was acknowledged")
	}
	r := w.begin(17, "text")
	for b, err := range r.Parts("500") {
		w.must(errors.Join(err, w.s.Apply(b)))
	}
	w.must(r.Close())
	c, due := w.s.capture(math.MaxInt64)
	if w.must(c.Pack()); !due || !w.db.committer.makeRoom([]capture{c}) {
		t.Fatal("the former content is not dropped")
	}
	w.must(w.s.Flush(t.Context()))
	now, err := w.s.History()
	w.must(err)
	deleted := 0
	for e, err := range w.s.Follow(t.Context(), from.Last) {
		if w.must(err); e.Mark != nil && e.Mark.Mark >= now.Last.Mark {
			break
		}
		if e.Key == "d/o050" {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("the deletion is logged %d times, want once", deleted)
	}
	w.must(w.db.Close())
}

// TestClockAheadAfterLoss checks that a clock that was ahead decides about no ages after
// the content was lost, either.
func TestClockAheadAfterLoss(t *testing.T) {
	w := openSharing(t)
	w.list(3, "common")
	_, err := w.db.Wipe(nil)
	w.must(err)
	w.list(3, "common")
	ahead := time.Now().Add(365 * 24 * time.Hour).UnixNano()
	if got := time.Unix(0, w.s.changelog.Taken.Now(ahead, time.Hour)); got.After(time.Now().Add(time.Hour)) {
		t.Errorf("ages count from %s", got)
	}
}

// TestLogsOfFileAfterBookmark checks that a log that a commit did not need to trim is
// trimmed when others take its room.
func TestLogsOfFileAfterBookmark(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "informers.db"), Options{CommitInterval: time.Hour, Compression: Uncompressed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.logs.Max = 2 << 20
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(namespace string, bytes int64) *sharingScope {
		t.Helper()
		s, err := db.Open(store.Scope{
			Cluster: "c", Namespace: namespace, Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		}, store.Options{Codec: c, History: store.History{Bytes: 1 << 40}})
		if err != nil {
			t.Fatal(err)
		}
		w := &sharingScope{T: t, db: db, s: s.(*scopeStore)}
		text := randomText(5000)
		w.list(50, text)
		for n := 0; from(w.s, (*state).logBytes) < bytes && n < 100; n++ {
			w.apply(50, text)
			w.must(w.s.Flush(t.Context()))
		}
		return w
	}
	a := fill("a", 15<<17)
	a.must(a.s.Apply(store.Batch{RV: "100000"}))
	a.must(a.s.Flush(t.Context()))
	fill("b", 1<<20)
	for range 5 {
		a.must(db.committer.commit())
	}
	if all := db.logs.Bytes.Load(); all > db.logs.Max+1<<19 {
		t.Errorf("the logs have %d bytes, want %d at most", all, db.logs.Max)
	}
}

// TestSinceOfImport checks that what is caught up on after an import may have been
// changed since the time of the export.
func TestSinceOfImport(t *testing.T) {
	w := openSharing(t)
	exported := time.Now().Add(-24 * time.Hour)
	r := w.begin(3, "common")
	for b, err := range r.Parts(fmt.Sprint(w.rv)) {
		w.must(err)
		b.Time = exported
		w.must(w.s.Apply(b))
	}
	w.must(r.Close())
	w.must(w.s.Flush(t.Context()))
	w.must(w.s.Apply(store.Batch{RV: "1000", CatchUp: true, Changes: []store.Change{{Key: "d/o001"}}}))
	w.must(w.s.Flush(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for e, err := range w.s.Follow(ctx, store.Place{}) {
		w.must(err)
		if e.Mark == nil {
			if e.Since.After(exported) {
				t.Errorf("changed since %s, exported at %s", e.Since, exported)
			}
			return
		}
	}
}

// TestLogOfSmallerShare checks that a log that could not be trimmed to one share is
// trimmed when its share shrinks.
func TestLogOfSmallerShare(t *testing.T) {
	w := openBounded(t, filepath.Join(t.TempDir(), "informers.db"), 0, "a", store.Options{History: store.History{Bytes: 1 << 40}})
	w.db.logs.Max = 4 << 20
	text := randomText(5000)
	w.list(300, text)
	var gone []store.Change
	for i := range 300 { // 3 MB
		gone = append(gone, store.Change{Key: fmt.Sprintf("d/o%03d", i), Departs: true})
	}
	w.must(w.s.Apply(store.Batch{RV: "10000", Changes: gone}))
	w.must(w.s.Flush(t.Context()))
	for i := range 12 {
		b := openIn(t, w.db, fmt.Sprint("b", i), store.Options{History: store.History{Bytes: 1 << 40}})
		b.list(50, text)
		b.apply(50, text)
		b.must(b.s.Flush(t.Context()))
		for range 20 {
			w.must(w.db.committer.commit())
		}
	}
	if got, share := from(w.s, (*state).logBytes), w.db.shareOfLogs(nil, 0); got > 2*share+1<<16 {
		t.Errorf("the log has %d bytes, twice its share are %d", got, 2*share)
	}
}

// TestHistoryOfDatabase checks that scopes have the history of their database, unless
// they have their own, and that the bound of all logs is the database's.
func TestHistoryOfDatabase(t *testing.T) {
	db, err := Open(filepath.Join(t.TempDir(), "informers.db"), Options{
		CommitInterval: time.Hour, History: store.History{Bytes: -1, Age: time.Minute}, HistoryBytes: 5 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if bytes, age := openIn(t, db, "its", store.Options{}).s.boundsOfLog(0); bytes != 0 || age != time.Minute {
		t.Errorf("the bounds are %d bytes and %s, want those of the database", bytes, age)
	}
	if bytes, age := openIn(t, db, "own", store.Options{History: store.History{Bytes: 1 << 20}}).s.boundsOfLog(0); bytes != 1<<20 || age != time.Hour {
		t.Errorf("the bounds are %d bytes and %s, want the scope's own", bytes, age)
	}
	if db.logs.Max != 5<<20 {
		t.Errorf("all logs may have %d bytes, want 5 MiB", db.logs.Max)
	}
}
