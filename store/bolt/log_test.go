package bolt_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// logScope is a scope whose log a test looks at.
type logScope struct {
	*testing.T
	path string
	db   *bolt.DB
	s    store.Store
	opts store.Options
	rv   int
	// interval is that of commits, 0 for the default.
	interval time.Duration
	// historyBytes bounds the logs of the file, 0 for the default.
	historyBytes int64
}

func newLogScope(t *testing.T, history store.History) *logScope {
	l := &logScope{T: t, path: filepath.Join(t.TempDir(), "informers.db"), opts: scriptOptions(), rv: 10}
	l.opts.History = history
	l.open()
	r, err := l.s.Relist()
	must(t, err)
	for i := range 20 {
		must(t, r.Add(l.object(i, 10)))
	}
	for b, err := range r.Parts("10") {
		must(t, errors.Join(err, l.s.Apply(b)))
	}
	must(t, errors.Join(r.Close(), l.s.Flush(t.Context())))
	return l
}

func (l *logScope) open() {
	l.Helper()
	l.db, l.s = mustOpenScriptWith(l.T, l.path, bolt.Options{
		Compression: bolt.Uncompressed, CommitInterval: l.interval, HistoryBytes: l.historyBytes,
	}, l.opts)
}

func (l *logScope) reopen() {
	l.Helper()
	must(l.T, l.db.Close())
	l.open()
}

// object returns an object of a little more than 1 KiB.
func (l *logScope) object(i, rv int) *corev1.ConfigMap {
	cm := small.object(i, rv)
	cm.ResourceVersion = fmt.Sprint(rv)
	cm.Data = map[string]string{"pad": strings.Repeat(fmt.Sprint(rv, " "), 1<<10/len(fmt.Sprint(rv, " ")))}
	return cm
}

// put changes objects in one commit.
func (l *logScope) put(objects ...int) {
	l.Helper()
	l.rv++
	b := store.Batch{RV: fmt.Sprint(l.rv)}
	for _, i := range objects {
		b.Changes = append(b.Changes, store.Change{Object: l.object(i, l.rv)})
	}
	must(l.T, errors.Join(l.s.Apply(b), l.s.Flush(l.Context())))
}

// drop deletes an object in one commit.
func (l *logScope) drop(i int) {
	l.Helper()
	l.rv++
	rv := fmt.Sprint(l.rv)
	b := store.Batch{RV: rv, Changes: []store.Change{{Key: small.key(i), RV: rv}}}
	must(l.T, errors.Join(l.s.Apply(b), l.s.Flush(l.Context())))
}

func (l *logScope) history() store.LogState {
	l.Helper()
	state, err := l.s.History()
	must(l.T, err)
	return state
}

// kept returns the deletions and the other changes that are left.
func (l *logScope) kept() (deletions []string, others int) {
	l.Helper()
	events, err := eventsUntil(l.s, store.Place{}, l.history().Last)
	must(l.T, err)
	for _, e := range events {
		switch {
		case e.Mark != nil:
		case e.New == nil:
			deletions = append(deletions, e.RV)
		default:
			others++
		}
	}
	return deletions, others
}

func (l *logScope) wantTrimmed(at store.Place) {
	l.Helper()
	if _, err := eventsUntil(l.s, at, l.history().Last); !errors.Is(err, store.ErrTrimmed) {
		l.Errorf("Follow from %s: %v, want ErrTrimmed", at, err)
	}
	if _, err := stateAt(l.s, at); !errors.Is(err, store.ErrTrimmed) {
		l.Errorf("a read at %s: %v, want ErrTrimmed", at, err)
	}
}

// verify closes the file, checks all of it as informctl verify does, and opens it again.
func (l *logScope) verify() {
	l.Helper()
	must(l.T, logAddsUp(l.s))
	must(l.T, l.db.Close())
	db, err := bolt.OpenReadOnly(l.path, bolt.Options{})
	must(l.T, err)
	s, err := db.Open(scriptScope(), l.opts)
	must(l.T, err)
	for _, err := range s.Follow(l.Context(), store.Place{}) {
		if err != nil {
			l.Errorf("a file that nobody writes: %v", err)
		}
	}
	must(l.T, errors.Join(logAddsUp(s), db.Close()))
	l.open()
}

