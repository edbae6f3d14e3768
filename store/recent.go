package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"
)

// maxRecent is how many events Recent keeps. It drops the others when there are as many,
// because that copies those that it keeps.
const maxRecent = 8192

// Recent is a log in memory, for backends without a file. It keeps nothing until somebody
// follows it, because it holds the objects before each change. The zero value is ready.
// It may be used by several goroutines.
type Recent struct {
	mu       sync.Mutex
	follows  bool // somebody has followed
	ended    bool // End was called
	lineage  string
	dropped  uint64  // events before the first one that is kept
	events   []Event // those kept; each mark ends what one Note has brought
	rv       string  // of the content
	reached  string  // the highest one since the history was rewound
	above    string  // only higher resource versions are looked up: see Batch.Rewound
	listing  bool
	compared bool          // what is applied is of a list that is not the first
	asOf     time.Time     // when the content was last known to be current
	changed  chan struct{} // closed and replaced by each Note that brings something
}

// IsOn reports whether changes are to be noted.
func (r *Recent) IsOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.follows
}

// Start has changes noted from now on, as Follow does. A backend that asks IsOn before it
// applies a batch calls it while no batch is being applied.
func (r *Recent) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startLocked()
}

func (r *Recent) startLocked() {
	if !r.follows {
		r.follows, r.changed = true, make(chan struct{})
		r.beginLocked()
	}
}

// ListBegun notes that what is applied until the next resource version is what a list
// differs in from the content.
func (r *Recent) ListBegun() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.compared = true
}

// Note appends what an applied batch has changed, and its mark. rv is the resource
// version of the content after it. The caller notes batches in the order in which they
// are applied.
func (r *Recent) Note(b Batch, changes []Event, rv string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.rv
	hasLeft := rv == "" && r.leaveLocked()
	r.rv = rv
	if goesBack := rv != "" && Higher(r.reached, rv) != rv; b.Rewound || goesBack {
		r.above, r.reached = Higher(r.above, r.reached), ""
	}
	r.reached = Higher(r.reached, rv)
	listed := r.listing && b.RV != ""
	moves := r.rv != was
	now, since := time.Now(), time.Time{}
	if b.CatchUp || r.compared {
		if since = r.asOf.Round(0); since.After(now) { // the clock was set back since
			since = now
		}
	}
	switch {
	case b.RV != "" || b.Loaded:
		if r.listing, r.compared = false, false; !b.CatchUp {
			r.asOf = b.Checkpoint(Checkpoint{}).Time
		}
	case b.Reason != "":
		r.listing = true
	}
	if listed {
		was = "" // a list has led here, even if it has changed nothing
	}
	n := len(r.events)
	unfreezes := b.RV != "" && n > 0 && !r.events[n-1].Mark.IsReadable()
	switch {
	case !r.follows:
		return
	case b.Loaded || b.Rewound:
		r.beginLocked()
	case len(changes) == 0 && !listed && !unfreezes:
		if !hasLeft && !moves {
			return
		}
	default:
		for _, e := range changes {
			e.Since, e.Time = since, now
			r.events = append(r.events, e.Steps()...)
		}
		r.markLocked(Mark{FromRV: was, Frozen: b.RV == "" && rv != "", Listing: r.listing})
		if n := len(r.events) - maxRecent; n > maxRecent {
			r.events, r.dropped = slices.Clone(r.events[n:]), r.dropped+uint64(n)
		}
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// leaveLocked marks the resource version of the content if no mark has it, because a list
// begins: who is there can go on across the list. It reports whether it has.
func (r *Recent) leaveLocked() bool {
	if len(r.events) == 0 {
		return false
	}
	m := r.events[len(r.events)-1].Mark
	if !m.IsReadable() || Higher(r.rv, m.RV) == m.RV {
		return false
	}
	r.markLocked(Mark{FromRV: r.rv})
	return true
}

func (r *Recent) markLocked(m Mark) {
	m.Place = Place{
		Lineage: r.lineage, Mark: r.dropped + uint64(len(r.events)) + 1, Random: rand.Uint64(), RV: r.rv, Time: time.Now(),
	}
	r.events = append(r.events, Event{Time: m.Time, Mark: &m})
}

// End ends Follow with ErrLineage, for those that follow and later ones. It is called
// when another content takes the place of the noted one.
func (r *Recent) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended = true; r.follows {
		r.beginLocked()
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// beginLocked begins a new lineage.
func (r *Recent) beginLocked() {
	r.lineage = strconv.FormatUint(rand.Uint64(), 36)
	r.dropped += uint64(len(r.events))
	r.events = nil
	r.markLocked(Mark{Begins: true, Listing: r.listing})
}

// Follow implements Reader.Follow. closed ends it with ErrClosed.
func (r *Recent) Follow(ctx context.Context, p Place, closed <-chan struct{}) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		r.mu.Lock()
		r.startLocked()
		next, inside, err := r.findLocked(p, false)
		for errors.Is(err, ErrAhead) {
			changed := r.changed
			r.mu.Unlock()
			if waitErr := wait(ctx, changed, closed); waitErr != nil {
				yield(Event{}, fmt.Errorf("%w: %w", err, waitErr))
				return
			}
			r.mu.Lock()
			next, inside, err = r.findLocked(p, false)
		}
		lineage, insides := r.lineage, InsidesOf(p, inside, r.dropped+uint64(len(r.events)))
		r.mu.Unlock()
		for err == nil {
			r.mu.Lock()
			var events []Event
			switch at := int(next - r.dropped); {
			case lineage != r.lineage:
				err = ErrLineage
			case next < r.dropped:
				err = ErrTrimmed
			default:
				events = slices.Clone(r.events[at:])
			}
			changed := r.changed
			r.mu.Unlock()
			insides.Set(events)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if next += uint64(len(events)); err != nil {
				break
			}
			err = wait(ctx, changed, closed)
		}
		yield(Event{}, err)
	}
}

// wait waits for a Note.
func wait(ctx context.Context, changed, closed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return ErrClosed
	}
}

