package graveyard_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// TestNumbers applies random events. Every departure has a number of its own, above all
// earlier ones, also over losses and the next process; what is settled is what handlers
// have received and no more; and what is kept and dropped adds up.
func TestNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var g graveyard.State
	last, logged := uint64(0), 0
	var waiting *overlay.Entry
	for range 5000 {
		switch rng.IntN(8) {
		case 0: // a deletion, perhaps in the place of a state that was not written
			e := &overlay.Entry{Departing: true}
			g.Applied(e, waiting)
			if last++; e.Departs != last || e.Departing || e.Before != nil && e.Before != waiting {
				t.Fatalf("number %d, want %d", e.Departs, last)
			}
			waiting = e
		case 1: // the object is created again
			e := &overlay.Entry{Head: &record.Header{}}
			g.Applied(e, waiting)
			if waiting != nil && e.Departs != waiting.Departs {
				t.Fatalf("departs as %d in the place of %d", e.Departs, waiting.Departs)
			}
			waiting = e
		case 2:
			gone := []*overlay.Entry{{}, {}}
			g.Joined(gone, 0)
			last += 2
			if gone[0].Departs != last-1 || gone[1].Departs != last {
				t.Fatalf("numbers %d and %d, want %d at last", gone[0].Departs, gone[1].Departs, last)
			}
		case 3:
			gone := len(g.Gone)
			added := gone
			if waiting != nil && waiting.Departs != 0 {
				added++
			}
			dropped := 0
			if logged+added > 20 {
				dropped = logged + added - 20
			}
			g.Committed(gone, added, dropped)
			logged += added - dropped
			waiting = nil
		case 4:
			number := rng.Uint64N(last + 2)
			before := g.Told
			isNew := g.Settle(number)
			if g.Told > last || g.Told < g.Settled || isNew != (g.Told != before) {
				t.Fatalf("told %d of %d, settled %d, new %t", g.Told, last, g.Settled, isNew)
			}
		case 5:
			g.Lost(nil)
			was := g
			if g.Lost(nil); g.Dropped != was.Dropped || g.Last != was.Last {
				t.Fatalf("lost again: %+v, was %+v", g, was)
			}
			waiting, logged = nil, 0
		case 6: // the next process
			g.Opened(record.LogState{Departed: g.Last, Settled: g.Told})
			waiting, logged = nil, g.Kept
		}
		if g.Last != last || g.Kept < 0 || g.Kept != logged && g.Kept != int(g.Last-g.Settled) {
			t.Fatalf("%+v; want %d at last and %d in the log", g, last, logged)
		}
	}
}

// TestHint checks which places a hint gives for a part of an answer.
func TestHint(t *testing.T) {
	h := graveyard.Hint{After: 2, UpTo: 6, Places: []graveyard.Place{{Number: 3, Block: 30}, {Number: 5, Block: 30}, {Number: 6, Block: 60}}}
	for _, test := range []struct {
		after, last uint64
		limit       int
		want        []graveyard.Place
	}{
		{2, 6, 2, h.Places[:2]},
		{3, 6, 2, h.Places[1:]},
		{3, 6, 9, h.Places[1:]}, // there are no more
		{3, 7, 2, h.Places[1:]}, // there is another one, behind this part
		{3, 7, 3, nil},          // which this part needs
		{1, 6, 2, nil},          // those before it are not known
		{6, 6, 2, nil},
	} {
		if got := h.Behind(test.after, test.last, test.limit); !slices.Equal(got, test.want) {
			t.Errorf("behind %d of %d, at most %d: %v, want %v", test.after, test.last, test.limit, got, test.want)
		}
	}
	h.EndAfter(h.Places[1])
	if len(h.Places) != 3 {
		t.Error("forgotten before its end")
	}
	if h.EndAfter(h.Places[2]); h.Places != nil {
		t.Error("not forgotten at its end")
	}
}
