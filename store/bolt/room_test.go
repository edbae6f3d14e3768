package bolt

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// openBounded opens a scope of a namespace in a file that is bounded, if bytes is not 0.
func openBounded(t *testing.T, path string, bytes int, namespace string, opts store.Options) *sharingScope {
	t.Helper()
	db, err := Open(path, Options{CommitInterval: time.Hour, MaxBytes: bytes, Compression: Uncompressed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return openIn(t, db, namespace, opts)
}

func openIn(t *testing.T, db *DB, namespace string, opts store.Options) *sharingScope {
	t.Helper()
	if opts.Codec == nil {
		c, err := codec.For(&corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		opts.Codec = c
	}
	scope := store.Scope{Cluster: "c", Namespace: namespace, Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
	s, err := db.Open(scope, opts)
	if err != nil {
		t.Fatal(err)
	}
	return &sharingScope{T: t, db: db, s: s.(*scopeStore)}
}

// change changes 60 objects to ones of so many bytes, and writes them, so often.
func (w *sharingScope) change(times, bytes int) {
	w.Helper()
	for range times {
		w.apply(60, randomText(bytes))
		w.must(w.s.Flush(w.Context()))
	}
}

// TestLogGivesRoom checks that a log whose bound is larger than the room in the file
// gives room to commits, and keeps the deletions that a handler has not received.
func TestLogGivesRoom(t *testing.T) {
	const bound = 4 << 20
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openBounded(t, path, bound, "", store.Options{})
	w.list(60, "")
	w.rv++
	w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv), Changes: []store.Change{
		{Key: "d/o059", RV: fmt.Sprint(w.rv), Departs: true, Last: w.object(59, "last")},
	}}))
	w.must(w.s.Flush(t.Context()))
	written, most := 0, int64(0) // bytes; most of the log, in the second half
	for round := range 200 {
		for i := range 5 {
			text := randomText(5_000 + 5*round)
			written += len(text)
			w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv + 1), Changes: []store.Change{{Object: w.object((5*round+i)%59, text)}}}))
		}
		if err := w.db.committer.commit(); err != nil {
			t.Fatalf("after %d bytes, with a log of %d bytes: %v", written, from(w.s, (*state).logBytes), err)
		}
		if round >= 100 {
			most = max(most, from(w.s, (*state).logBytes))
		}
	}
	if written < 2*bound {
		t.Fatalf("only %d bytes were written", written)
	}
	w.s.mu.Lock()
	log := w.s.changelog.Log
	w.s.mu.Unlock()
	// What the log gives at a time is about what it has taken since the last time.
	if most < bound/40 || log.Bytes == 0 || log.Dropped == 0 {
		t.Errorf("the log has %d bytes, had %d, and has dropped %d, want that the oldest were dropped", log.Bytes, most, log.Dropped)
	}
	w.must(w.db.Close())
	w = openBounded(t, path, bound, "", store.Options{})
	if rv := w.s.Checkpoint().RV; w.s.Len() != 59 || rv != fmt.Sprint(60+2+1000) {
		t.Errorf("%d objects at %q", w.s.Len(), rv)
	}
	departed, err := w.s.Departed(0, 10)
	if w.must(err); len(departed) != 1 || departed[0].Before.Key != "d/o059" {
		t.Errorf("%v have departed, want d/o059", departed)
	}
	w.must(w.db.Close())
	ro, err := OpenReadOnly(path, Options{})
	w.must(err)
	w.must(errors.Join(ro.VerifyPages(t.Context()), ro.VerifyLog(w.s.id), ro.Close()))
}

