// Package graveyard numbers the deletions that handlers which are added later still
// receive. They are entries of the log with a number of their own. Numbers ascend in the
// order in which the deletions were applied, and are never used again.
//
// Objects that every handler has received are returned until the scope is opened again,
// for handlers that are added later in this process.
package graveyard

import (
	"cmp"
	"slices"

	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// State is what an open scope has in memory of its departed objects. Its owner does the
// locking.
type State struct {
	Last    uint64 // the highest assigned number
	Settled uint64 // objects up to this number were delivered by an earlier process
	Told    uint64 // objects up to this number were delivered
	Kept    int    // objects in the file as of the last commit
	Dropped int    // objects that were not kept since the scope was opened
	// Gone are objects of the former content that have departed and are not in the file.
	// The slice is replaced, never changed.
	Gone []*overlay.Entry
	Hint Hint // where Departed goes on
	// Compares is set if the first list is compared with the former content.
	Compares bool
}

// Opened takes over the departed objects of an earlier process's log. It is called once:
// a log that begins anew later does not change which numbers are used, nor which objects
// handlers have received.
func (g *State) Opened(l record.LogState) {
	last := max(l.Departed, l.Settled)
	*g = State{Last: last, Settled: l.Settled, Told: l.Settled, Kept: int(last - l.Settled)}
}

// Applied assigns a number to an entry that departs. An entry that replaces an old one
// that departs and has not been written departs in its place, because the stored state of
// the key is the same. old is nil if nothing waits.
func (g *State) Applied(e, old *overlay.Entry) {
	switch {
	case e.Departing:
		g.Last++
		e.Departs, e.Departing = g.Last, false
		if old != nil && old.Head != nil {
			e.Before = old
		}
	case old != nil && old.Departs != 0:
		e.Departs, e.Before, e.Last = old.Departs, old.Before, old.Last
	}
}

// Joined numbers the objects of the former content that a first list does not have.
// dropped is how many of them are not kept.
func (g *State) Joined(gone []*overlay.Entry, dropped int) {
	for _, e := range gone {
		g.Last++
		e.Departs = g.Last
	}
	g.Gone = slices.Concat(g.Gone, gone)
	g.Dropped += dropped
}

// Committed takes over that the first of gone were written, and how many objects were
// added to the log and dropped from it. It reports whether the bound of the log has
// dropped objects for the first time.
func (g *State) Committed(gone, added, dropped int) (overflows bool) {
	g.Gone = g.Gone[gone:]
	g.Kept += added - dropped
	overflows = dropped > 0 && g.Dropped == 0
	g.Dropped += dropped
	return overflows
}

// Settle takes over that handlers have received all objects up to a number. It reports
// whether that is news.
func (g *State) Settle(number uint64) bool {
	told := max(min(number, g.Last), g.Settled)
	isNew := told != g.Told
	g.Told = told
	return isNew
}

// Lost counts what handlers have not received as dropped. Numbers are not used again.
func (g *State) Lost(error) {
	dropped := g.Dropped
	if g.Told < g.Last {
		dropped += g.Kept
	}
	*g = State{Last: g.Last, Settled: g.Last, Told: g.Last, Dropped: dropped}
}

// Hint is where the departed objects behind an answer are in the log. It saves reading
// the log again for each part of a long answer. It may be stale: what is not at a place
// any more is looked for again.
type Hint struct {
	After, UpTo uint64  // the objects with these numbers are in places
	Places      []Place // in the order of numbers
}

// Place is where a departed object is in the log.
type Place struct {
	Number uint64
	Block  uint64 // its key
}

// Behind returns the places of the first objects with a number above after, if they are
// known. last is the highest number in the log.
func (h Hint) Behind(after, last uint64, limit int) []Place {
	if h.After > after {
		return nil
	}
	i, _ := slices.BinarySearchFunc(h.Places, after+1, func(p Place, number uint64) int { return cmp.Compare(p.Number, number) })
	if len(h.Places)-i < limit && h.UpTo < last {
		return nil
	}
	return h.Places[i:min(i+limit, len(h.Places))]
}

// EndAfter forgets the places if p is the last one.
func (h *Hint) EndAfter(p Place) {
	if p == h.Places[len(h.Places)-1] {
		*h = Hint{}
	}
}