// TestLogBytes checks that the log keeps to its bytes, that deletions stay longer than
// the rest, and that who comes from before is told so.
func TestLogBytes(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 64 << 10})
	begin := l.history().Last
	l.drop(19)
	for range 300 {
		l.put(l.rv % 10)
		if got := l.history().Bytes; got > 64<<10+8<<10 {
			t.Fatalf("the log has %d bytes, may have 64 KiB and what one commit appends", got)
		}
	}
	l.wantTrimmed(begin)
	state := l.history()
	if state.Dropped == 0 || state.Entries > 70 || state.Entries < 30 {
		t.Errorf("%d entries are kept and %d dropped", state.Entries, state.Dropped)
	}
	if deletions, others := l.kept(); !slices.Equal(deletions, []string{"11"}) || others < 30 {
		t.Errorf("kept are the deletions %q and %d other changes", deletions, others)
	}
	if !state.Begins.Before(state.Oldest.Time) {
		t.Errorf("the log begins at %s, and can be followed from %s: the deletion is older", state.Begins, state.Oldest.Time)
	}
	l.verify()
	l.wantTrimmed(begin)
	// Deletions are bounded, too.
	for i := range 300 {
		l.put(15)
		l.drop(15)
		if got := l.history().Bytes; got > 64<<10+8<<10 {
			t.Fatalf("after %d deletions the log has %d bytes", i, got)
		}
	}
	if deletions, _ := l.kept(); len(deletions) < 20 || deletions[0] == "11" {
		t.Errorf("%d deletions are kept, the first is %s", len(deletions), deletions[0])
	}
	l.verify()
}

// TestLogAge checks that changes get no older than the bound. It runs neither while
// nothing changes nor, for as long as the bound, between two processes: a consumer that
// was at the end of the log has to find its place after a weekend, whatever was written
// first.
func TestLogAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = time.Hour
		l := newLogScope(t, store.History{Age: age})
		l.drop(1)
		first := l.history().Last
		<-time.After(60 * age)
		l.reopen()
		l.put(2)
		l.put(3)
		if deletions, _ := l.kept(); len(deletions) != 1 {
			t.Errorf("%d deletions are kept of before the process, want 1", len(deletions))
		}
		<-time.After(age + time.Minute)
		l.put(4)
		l.put(5)
		if deletions, others := l.kept(); len(deletions) != 0 || others == 0 {
			t.Errorf("%d deletions and %d changes are kept, want the changes", len(deletions), others)
		}
		l.wantTrimmed(first)
		l.verify()
		must(t, l.db.Close())
	})
}

// TestLogOfLargeObject checks that an object of more than a quarter of the bytes is
// logged without its state, which is an error and never another state.
func TestLogOfLargeObject(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 4 << 10})
	before := l.history().Last
	l.put(1)
	events, err := eventsUntil(l.s, before, l.history().Last)
	must(t, err)
	if e := events[0]; e.Old == nil || e.Old.IsKnown() || e.Old.Header.Key != small.key(1) || e.New == nil || !e.New.IsKnown() {
		t.Errorf("the event is %+v, want one whose old state is not known", e)
	}
	if _, err := stateAt(l.s, before); !errors.Is(err, store.ErrTrimmed) {
		t.Errorf("a read before it: %v, want ErrTrimmed", err)
	}
}

// TestLogOfLongList checks that a list which changes more than the log can hold is cut:
// its deletions stay, and so do those before it.
func TestLogOfLongList(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 16 << 10})
	l.drop(0)
	before := l.history().Last
	must(t, l.s.Invalidate(t.Context(), "expired"))
	r, err := l.s.Relist()
	must(t, err)
	for i := 2; i < 20; i++ {
		must(t, r.Add(l.object(i, 50)))
	}
	for b, err := range r.Parts("60") {
		must(t, errors.Join(err, l.s.Apply(b), l.s.Flush(t.Context())))
	}
	must(t, errors.Join(r.Close(), l.s.Flush(t.Context())))
	l.rv = 60
	l.wantTrimmed(before)
	if deletions, _ := l.kept(); !slices.Equal(deletions, []string{"11", ""}) {
		t.Errorf("kept are the deletions %q, want that before the list and that of the list", deletions)
	}
	after := l.history().Last
	if left := l.history().Unlogged; left == 0 || left > 18 {
		t.Errorf("%d changes of the list are left out, want some of 18", left)
	}
	l.put(3)
	if events, err := eventsUntil(l.s, after, l.history().Last); err != nil || len(events) != 2 {
		t.Errorf("%d events follow the list, %v, want a change and a mark", len(events), err)
	}
	l.verify()
}