// TestLogGivesMore checks that a log gives what a commit needs, and each time twice as
// much until a commit has succeeded.
func TestLogGivesMore(t *testing.T) {
	w := openBounded(t, filepath.Join(t.TempDir(), "informers.db"), 64<<20, "", store.Options{})
	w.list(60, "")
	for from(w.s, (*state).logBytes) < 24<<20 {
		w.change(1, 5000)
	}
	w.apply(10, randomText(50_000))
	c, _ := w.s.capture(math.MaxInt64)
	w.must(c.Pack())
	for i := range 3 {
		before, need := from(w.s, (*state).logBytes), (2*c.Size()+changelog.TrimBytes)<<i
		if !w.db.committer.trimFor([]capture{c}) {
			t.Fatalf("call %d has trimmed nothing", i+1)
		}
		if freed := before - from(w.s, (*state).logBytes); freed < need || freed > need+1<<18 {
			t.Errorf("call %d has freed %d bytes, want %d", i+1, freed, need)
		}
	}
	w.must(w.s.Flush(t.Context()))
	if w.db.committer.trims != 0 {
		t.Errorf("a commit has succeeded, and the next gives %d times as much", 1<<w.db.committer.trims)
	}
}

// TestTrimWithoutRoom checks that a trim which has no room itself is made again with
// more: it writes what stays beside what it drops.
func TestTrimWithoutRoom(t *testing.T) {
	w := openBounded(t, filepath.Join(t.TempDir(), "informers.db"), 64<<20, "", store.Options{})
	w.list(60, "")
	for from(w.s, (*state).logBytes) < 4<<20 {
		w.change(1, 5000)
	}
	failed := 0
	HookWrites(w.db, func(WriteAt) WriteAt { // until the file is opened again
		return func([]byte, int64) (int, error) {
			failed++
			return 0, syscall.ENOSPC
		}
	})
	if freed := w.db.committer.trimLogs(1 << 20); failed == 0 || freed < 2<<20 || freed > 2<<20+1<<18 {
		t.Errorf("%d bytes were freed after %d writes that failed, want 2 MiB", freed, failed)
	}
	w.must(w.s.Flush(t.Context()))
	HookWrites(w.db, func(WriteAt) WriteAt {
		return func([]byte, int64) (int, error) { return 0, syscall.EIO }
	})
	if freed := w.db.committer.trimLogs(1 << 20); freed != 0 {
		t.Errorf("%d bytes were freed after another error, want none", freed)
	}
}

// TestFreePagesAreRoom checks that a list is written while it arrives if it fits into the
// free pages of a bounded file beside the former content.
func TestFreePagesAreRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	filler := openBounded(t, path, 12<<20, "filler", store.Options{})
	filler.list(1000, randomText(5000)) // 10 MB
	small := openIn(t, filler.db, "small", store.Options{TransformVersion: "1"})
	small.list(20, "text")
	_, err := small.db.Wipe(func(s store.Scope) bool { return s.Namespace == "filler" })
	small.must(errors.Join(err, small.db.Close()))

	small = openBounded(t, path, 12<<20, "small", store.Options{TransformVersion: "2"})
	r, err := small.s.Relist()
	small.must(err)
	SetRelistLimit(r, 1<<20)
	text := randomText(5000)
	for i := range 500 { // 5 MB
		small.must(r.Add(small.object(i, text)))
	}
	small.s.mu.Lock()
	if wrote := small.s.storedBytes; wrote < 2<<20 {
		t.Errorf("%d bytes of a list were written while it arrived", wrote)
	}
	small.s.mu.Unlock()
	small.must(r.Close())
}

// TestRoomOnlyIfItLacks checks that the former content stays if a commit fails for
// another reason than a lack of room: what is deleted while the process is down departs
// from it.
func TestRoomOnlyIfItLacks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openSharingOf(t, path, "1")
	w.list(20, "text")
	w.must(w.db.Close())
	w = openSharingOf(t, path, "2")
	r := w.begin(20, "text")
	for b, err := range r.Parts("500") {
		w.must(errors.Join(err, w.s.Apply(b)))
	}
	w.must(r.Close())
	broken := errors.New("input/output error")
	tries := 0
	HookWrites(w.db, func(WriteAt) WriteAt {
		return func([]byte, int64) (int, error) {
			tries++
			return 0, broken
		}
	})
	if err := w.db.committer.commit(); !errors.Is(err, broken) || tries != 1 {
		t.Fatalf("%d writes: %v", tries, err)
	}
	content, err := os.ReadFile(path) // the process dies
	w.must(err)
	died := filepath.Join(t.TempDir(), "died.db")
	w.must(os.WriteFile(died, content, 0o600))
	next := openSharingOf(t, died, "2")
	next.list(19, "text")
	gone, err := next.s.Departed(0, 100)
	if next.must(err); len(gone) != 1 || gone[0].Before.Key != "d/o019" {
		t.Errorf("%d objects have departed, want d/o019", len(gone))
	}
}

