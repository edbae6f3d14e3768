package bolt_test

import (
	"math/rand/v2"
	"testing"
	"time"

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