// TestNoHistory checks that without a history only deletions that handlers have not
// received are logged, and that nobody follows with a gap.
func TestNoHistory(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: -1})
	begin := l.history().Last
	l.put(1, 2)
	l.drop(3)
	must(t, l.s.Apply(store.Batch{RV: "20", Changes: []store.Change{{Key: small.key(4), Departs: true}}}))
	must(t, l.s.Flush(t.Context()))
	if state := l.history(); state.Entries != 1 || state.Unlogged != 3 {
		t.Errorf("the log has %d entries and has left out %d, want one that departs and 3", state.Entries, state.Unlogged)
	}
	l.wantTrimmed(begin)
	l.verify()
	if found, err := l.s.(store.Departer).Departed(0, 10); err != nil || len(found) != 1 {
		t.Errorf("%d have departed, %v, want one", len(found), err)
	}
}

// TestLogOfWipedScope checks that a wipe, a dropped scope and another file begin another
// lineage.
func TestLogOfWipedScope(t *testing.T) {
	l := newLogScope(t, store.History{})
	l.put(1)
	place := l.history().Last
	wantLineage := func(what string) {
		t.Helper()
		for _, err := range l.s.Follow(t.Context(), place) {
			if !errors.Is(err, store.ErrLineage) {
				t.Errorf("after %s: %v, want ErrLineage", what, err)
			}
			break
		}
	}
	must(t, l.db.Close())
	l.opts.TransformVersion = "another"
	l.open()
	wantLineage("another transform")
	must(t, l.s.Apply(store.Batch{RV: "30", Changes: []store.Change{{Object: l.object(1, 30)}}}))
	must(t, l.s.Flush(t.Context()))
	if after := l.history().Last; after.Mark <= place.Mark || after.Lineage == place.Lineage {
		t.Errorf("the place is %s after %s, want a higher number of another lineage", after, place)
	}
	place = l.history().Last
	_, err := l.db.Wipe(nil)
	must(t, err)
	r, err := l.s.Relist()
	must(t, err)
	for b, err := range r.Parts("40") {
		must(t, errors.Join(err, l.s.Apply(b)))
	}
	must(t, errors.Join(r.Close(), l.s.Flush(t.Context())))
	wantLineage("a wipe")
}

// TestLogAfterFreeze checks that the log can be read at the end of a freeze, though that
// has brought no change: an object without a resource version turned out to be as the
// server has it.
func TestLogAfterFreeze(t *testing.T) {
	for name, reopens := range map[string]bool{"": false, "in the next process": true} {
		t.Run(name, func(t *testing.T) {
			l := newLogScope(t, store.History{})
			l.put(1)
			must(t, l.s.Apply(store.Batch{Changes: []store.Change{{Object: l.object(2, 300)}}}))
			must(t, l.s.Flush(t.Context()))
			if !l.history().Newer {
				t.Fatal("the content is not newer than its resource version")
			}
			if reopens {
				must(t, l.db.Close())
				l.open()
			}
			must(t, l.s.Apply(store.Batch{RV: "300", Changes: []store.Change{{Object: l.object(2, 300)}}}))
			must(t, l.s.Flush(t.Context()))
			h := l.history()
			if h.Newer || h.Readable.RV != "300" || h.Readable != h.Last {
				t.Errorf("newer: %t, readable: %s, last: %s, want 300", h.Newer, h.Readable, h.Last)
			}
			must(t, logAddsUp(l.s))
			must(t, l.s.Apply(store.Batch{RV: "301"}))
			must(t, l.s.Flush(t.Context()))
			if after := l.history().Last; after != h.Last {
				t.Errorf("a bookmark has got a mark, %s", after)
			}
		})
	}
}

// TestLogOfCopy checks that a place in a file is none in a copy of it that went another
// way: numbers are the same, random values are not.
func TestLogOfCopy(t *testing.T) {
	l := newLogScope(t, store.History{})
	must(t, l.db.Close())
	content, err := used(l.path)
	must(t, err)
	l.open()
	l.put(1)
	place := l.history().Last
	must(t, l.db.Close())
	writeContent(t, l.path, content)
	l.open()
	l.put(2)
	if now := l.history().Last; now.Mark != place.Mark {
		t.Fatalf("the marks are %d and %d, want the same number", now.Mark, place.Mark)
	}
	if _, err := stateAt(l.s, place); !errors.Is(err, store.ErrLineage) {
		t.Errorf("a read at the place of the other copy: %v, want ErrLineage", err)
	}
}