// TestDeparturesOfTwoTransactions checks that what has departed is counted alike, whether
// or not the former content is dropped before the list is written.
func TestDeparturesOfTwoTransactions(t *testing.T) {
	text := randomText(5000)
	for _, first := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "informers.db")
		opts := store.Options{TransformVersion: "1", History: store.History{Bytes: 200 << 10}}
		w := openBounded(t, path, 0, "", opts)
		w.list(60, text)
		var gone []store.Change
		for i := range 30 { // 300 KB of departed objects
			gone = append(gone, store.Change{Key: fmt.Sprintf("d/o%03d", i), Departs: true})
		}
		w.must(w.s.Apply(store.Batch{RV: "10000", Changes: gone}))
		w.must(w.s.Flush(t.Context()))
		w.apply(1, text) // thins what has departed
		w.must(w.s.Flush(t.Context()))
		w.must(w.db.Close())
		opts.TransformVersion = "2"
		w = openBounded(t, path, 0, "", opts)
		r := w.begin(2, text)
		for b, err := range r.Parts("20000") {
			w.must(errors.Join(err, w.s.Apply(b)))
		}
		w.must(r.Close())
		if first {
			c, _ := w.s.capture(math.MaxInt64)
			w.must(c.Pack())
			captures := []capture{c}
			if !w.db.committer.makeRoom(captures) {
				t.Fatal("no room")
			}
			err := w.db.committer.writeCaptures(captures)
			w.s.committedUpTo(captures[0], err)
			w.must(err)
		}
		w.must(w.s.Flush(t.Context()))
		kept, _ := w.s.Departures()
		found, err := w.s.Departed(0, 1000)
		if w.must(err); kept != len(found) || kept == 0 {
			t.Errorf("in two transactions: %t; %d are kept, and %d are there", first, kept, len(found))
		}
	}
}

// TestDeparturesWhileRoomIsShort checks that a deletion that no handler has received
// stays while the logs give room to the objects.
func TestDeparturesWhileRoomIsShort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	w := openBounded(t, path, 64<<20, "", store.Options{})
	w.list(100, randomText(10_000))
	isShort := func() bool {
		want, is := w.db.committer.reserve()
		return is < want-want/4
	}
	for n := 100; !isShort(); n += 100 {
		if n > 4000 {
			t.Fatal("there is always enough room")
		}
		var changes []store.Change
		text := randomText(10_000)
		for i := range 100 {
			changes = append(changes, store.Change{Object: w.object(n+i, text)})
		}
		w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv), Changes: changes}))
		w.must(w.db.committer.commit())
	}
	var gone []store.Change
	for i := range 3 {
		gone = append(gone, store.Change{Key: fmt.Sprintf("d/o%03d", i), Departs: true})
	}
	w.rv++
	w.must(w.s.Apply(store.Batch{RV: fmt.Sprint(w.rv), Changes: gone}))
	for range 4 {
		w.must(w.db.committer.commit())
	}
	kept, dropped := w.s.Departures()
	found, err := w.s.Departed(0, 10)
	if w.must(err); kept != 3 || dropped != 0 || len(found) != 3 {
		t.Errorf("%d kept, %d dropped, %d found, want 3 departed objects", kept, dropped, len(found))
	}
	if logs := from(w.s, (*state).logBytes); logs > 12<<20 {
		t.Errorf("the log has %d bytes, and there is room for few", logs)
	}
}