// findLocked returns the number of events before those that follow a place.
func (r *Recent) findLocked(p Place, readable bool) (next uint64, inside bool, err error) {
	switch {
	case r.ended:
		return 0, false, ErrLineage
	case p.IsZero():
		return r.dropped, false, nil
	case p.Exact() && p.Lineage != r.lineage:
		return 0, false, ErrLineage
	case p.Exact() && p.Mark <= r.dropped:
		return 0, false, ErrTrimmed
	}
	var marks []Mark
	for _, e := range r.events {
		if m := e.Mark; m != nil {
			if m.Mark == p.Mark && m.Random == p.Random && p.Exact() {
				if readable && (m.Frozen || m.Listing) {
					return 0, false, ErrTrimmed
				}
				return p.Mark, false, nil
			}
			marks = append(marks, *m)
		}
	}
	if p.Exact() {
		return 0, false, ErrLineage
	}
	if p.RV != "" && r.above != "" && Higher(p.RV, r.above) == r.above {
		return 0, false, ErrTrimmed
	}
	i, inside, err := FindMark(marks, r.rv, p, readable)
	if err != nil {
		return 0, false, err
	}
	return marks[i].Mark, inside, nil
}

// Before returns the states that objects had at a place, of those that were changed
// since; nil means that there was no object.
func (r *Recent) Before(p Place) (map[string]*Version, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, inside, err := r.findLocked(p, true)
	switch {
	case err != nil:
		return nil, err
	case inside:
		return nil, ErrTrimmed
	}
	before := map[string]*Version{}
	for _, e := range r.events[next-r.dropped:] {
		if _, earlier := before[e.Key]; !earlier && e.Mark == nil {
			before[e.Key] = e.Old
		}
	}
	return before, nil
}

// State describes what is kept.
func (r *Recent) State() LogState {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := LogState{Dropped: r.dropped, Above: r.above}
	for _, e := range r.events {
		if e.Mark == nil {
			s.Entries++
			continue
		}
		if s.Oldest.IsZero() {
			s.Oldest, s.Begins = e.Mark.Place, e.Time
		}
		s.SetLast(e.Mark, r.rv)
	}
	return s
}