// TestLogOfManyDepartures checks that deletions which are held for late handlers do not
// keep the rest of the log from being trimmed, by age or by bytes.
func TestLogOfManyDepartures(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 64 << 10, Age: time.Millisecond})
	for round := range 3 {
		for i := range 10 {
			l.put(i)
			l.rv++
			rv := fmt.Sprint(l.rv)
			b := store.Batch{RV: rv, Changes: []store.Change{{Key: small.key(i), RV: rv, Departs: true}}}
			must(t, errors.Join(l.s.Apply(b), l.s.Flush(t.Context())))
		}
		for range 20 {
			l.put(15)
		}
		departed, err := l.s.(store.Departer).Departed(0, 100)
		must(t, err)
		if len(departed) != 10*(round+1) {
			t.Fatalf("%d departed objects are there, want %d", len(departed), 10*(round+1))
		}
		if _, others := l.kept(); others > 5 {
			t.Errorf("%d changes are kept that are older than a millisecond", others)
		}
	}
	l.verify()
}

// TestLogsOfReopenedScopes checks that the logs of a file are counted once, however often
// a scope is opened.
func TestLogsOfReopenedScopes(t *testing.T) {
	l := newLogScope(t, store.History{})
	l.put(1, 2, 3)
	for range 5 {
		must(t, l.s.Close())
		var err error
		l.s, err = l.db.Open(scriptScope(), l.opts)
		must(t, err)
	}
	if got, want := bolt.FileLogBytes(l.db), l.history().Bytes; got != want || want == 0 {
		t.Errorf("the logs of the file have %d bytes, want %d", got, want)
	}
}

// TestPastOfIndexInMemory checks that an index in memory, which is that of now, does not
// answer for the past.
func TestPastOfIndexInMemory(t *testing.T) {
	l := newLogScope(t, store.History{})
	l.opts.DecodedBytes = -1
	l.reopen()
	place := l.history().Last
	want, err := l.s.Keys(store.Query{Index: "namespace", Values: []string{"ns0"}})
	must(t, err)
	l.drop(0)
	l.put(40)
	got, err := l.s.Keys(store.Query{Index: "namespace", Values: []string{"ns0"}, At: place})
	if err != nil || !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("keys in the past %q, %v, want %q", got, err, want)
	}
	for name := range l.s.Indexers() {
		if _, err := l.s.Keys(store.Query{Index: name, Values: []string{"x"}, At: place}); err != nil && !errors.Is(err, store.ErrNoIndex) {
			t.Errorf("index %s: %v", name, err)
		}
	}
}

// TestLogBesideBigFile checks that all scopes of a file share a bound.
func TestLogBesideBigFile(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 64 << 10})
	l.historyBytes = 16 << 10
	l.reopen()
	for range 100 {
		l.put(l.rv % 10)
	}
	if got := l.history().Bytes; got > 40<<10 {
		t.Errorf("the log has %d bytes where a file may have 16 KiB", got)
	}
	l.verify()
}

// TestLogsOfFile checks that the logs of all scopes of a file stay within one bound,
// whatever each of them may have, and whether or not the one that has most changes on.
// Small logs stay whole.
func TestLogsOfFile(t *testing.T) {
	const bound = 256 << 10
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{Compression: bolt.Uncompressed, CommitInterval: time.Hour, HistoryBytes: bound})
	must(t, err)
	open := func(namespace string, bytes int64) *logScope {
		scope, opts := scriptScope(), scriptOptions()
		scope.Namespace, opts.History.Bytes = namespace, bytes
		s, err := db.Open(scope, opts)
		must(t, err)
		l := &logScope{T: t, db: db, s: s, rv: 10}
		must(t, s.Apply(small.batch(1)))
		must(t, s.Flush(t.Context()))
		return l
	}
	scopes := []*logScope{open("a", math.MaxInt64), open("b", math.MaxInt64), open("c", 1<<30), open("d", 0)}
	write := func(n int, writers ...*logScope) {
		t.Helper()
		for range n {
			for _, l := range writers {
				l.rv++
				b := store.Batch{RV: fmt.Sprint(l.rv)}
				for i := range 10 {
					b.Changes = append(b.Changes, store.Change{Object: l.object(i, l.rv)})
				}
				must(t, l.s.Apply(b))
			}
			for _, l := range writers {
				must(t, l.s.Flush(t.Context()))
			}
		}
		for range 10 { // what a commit leaves to the next
			must(t, bolt.Commit(db))
		}
		if all := bolt.FileLogBytes(db); all > bound || all < bound/2 {
			t.Errorf("the logs have %d bytes, the file may have %d", all, bound)
		}
	}
	little := scopes[3]
	little.drop(1)
	at := little.history().Last
	little.put(2)
	write(60, scopes[0])     // alone
	write(60, scopes[1])     // the first one, idle, gives way
	write(60, scopes[:3]...) // together
	must(t, scopes[0].s.Close())
	write(60, scopes[2]) // a closed one gives way, too
	if _, err := stateAt(little.s, at); err != nil {
		t.Errorf("a small log is trimmed beside larger ones: %v", err)
	}
	before := bolt.CommitCount(little.s)
	must(t, bolt.Commit(db))
	if bolt.CommitCount(little.s) != before {
		t.Error("logs within the bound are written again")
	}
	for _, l := range scopes {
		must(t, logAddsUp(l.s))
	}
	must(t, db.Close())
}

