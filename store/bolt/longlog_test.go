package bolt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/store"
)

// TestLongLog reads a log of many parts: all of it, the changes of one object, and those
// since a time. The state after a change is that of the change, however far ahead the
// next change of the object is. Half of the log is written, and most of it trimmed, while
// it is read.
func TestLongLog(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 6 << 20, Age: -1})
	rng := rand.New(rand.NewPCG(1, 2))
	there := map[int]bool{}
	change := func(commits int) {
		for range commits {
			if i := rng.IntN(20); there[i] && rng.IntN(8) == 0 {
				there[i] = false
				l.drop(i)
				continue
			}
			var objects []int
			for i := range 20 { // half of them change rarely
				if rng.IntN(300) < 1+i/10*200 {
					objects, there[i] = append(objects, i), true
				}
			}
			l.put(objects...)
		}
	}
	change(500)
	middle := l.history().Last
	change(500)
	last := l.history().Last
	if parts := l.history().Bytes >> 20; parts < 5 {
		t.Fatalf("the log has %d parts", parts)
	}
	// read checks events up to the last place, and returns how many there are.
	read := func(what string, f store.LogFilter, since time.Time, each func(n int)) (n int) {
		for e, err := range store.FollowSince(t.Context(), l.s, since, f) {
			switch {
			case err != nil:
				t.Fatalf("%s: %v", what, err)
			case e.Mark != nil && e.Mark.Mark >= last.Mark:
				return n
			case e.Mark != nil:
				continue
			}
			if n++; !f.Matches(e.Key) || e.Time.Before(since) {
				t.Errorf("%s: %s of %s", what, e.Key, e.Time)
			}
			if e.New != nil && (!e.New.IsKnown() || e.New.Header.RV != e.RV) {
				t.Errorf("%s: %s was changed to %+v at %s", what, e.Key, e.New.Header, e.RV)
			}
			each(n)
		}
		return n
	}
	nothing := func(int) {}
	all := read("all", store.LogFilter{}, time.Time{}, nothing)
	sum := 0
	for i := range 20 {
		sum += read("one", store.LogFilter{Names: []string{small.object(i, 1).Name}}, time.Time{}, nothing)
	}
	later := read("since", store.LogFilter{}, middle.Time, nothing)
	if all != sum || later < all/4 || later > all*3/4 {
		t.Errorf("%d changes, %d of each object, %d since the middle", all, sum, later)
	}
	trimmed := read("trimmed", store.LogFilter{}, time.Time{}, func(n int) {
		if n%50 == 0 {
			change(12)
		}
	})
	if trimmed == all {
		t.Error("nothing was trimmed: this tests nothing")
	}
}

// putBig changes an object of about 15 KiB, in one commit.
func (l *logScope) putBig(i int) {
	l.Helper()
	l.rv++
	l.change(store.Change{Object: l.big(i)})
}

func (l *logScope) big(i int) *corev1.ConfigMap {
	cm := l.object(i, l.rv)
	cm.Data = map[string]string{"pad": strings.Repeat(fmt.Sprint(l.rv, " "), 15<<10/len(fmt.Sprint(l.rv, " ")))}
	return cm
}

func (l *logScope) change(c ...store.Change) {
	l.Helper()
	must(l.T, errors.Join(l.s.Apply(store.Batch{RV: fmt.Sprint(l.rv), Changes: c}), l.s.Flush(l.Context())))
}

// TestWipedWhileAllIsRead reads all of a log in parts. The scope is wiped and listed
// again while the first part is read, and changes as often. No state is that of another
// object, and what follows is not the other log.
func TestWipedWhileAllIsRead(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 64 << 20, Age: -1})
	l.putBig(0) // does not change again: what follows is looked through for it
	for n := range 230 {
		l.putBig(1 + n%19)
	}
	lineage, isWiped := l.history().Last.Lineage, false
	for e, err := range l.s.Follow(t.Context(), store.Place{}) {
		if errors.Is(err, store.ErrLineage) {
			return
		}
		must(t, err)
		if !isWiped {
			isWiped = true
			_, err := l.db.Wipe(nil)
			must(t, err)
			l.rv++
			r, err := l.s.Relist()
			must(t, err)
			for i := range 20 {
				must(t, r.Add(l.object(i, l.rv)))
			}
			for b, err := range r.Parts(fmt.Sprint(l.rv)) {
				must(t, errors.Join(err, l.s.Apply(b)))
			}
			must(t, errors.Join(r.Close(), l.s.Flush(t.Context())))
			l.putBig(0)
			for n := range 230 {
				l.putBig(1 + (n+7)%19)
			}
		}
		switch {
		case e.Mark != nil && e.Mark.Lineage != lineage:
			t.Fatalf("it goes on in the other log, at %d", e.Mark.Mark)
		case e.New != nil && (e.New.Header.Key != e.Key || e.New.IsKnown() && e.New.Header.RV != e.RV):
			t.Errorf("%s at %s was changed to %s of %s", e.Key, e.RV, e.New.Header.Key, e.New.Header.RV)
		}
	}
}

// TestTrimmedWhileReplacedIsRead reads all of a log in parts. What is kept of a trimmed
// part begins with an object that was replaced and departed, and was changed later.
func TestTrimmedWhileReplacedIsRead(t *testing.T) {
	l := newLogScope(t, store.History{Bytes: 4 << 20, Age: -1})
	l.putBig(0)         // does not change again
	for n := range 80 { // more than a part
		l.putBig(1 + n%5)
	}
	other := func(departs bool) {
		l.rv++
		cm := l.big(9)
		cm.UID = "other"
		l.change(store.Change{Object: cm, Departs: departs})
	}
	other(true)
	for range 90 { // more than a part of deletions that are held
		l.putBig(8)
		l.rv++
		rv := fmt.Sprint(l.rv)
		l.change(store.Change{Key: small.key(8), RV: rv, Departs: true})
	}
	other(false)
	l.putBig(1)
	last, isTrimmed := l.history().Last, false
	for e, err := range l.s.Follow(t.Context(), store.Place{}) {
		must(t, err)
		if !isTrimmed {
			isTrimmed = true
			for n := range 500 {
				l.putBig(1 + n%5)
			}
		}
		if e.Mark != nil && e.Mark.Mark >= last.Mark {
			return
		}
	}
}