// TestListWrittenOnce checks that a small first list, which the commit writes once more
// to compress it, stays as it was written if there is no room for both.
func TestListWrittenOnce(t *testing.T) {
	const n = 2 * codec.MinSamples
	for _, bound := range []int{0, 2 << 20} {
		path := filepath.Join(t.TempDir(), "informers.db")
		db, err := Open(path, Options{CommitInterval: time.Hour, MaxBytes: bound})
		if err != nil {
			t.Fatal(err)
		}
		w := openIn(t, db, "", store.Options{})
		r := w.begin(n, "")
		for i := range n { // TrainFast finds that it is not the way to compress them
			w.must(r.Add(w.object(i, randomText(4000))))
		}
		left := 0
		for b, err := range r.Parts(fmt.Sprint(w.rv)) {
			left = len(w.s.relist.left)
			w.must(errors.Join(err, w.s.Apply(b)))
		}
		w.must(r.Close())
		if left != n {
			t.Fatalf("%d objects are left to the commit, want %d", left, n)
		}
		w.must(w.s.Flush(t.Context()))
		compressed := 0
		entries, err := w.s.Select(store.Query{})
		w.must(err)
		for _, e := range entries {
			if _, id, _, err := record.ParseRaw(e.Raw); err == nil && id != dictionary.None {
				compressed++
			}
		}
		if len(entries) != n || w.s.Len() != n || (compressed > 0) != (bound == 0) {
			t.Errorf("with a bound of %d bytes there are %d objects, of which %d are compressed", bound, len(entries), compressed)
		}
		w.must(db.Close())
		db, err = Open(path, Options{MaxBytes: bound})
		w.must(err)
		if again := openIn(t, db, "", store.Options{}); again.s.Len() != n || again.s.Checkpoint().RV != fmt.Sprint(w.rv) {
			t.Errorf("after a restart there are %d objects at %q", again.s.Len(), again.s.Checkpoint().RV)
		}
		w.must(db.Close())
	}
}

// TestLastStateOfAnUnwrittenList checks that history has the last state of an object that
// was listed first and deleted before the disk accepted a write.
func TestLastStateOfAnUnwrittenList(t *testing.T) {
	w := openBounded(t, filepath.Join(t.TempDir(), "informers.db"), 0, "", store.Options{})
	r := w.begin(3, "text")
	HookWrites(w.db, func(WriteAt) WriteAt { // until the file is opened again
		return func([]byte, int64) (int, error) { return 0, syscall.ENOSPC }
	})
	for b, err := range r.Parts(fmt.Sprint(w.rv)) {
		if len(w.s.relist.left) != 3 {
			t.Fatal("the list is written: this tests nothing")
		}
		w.must(errors.Join(err, w.s.Apply(b)))
	}
	w.must(r.Close())
	w.must(w.s.Apply(store.Batch{RV: "100", Changes: []store.Change{{Key: "d/o001", RV: "100"}}}))
	w.must(w.s.Flush(t.Context()))
	log, err := w.s.History()
	w.must(err)
	short := 0
	for e, err := range w.s.Follow(t.Context(), store.Place{}) {
		w.must(err)
		if e.Mark == nil && e.Key == "d/o001" && e.Short != nil && len(e.Short.Entry.Raw) > 0 {
			short++
		}
		if e.Mark != nil && e.Mark.Mark == log.Last.Mark {
			break
		}
	}
	if short != 1 {
		t.Errorf("the log has %d deletions with the last state, want 1", short)
	}
}

// TestLacksRoom checks the errors of bbolt that do not wrap the system's.
func TestLacksRoom(t *testing.T) {
	for text, want := range map[string]bool{
		"file resize error: " + syscall.ENOSPC.Error(): true,
		"file sync error: " + syscall.EDQUOT.Error():   true,
		"file sync error: " + syscall.EIO.Error():      false,
	} {
		if got := lacksRoom(errors.New(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