// TestHistoryWithoutBound checks that deletions that no handler has received are kept in
// a log of any size, and that no value of History overflows.
func TestHistoryWithoutBound(t *testing.T) {
	for _, bytes := range []int64{0, 1 << 20, math.MaxInt64 / 4, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64, -1, math.MinInt64} {
		for _, age := range []time.Duration{0, time.Nanosecond, math.MaxInt64, math.MinInt64} {
			l := newLogScope(t, store.History{Bytes: bytes, Age: age})
			must(t, l.s.Apply(store.Batch{RV: "11", Changes: []store.Change{{Key: small.key(0), RV: "11", Departs: true}}}))
			must(t, l.s.Flush(t.Context()))
			l.rv = 11
			for range 4 {
				l.put(1, 2, 3)
			}
			wantDeparted(t, l.s, 0)
			l.opts.TransformVersion = "2"
			l.reopen()
			loadScript(t, l.s, "20", 1, 2) // the others were deleted while no process ran
			must(t, l.s.Flush(t.Context()))
			kept, dropped := l.s.(store.Departer).Departures()
			if kept != 18 || dropped != 0 {
				t.Errorf("%d bytes, %s: %d deletions are kept and %d dropped, want 18 and 0", bytes, age, kept, dropped)
			}
			must(t, l.db.Close())
		}
	}
}

// TestLogWithoutItsEnd checks that a log that ends before its last mark, as a page of an
// older transaction makes it, is damage for whoever reads all of it, and cut for others.
func TestLogWithoutItsEnd(t *testing.T) {
	t.Parallel()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour})
	must(t, err)
	s := openLabelled(t, db)
	for rv := range 3 {
		apply(t, s, fmt.Sprint(rv+1), labelled("one", "web", rv))
		must(t, s.Flush(t.Context()))
	}
	log, err := s.History()
	must(t, err)
	bolt.DropLastBlock(db, scriptScope())
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for after, want := range map[store.Place]error{{}: store.ErrCorrupt, log.Oldest: store.ErrTrimmed} {
		var last error
		for _, err := range s.Follow(ctx, after) {
			last = err
		}
		if !errors.Is(last, want) {
			t.Errorf("after %v: %v, want %v", after, last, want)
		}
	}
	must(t, db.Close())
}

// TestLogTrimmedUnacknowledged checks that what a commit has trimmed that is in the file
// but has returned an error is no damage for whoever reads all of the log.
func TestLogTrimmedUnacknowledged(t *testing.T) {
	t.Parallel()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{CommitInterval: time.Hour, Compression: bolt.Uncompressed})
	must(t, err)
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	s, err := db.Open(scriptScope(), store.Options{Codec: c, History: store.History{Bytes: 64 << 10}})
	must(t, err)
	change := func(rv int) {
		for i := range 10 {
			apply(t, s, fmt.Sprint(rv), labelled(fmt.Sprint("o", i), "web", 1000+rv))
		}
	}
	for rv := range 6 { // not trimmed yet
		change(rv + 1)
		must(t, s.Flush(t.Context()))
	}
	unacknowledged(db)
	change(7)
	if err := bolt.Commit(db); err == nil {
		t.Fatal("the commit was acknowledged")
	}
	log, err := s.History()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for e, err := range s.Follow(ctx, store.Place{}) {
		if err != nil {
			t.Errorf("all of the log: %v", err)
		}
		if e.Mark != nil && e.Mark.String() == log.Last.String() {
			break
		}
	}
	must(t, db.Close())
}

// unacknowledged makes the next commit return an error after it was written.
func unacknowledged(db *bolt.DB) {
	bolt.HookWrites(db, func(next bolt.WriteAt) bolt.WriteAt {
		return func(b []byte, off int64) (int, error) {
			n, err := next(b, off)
			if off < int64(2*pageSize) { // the meta page ends a commit
				err = errors.New("unknown outcome")
			}
			return n, err
		}
	})
}

