package bolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// newShortScope returns a scope that is written on request only.
func newShortScope(t *testing.T, history store.History) *logScope {
	l := newLogScope(t, history)
	l.interval = time.Hour
	l.reopen()
	return l
}

// short creates and deletes objects before anything is written.
func (l *logScope) short(objects ...int) {
	l.Helper()
	l.rv++
	created, deleted := store.Batch{RV: fmt.Sprint(l.rv)}, store.Batch{RV: fmt.Sprint(l.rv + 1)}
	for _, i := range objects {
		created.Changes = append(created.Changes, store.Change{Object: l.object(i, l.rv)})
		deleted.Changes = append(deleted.Changes, store.Change{Key: small.key(i), RV: deleted.RV})
	}
	l.rv++
	must(l.T, errors.Join(l.s.Apply(created), l.s.Apply(deleted)))
}

// left returns the short-lived objects in the log, and how many of them have a state.
func (l *logScope) left() (short []store.Event, known int) {
	l.Helper()
	must(l.T, l.s.Flush(l.Context()))
	events, err := eventsUntil(l.s, store.Place{}, l.history().Last)
	must(l.T, err)
	for _, e := range events {
		if e.Short == nil {
			continue
		}
		if short = append(short, e); e.Short.IsKnown() {
			known++
		}
	}
	return short, known
}

// TestShortBounds checks that short-lived objects keep to the bytes of the log, in one
// commit and in many.
func TestShortBounds(t *testing.T) {
	l := newShortScope(t, store.History{Bytes: 16 << 10})
	var many []int
	for i := range 100 {
		many = append(many, 100+i)
	}
	l.short(many...)
	short, known := l.left()
	if n := len(short); n == 0 || n > 16 || known != n || l.history().Unlogged != uint64(100-n) {
		t.Errorf("%d of 100 objects are kept, %d with a state; %d changes are left out", n, known, l.history().Unlogged)
	}
	l.verify()
	for range 50 {
		l.short(100)
		if short, _ = l.left(); l.history().Bytes > 24<<10 {
			t.Fatalf("the log has %d bytes", l.history().Bytes)
		}
	}
	if last := short[len(short)-1]; last.RV != fmt.Sprint(l.rv) || last.Short.Header.RV != fmt.Sprint(l.rv-1) {
		t.Errorf("the last one is %s, deleted at %s, want one deleted at %d", last.Short.Header.RV, last.RV, l.rv)
	}
	l.verify()
}

// TestShortTooLarge checks that an object of more than a quarter of the bytes is logged
// without its state.
func TestShortTooLarge(t *testing.T) {
	l := newShortScope(t, store.History{Bytes: 4 << 10})
	before := l.history().Last
	l.short(100)
	if short, known := l.left(); len(short) != 1 || known != 0 || short[0].Short.Header.Key != small.key(100) {
		t.Errorf("%+v, of which %d have a state, want one without", short, known)
	}
	if state, err := stateAt(l.s, before); err != nil || len(state) != 20 {
		t.Errorf("a read before it: %d objects, %v", len(state), err)
	}
	l.verify()
}

// TestShortWithoutHistory checks that nothing of short-lived objects is kept without a
// history, and no longer than they wait with one.
func TestShortWithoutHistory(t *testing.T) {
	for _, bytes := range []int64{-1, 1 << 20} {
		l := newShortScope(t, store.History{Bytes: bytes})
		waiting := func() int64 { return l.s.(store.Committer).Commits().Waiting }
		l.short(100)
		if n := waiting(); (n > 1<<10) != (bytes > 0) {
			t.Errorf("history of %d bytes: %d bytes wait", bytes, n)
		}
		if short, _ := l.left(); len(short) != 0 && bytes < 0 || waiting() != 0 {
			t.Errorf("history of %d bytes: %d entries, %d bytes wait", bytes, len(short), waiting())
		}
		l.verify()
	}
}

// TestShortUnacknowledged checks that a short-lived object is in the log once if the
// outcome of its commit was not known, and that its dictionary is.
func TestShortUnacknowledged(t *testing.T) {
	l := newShortScope(t, store.History{})
	l.short(100)
	unacknowledged(l.db)
	if err := bolt.Commit(l.db); err == nil {
		t.Fatal("the commit was acknowledged")
	}
	if short, known := l.left(); len(short) != 1 || known != 1 {
		t.Errorf("%d short-lived objects, %d with a state, want one", len(short), known)
	}
	l.verify()
}

// TestShortCompressed checks that the log has the dictionary of a short-lived object.
func TestShortCompressed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := recordFile(t, path, 200)
	log, err := s.History()
	must(t, err)
	pod := testobjects.Pod(1000, 1)
	short, err := s.Encode(pod)
	must(t, err)
	must(t, s.Apply(store.Batch{RV: "11", Changes: []store.Change{{Key: short.Key, RV: "11", Short: short}}}))
	must(t, s.Flush(t.Context()))
	must(t, db.VerifyLog(recordScope.ID()))
	now, err := s.History()
	must(t, err)
	events, err := eventsUntil(s, log.Last, now.Last)
	must(t, err)
	if events[0].Short == nil {
		t.Fatalf("the event is %+v", events[0])
	}
	got, err := s.Decode(events[0].Short.Entry)
	must(t, err)
	if diff := cmp.Diff(runtime.Object(pod), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	size, _, err := s.(store.Payloader).PayloadSize(events[0].Short.Entry)
	if must(t, err); size <= len(events[0].Short.Entry.Raw) {
		t.Error("it is not compressed: this tests nothing")
	}
}