// TestLogAboveOutlivesDrop checks that the resource version which an earlier history has
// reached outlives a start with another encryption.
func TestLogAboveOutlivesDrop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	loadScript(t, s, "100", 0, 1)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(store.Batch{RV: "500", Changes: []store.Change{{Object: small.object(2, 2)}}}))
	must(t, s.Flush(t.Context()))
	// etcd was restored
	must(t, s.Apply(store.Batch{Reason: "rewound", Rewound: true}))
	loadScript(t, s, "200", 0, 1)
	must(t, s.Flush(t.Context()))
	look := func(s store.Store, rv string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, err := range s.Follow(ctx, store.Place{RV: rv}) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	if err := look(s, "400"); !errors.Is(err, store.ErrTrimmed) {
		t.Fatalf("before: %v", err)
	}
	must(t, db.Close())
	db, s = mustOpenScriptWith(t, path, allWith(fixedKeys{{1}}), scriptOptions())
	loadScript(t, s, "300", 0, 1)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(store.Batch{RV: "450", Changes: []store.Change{{Object: small.object(3, 2)}}}))
	must(t, s.Flush(t.Context()))
	if err := look(s, "400"); !errors.Is(err, store.ErrTrimmed) {
		t.Errorf("a resource version of the history before: %v", err)
	}
	_ = db
}

// TestLogAboveOutlivesWipe checks that a resource version of the content before a wipe,
// or before another epoch, is not looked up in the log of the content after it: both may
// be the answer to a server that was restored. What is higher than that is looked up.
func TestLogAboveOutlivesWipe(t *testing.T) {
	for name, again := range map[string]func(t *testing.T, path string, db *bolt.DB) bolt.Options{
		"another epoch": func(t *testing.T, _ string, db *bolt.DB) bolt.Options {
			must(t, db.Close())
			return bolt.Options{Epoch: "2"}
		},
		"wiped while open": func(t *testing.T, _ string, db *bolt.DB) bolt.Options {
			_, err := db.Wipe(func(store.Scope) bool { return true })
			must(t, err)
			return bolt.Options{}
		},
		"wiped while open, and ended": func(t *testing.T, _ string, db *bolt.DB) bolt.Options {
			_, err := db.Wipe(nil)
			must(t, errors.Join(err, db.Close()))
			return bolt.Options{}
		},
		"wiped while closed": func(t *testing.T, path string, db *bolt.DB) bolt.Options {
			must(t, db.Close())
			db, err := bolt.Open(path, bolt.Options{})
			must(t, err)
			// Without another scope, the file is as new after the wipe.
			other, err := db.Open(inNamespace("other"), scriptOptions())
			must(t, err)
			loadScript(t, other, "100", 0)
			must(t, other.Flush(t.Context()))
			_, err = db.Wipe(func(s store.Scope) bool { return s == scriptScope() })
			must(t, errors.Join(err, db.Close()))
			return bolt.Options{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScript(t, path, bolt.Options{})
			loadScript(t, s, "100", 0, 1)
			must(t, s.Apply(store.Batch{RV: "500", Changes: []store.Change{{Object: small.object(2, 2)}}}))
			must(t, s.Flush(t.Context()))
			opts := again(t, path, db)
			if name != "wiped while open" {
				_, s = mustOpenScript(t, path, opts)
			}
			goesOnFrom300(t, s)
		})
	}
}

// goesOnFrom300 lists at 300 what has reached 500 before, and checks that a resource
// version of the content before is not looked up, and one of this content is.
func goesOnFrom300(t *testing.T, s store.Store) {
	t.Helper()
	loadScript(t, s, "300", 0, 1)
	must(t, s.Flush(t.Context()))
	for i, rv := range []string{"450", "550", "600"} {
		must(t, s.Apply(store.Batch{RV: rv, Changes: []store.Change{{Object: small.object(2, i+3)}}}))
		must(t, s.Flush(t.Context()))
	}
	look := func(rv string) error {
		for e, err := range s.Follow(t.Context(), store.Place{RV: rv}) {
			if err != nil || e.Mark != nil {
				return err
			}
		}
		return nil
	}
	for _, rv := range []string{"400", "500"} {
		if err := look(rv); !errors.Is(err, store.ErrTrimmed) {
			t.Errorf("%s, of the content before: %v, want %v", rv, err, store.ErrTrimmed)
		}
	}
	if err := look("550"); err != nil {
		t.Errorf("550, of this content: %v", err)
	}
}

// TestLogInsideOfParts checks that changes are inside of a resource version only in the
// commit that has it, also if a commit has more than one part of the log.
func TestLogInsideOfParts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	_, s := mustOpenScript(t, path, bolt.Options{})
	loadScript(t, s, "10", 0)
	must(t, s.Flush(t.Context()))
	noise := rand.NewChaCha8([32]byte{1})
	for _, rv := range []string{"20", "30"} {
		batch := store.Batch{RV: rv}
		for i := range 200 {
			content := make([]byte, 7000)
			_, _ = noise.Read(content)
			batch.Changes = append(batch.Changes, store.Change{Object: configMap(fmt.Sprintf("default/large%d", i), rv, base64.StdEncoding.EncodeToString(content))})
		}
		must(t, s.Apply(batch))
		must(t, s.Flush(t.Context()))
	}
	inside, n := 0, 0
	for e, err := range s.Follow(t.Context(), store.Place{RV: "10"}) {
		if must(t, err); e.Mark != nil && e.Mark.RV == "30" {
			break
		}
		if e.Mark == nil {
			n++
		}
		if e.Inside {
			inside++
		}
	}
	if n != 400 || inside > 0 {
		t.Errorf("%d of %d changes are inside, want none of 400", inside, n)
	}
}

// TestLogAboveOutlivesLoss checks that a resource version of a history before is not
// looked up in the log of another file, where the file was lost before the rewind could
// be noted, also if the first list into the new file breaks, or the process ends before
// it.
func TestLogAboveOutlivesLoss(t *testing.T) {
	for _, then := range []string{"a list", "a list that breaks", "the end"} {
		t.Run(then, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScript(t, path, bolt.Options{})
			loadScript(t, s, "100", 0, 1)
			must(t, s.Apply(store.Batch{RV: "500", Changes: []store.Change{{Object: small.object(2, 2)}}}))
			must(t, s.Flush(t.Context()))
			must(t, os.Remove(path))
			must(t, s.Apply(store.Batch{RV: "501", Changes: []store.Change{{Object: small.object(3, 2)}}}))
			if err := s.Flush(t.Context()); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("the file is gone: %v", err)
			}
			_ = s.Apply(store.Batch{Reason: "rewound", Rewound: true}) // it takes nothing
			switch then {
			case "the end":
				_ = db.Close()
				_, s = mustOpenScript(t, path, bolt.Options{})
			case "a list that breaks":
				list, err := s.Relist()
				must(t, err)
				bolt.SetRelistLimit(list, 1)
				for i := range 5 {
					must(t, list.Add(small.object(i, 3)))
				}
				must(t, list.Close())
			}
			goesOnFrom300(t, s)
		})
	}
}

// TestLogAboveOfClosedOutlivesLoss checks the same for a scope that was closed before the
// loss, which another scope has noticed: it is opened again by this process, also if it
// could not write that, or by the next.
func TestLogAboveOfClosedOutlivesLoss(t *testing.T) {
	for _, by := range []string{"this process", "this process without a note", "the next"} {
		t.Run(by, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			db, s := mustOpenScript(t, path, bolt.Options{})
			loadScript(t, s, "100", 0, 1)
			must(t, s.Apply(store.Batch{RV: "500", Changes: []store.Change{{Object: small.object(2, 2)}}}))
			other, err := db.Open(inNamespace("other"), scriptOptions())
			must(t, errors.Join(err, s.Close(), os.Remove(path)))
			must(t, other.Apply(store.Batch{RV: "501", Changes: []store.Change{{Object: small.object(3, 2)}}}))
			if err := other.Flush(t.Context()); !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("the file is gone: %v", err)
			}
			switch by {
			case "this process without a note":
				bolt.DropReached(db, scriptScope())
			case "the next":
				must(t, db.Close())
				db, err = bolt.Open(path, bolt.Options{})
				must(t, err)
				defer func() { must(t, db.Close()) }()
			}
			s, err = db.Open(scriptScope(), scriptOptions())
			must(t, err)
			goesOnFrom300(t, s)
		})
	}
}

// TestLogAboveOutlivesOtherTransform checks the same for a file whose content the next
// process cannot use: the server may have been restored between the two.
func TestLogAboveOutlivesOtherTransform(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := mustOpenScript(t, path, bolt.Options{})
	loadScript(t, s, "100", 0, 1)
	must(t, s.Apply(store.Batch{RV: "500", Changes: []store.Change{{Object: small.object(2, 2)}}}))
	must(t, db.Close())
	opts := scriptOptions()
	opts.TransformVersion = "another"
	_, s = mustOpenScriptWith(t, path, bolt.Options{}, opts)
	goesOnFrom300(t, s)
}

// TestLogAboveOfPlainWipe checks that after a wipe on a server that was not restored a
// reader goes on from what was listed, also if nothing was changed meanwhile.
func TestLogAboveOfPlainWipe(t *testing.T) {
	db, s := mustOpenScript(t, filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	loadScript(t, s, "500", 0, 1)
	must(t, s.Flush(t.Context()))
	_, err := db.Wipe(nil)
	must(t, err)
	loadScript(t, s, "500", 0, 1)
	must(t, s.Flush(t.Context()))
	must(t, s.Apply(store.Batch{RV: "600", Changes: []store.Change{{Object: small.object(2, 3)}}}))
	must(t, s.Flush(t.Context()))
	n := 0
	for e, err := range s.Follow(t.Context(), store.Place{RV: "500"}) {
		if must(t, err); e.Mark != nil && e.Mark.RV == "600" {
			break
		}
		if e.Mark == nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d changes after the list, want 1", n)
	}
}

// TestLogOfClockSteps checks that commits under a clock that was ahead, or behind, change
// nothing for those before and after: reads and followers by time, the times of events,
// and what is trimmed by age.
func TestLogOfClockSteps(t *testing.T) {
	const age = time.Hour
	for name, steps := range map[string][]time.Duration{ // when a process runs
		"in order":            {0, 10 * time.Minute, 20 * time.Minute},
		"ahead by a year":     {0, 365 * 24 * time.Hour, 20 * time.Minute},
		"ahead by half a day": {0, 12 * time.Hour, 20 * time.Minute},
		"ahead first":         {365 * 24 * time.Hour, 10 * time.Minute, 20 * time.Minute},
		"behind":              {24 * time.Hour, 10 * time.Minute, 24*time.Hour + 20*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			opts := scriptOptions()
			opts.History.Age = age
			var places []store.Place
			for i, at := range steps {
				synctest.Test(t, func(t *testing.T) { // each begins at the same time
					<-time.After(at)
					l := &logScope{T: t, path: path, opts: opts, rv: 10 * (i + 1)}
					if l.open(); i == 0 {
						loadScript(t, l.s, "10", 0, 1, 2, 3)
						must(t, l.s.Flush(t.Context()))
					}
					l.drop(i)
					places = append(places, l.history().Last)
					<-time.After(time.Minute)
					l.put(3)
					if i == 2 {
						wantClockSteps(l, places, name)
					}
					must(t, l.db.Close())
				})
			}
		})
	}
}

// wantClockSteps checks what the last process finds.
func wantClockSteps(l *logScope, places []store.Place, name string) {
	l.Helper()
	last := places[2]
	got, err := stateAt(l.s, store.Place{Time: last.Time})
	must(l.T, err)
	want, err := stateAt(l.s, last)
	must(l.T, err)
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("the state by time is not that of the place (-want +got):\n%s", diff)
	}
	if now, err := stateAt(l.s, store.Place{Time: time.Now()}); err != nil || now[small.key(3)] != fmt.Sprint(l.rv) {
		l.Errorf("the state of now is %v, %v, want the newest", now, err)
	}
	if name != "ahead first" {
		if first, err := stateAt(l.s, store.Place{Time: places[0].Time}); err != nil || len(first) != 3 {
			l.Errorf("the state after the first deletion has %d objects, %v, want 3", len(first), err)
		}
	}
	if begins := l.history().Begins; begins.IsZero() || begins.After(time.Now()) {
		l.Errorf("the log begins at %s", begins)
	}
	if oldest := l.history().Oldest; oldest.IsZero() || oldest.Time.After(time.Now()) {
		l.Errorf("the log can be followed from %s", oldest.Time)
	} else if _, err := stateAt(l.s, oldest); err != nil {
		l.Errorf("the state at its beginning: %v", err)
	}
	if name == "behind" {
		// What the second process wrote is later than that of the first one.
		changes, last := 0, l.history().Last
		for e, err := range store.FollowSince(l.Context(), l.s, last.Time.Add(-20*time.Minute), store.LogFilter{}) {
			must(l.T, err)
			if e.Mark == nil {
				changes++
			} else if e.Mark.Mark == last.Mark {
				break
			}
		}
		if changes != 5 {
			l.Errorf("%d changes since then, want 5", changes)
		}
	}
	events, err := eventsUntil(l.s, store.Place{}, l.history().Last)
	must(l.T, err)
	deletions := 0
	for _, e := range events {
		if e.Time.After(time.Now()) || e.Since.After(e.Time) {
			l.Errorf("event of %q has time %s, since %s, and it is %s", e.Key, e.Time, e.Since, time.Now())
		}
		if e.Mark == nil && e.New == nil {
			deletions++
		}
	}
	if deletions != 3 {
		l.Errorf("%d deletions are left, want all 3", deletions)
	}
	// What is older than the bound goes, and what is not stays.
	<-time.After(2 * time.Hour)
	l.put(3)
	l.drop(3)
	l.put(3)
	if deletions, others := l.kept(); len(deletions) != 1 || others > 2 {
		l.Errorf("%d deletions and %d changes are left, want those of the last minutes", len(deletions), others)
	}
}
