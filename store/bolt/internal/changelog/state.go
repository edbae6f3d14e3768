// Package changelog writes the log of a scope: what each commit has changed, with the
// states before as they were stored. The committer alone writes it, in its transaction
// and in the order in which the changes were applied. The entries of one commit end in a
// mark. What a first list loads is not logged.
package changelog

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

const (
	// blockBytes is the size of a block. bbolt has two blocks at least on a page: with
	// this size, two of them fill eight pages of 4 KiB.
	blockBytes = 16 << 10
	// fillOfLog is how full the pages of the log are made, since blocks are appended.
	fillOfLog = 0.95
	// TrimBytes is how much a commit trims beyond what it has appended.
	TrimBytes = 1 << 20
)

// Sum is what the logs of all open scopes of a file have together.
type Sum struct {
	Bytes atomic.Int64
	// Max bounds bytes: above it, the largest logs are trimmed. It is set before any
	// scope is opened.
	Max int64
	// Exceeded is called when there are more. It must not wait.
	Exceeded func()
}

// State is what a scope has in memory of its log. Its owner does the locking.
type State struct {
	Sum      *Sum
	Unlogged bool // nothing but what departs is logged
	// Log is the log as of the last acknowledged commit: readers see nothing above its
	// Last.
	Log      record.LogState
	StoredRV string // of the checkpoint in that commit
	order    uint64 // of the last applied entry
	// Attempts are the commits of unknown outcome since the last acknowledged one.
	Attempts []Attempt
	marked   uint64    // lists that have a mark in the log
	held     uint64    // see trimLog
	least    untrimmed // the zero value is not known
	Moment
}

// Moment is what a commit has to know of the time of its capture.
type Moment struct {
	asOf    time.Time // when the content was last known to be current
	listing bool      // a list is being applied
	Lists   uint64    // lists that were applied since the scope was opened
	frozen  bool      // the content is not that of the checkpoint
	kept    bool      // frozen by an earlier process, until what it left is caught up on
	rewound bool      // a new lineage is due
	// with rewound: the highest resource version of the lineages before
	reached string
	Taken   Takeover
}

// Takeover says when the log of an earlier process was taken over, and the time of its
// newest mark, Unix nanoseconds.
type Takeover struct {
	at     time.Time // with the monotonic clock
	newest int64
}

// Now returns the time at which the entries of a log have their ages: that of its newest
// mark. The time between two processes does not count until one age after the log was
// taken over, since whoever was near its end before has to find its place. Neither does a
// step of the clock ahead.
func (t Takeover) Now(newest int64, age time.Duration) int64 {
	elapsed := time.Since(t.at)
	newest = min(newest, t.at.UnixNano()+int64(elapsed))
	if t.newest != 0 && elapsed < age {
		return min(newest, t.newest)
	}
	return newest
}

// Attempt is a commit that may be in the file.
type Attempt struct {
	Mark  uint64 // the random value of its mark
	order uint64 // entries up to it are in the log if the mark is
}

// NewLineage begins another history in a log. What is there stays, for a reader of all
// of it.
func NewLineage(l *record.LogState) {
	l.Lineage = strconv.FormatUint(rand.Uint64(), 36)
	l.Begin, l.Full = l.Last+1, l.Last
	l.Thinned = l.Bytes
	l.Mark = record.Mark{Time: l.Mark.Time}
}

// setMark makes a mark the last one of a log.
func setMark(l *record.LogState, m record.Mark) {
	if m.Begins {
		l.Ordered, l.Readable = l.Begin, ""
	} else if l.Ordered == 0 || m.Time < l.Mark.Time {
		l.Ordered = m.Number
	}
	if m.IsReadable() {
		if l.Readable == "" && store.Higher(l.Above, m.To) == m.To {
			l.Above = "" // what the history before has reached is before all that follows
		}
		order, err := resourceversion.CompareResourceVersion(l.Readable, m.To)
		if l.Readable != "" && (err != nil || order > 0) {
			l.Ordered = m.Number
			if err == nil { // the history went back, though nobody has said so
				l.Above = store.Higher(l.Above, l.Readable)
			}
		}
		l.Readable = m.To
	}
	l.Mark = m
}

// Carry takes over into a new manifest what has to outlive a dropped log: numbers are
// never used twice in a file, and resource versions of an earlier history stay known.
func Carry(m *record.Manifest, old record.LogState) {
	m.Log.Last = max(m.Log.Last, old.Last)
	m.Log.Departed = max(m.Log.Departed, old.Departed)
	m.Log.Settled = m.Log.Departed
	m.Log.Mark.Time = max(m.Log.Mark.Time, old.Mark.Time)
	m.Log.Above = store.Higher(m.Log.Above, old.Above)
	m.Log.Unlogged += old.Unlogged
}

// Opened takes over the log of a stored manifest.
func (s *State) Opened(m *record.Manifest) {
	l := m.Log
	s.SetLog(l, m.RV)
	s.Attempts = nil
	isFrozen := l.Mark.Frozen && l.Mark.Number > 0
	s.Moment = Moment{
		listing: l.Listing, asOf: m.Time, frozen: isFrozen, kept: isFrozen,
		Taken: Takeover{at: time.Now(), newest: l.Mark.Time},
	}
	s.marked, s.held, s.least = 0, 0, untrimmed{}
	if l.AsOf != 0 {
		s.asOf = time.Unix(0, l.AsOf)
	}
}

// Begun takes over the log of a content that begins anew. What an earlier history has
// reached is known, although no file may have it: it was lost.
func (s *State) Begun(m *record.Manifest) {
	rewound, reached := s.rewound, s.reached
	s.Opened(m)
	s.rewound, s.reached = rewound, reached
}

// Earlier returns what an earlier history has reached that no file may have; "" if there
// is none.
func (s *State) Earlier() string {
	if !s.rewound {
		return ""
	}
	return s.reached
}

// Follows takes over what Earlier returns of a store that was opened before.
func (s *State) Follows(earlier string) {
	if earlier != "" {
		s.rewound, s.reached = true, earlier
	}
}

// AppliedEntry gives an entry its place in the log, before it becomes pending.
func (s *State) AppliedEntry(e *overlay.Entry, b store.Batch) {
	s.order++
	e.Order = s.order
	if b.CatchUp || s.listing {
		e.Since = s.asOf
	}
}

// Replaces notes which waiting entry another one replaces, before that becomes pending. A
// deletion keeps the last state of an object that the file may never have: a commit that
// is being written may end in that the file has none. An object that is created again in
// the same commit takes the place of that state. old is nil if nothing waits, and stored
// reports whether the file has an object then.
func (s *State) Replaces(e, old *overlay.Entry, stored bool) {
	if e.Absent = !stored; old != nil {
		e.Absent = old.Absent
	}
	switch {
	case e.Departs != 0:
	case e.Head != nil || e.Order == 0 || s.Unlogged:
		e.Before = nil
	case e.Before != nil || old == nil:
	case old.Head != nil:
		e.Before = old
	default: // it was deleted already
		e.Before = old.Before
	}
}

// ListBegun notes that what is applied until the next checkpoint is of a list, unless
// that is loaded: there was nothing to compare it with.
func (s *State) ListBegun(isLoaded bool) { s.listing = s.listing || !isLoaded }

// BegunInMemory notes that the scope has begun without a log in the file.
func (s *State) BegunInMemory() { s.Taken = Takeover{at: time.Now()} }

// Attempted notes a commit before its outcome is known.
func (s *State) Attempted(a Attempt) { s.Attempts = append(s.Attempts, a) }

// MayHaveWritten reports whether a log in the file ends with a commit of unknown outcome.
func (s *State) MayHaveWritten(l record.LogState) bool {
	return l.Mark.Number > 0 && slices.ContainsFunc(s.Attempts, func(a Attempt) bool { return a.Mark == l.Mark.Random })
}

// Applied follows the checkpoint of an applied batch. rv is that before it.
func (s *State) Applied(b store.Batch, rv string) {
	switch {
	case b.RV != "" || b.Loaded:
		if s.listing || b.Loaded {
			s.Lists++
		}
		s.kept = s.kept && b.CatchUp && !s.listing && !b.Loaded
		s.listing, s.frozen = false, s.kept
		if !b.CatchUp {
			if s.asOf = b.Time; b.Time.IsZero() {
				s.asOf = time.Now()
			}
		}
	case b.Reason != "":
		s.frozen = true
		if b.Rewound {
			s.rewound, s.reached = true, store.Higher(s.reached, rv)
		}
	case len(b.Changes) > 0 && rv != "":
		s.frozen = true
	}
}

// Capture is what a commit has to know of the log.
type Capture struct {
	Attempts []Attempt // commits that may be in the file
	Marked   uint64    // lists that have a mark in the log
	Held     uint64    // see trimLog
	Order    uint64    // of the last entry
	Random   uint64    // of the mark
	Moment
}

// WithoutState returns what a commit has to know that writes a part of what was captured:
// its mark is no state of the server, as one within a list.
func (c Capture) WithoutState() Capture {
	c.listing = true
	return c
}

// Attempt returns what is noted of a commit that writes all that was captured.
func (c Capture) Attempt() Attempt { return Attempt{c.Random, c.Order} }

// Captured returns what the next commit has to know.
func (s *State) Captured() Capture {
	return Capture{Attempts: s.Attempts, Marked: s.marked, Held: s.held, Order: s.order, Random: rand.Uint64(), Moment: s.Moment}
}

// HasMoreThan reports whether the log has more bytes than its share, and may be trimmed.
func (s *State) HasMoreThan(share int64) bool {
	if s.Log.Bytes <= share {
		return false
	}
	return s.Log.Bytes != s.least.bytes || s.Log.Bytes > 2*share && share < s.least.share
}

// untrimmed is a log that could not be trimmed to its share, in bytes: the deletions in
// it are held up to twice the share.
type untrimmed struct{ bytes, share int64 }

// BoundOfDeletions returns the bytes of a log with this bound. Without a history it holds
// only deletions, and those have the bytes of the default.
func BoundOfDeletions(bound int64) int64 {
	if bound == 0 {
		bound, _ = store.History{}.Bounds()
	}
	return bound
}

// SetLog takes over the log of an acknowledged commit.
func (s *State) SetLog(l record.LogState, rv string) {
	s.Sum.Bytes.Add(l.Bytes - s.Log.Bytes)
	s.Log, s.StoredRV = l, rv
	if s.Sum.Bytes.Load() > s.Sum.Max {
		s.Sum.Exceeded()
	}
}

// Committed takes over the log that a commit has written with a checkpoint of rv, so that
// it has its share of the file's bytes.
func (s *State) Committed(c Capture, l record.LogState, rv string, share int64) {
	if s.least = (untrimmed{}); l.Last == s.Log.Last && l.Bytes == s.Log.Bytes && l.Bytes > share && c.Held == s.held {
		s.least = untrimmed{l.Bytes, share}
	}
	s.SetLog(l, rv)
	s.Attempts, s.marked, s.held = nil, c.Lists, c.Held
	s.rewound = s.rewound && !c.rewound
}

// Lost forgets the log. This history counts as an earlier one, and what it has reached
// stays known: the server may have another one now. A wipe may be made because of that, a
// file may be lost together with the server's, and a rewind that is found now cannot be
// noted any more. The first state in the new log ends that, if it is at or above it.
func (s *State) Lost(error) {
	above := store.Higher(s.reached, s.Log.Reached(s.StoredRV))
	s.SetLog(record.LogState{}, "")
	s.Attempts, s.Moment = nil, Moment{asOf: s.asOf, Taken: Takeover{at: time.Now()}, rewound: above != "", reached: above}
	s.marked, s.held, s.least = 0, 0, untrimmed{}
}

// ErrKey indicates damage: the key of a block is the number of its first entry.
var ErrKey = errors.New("a key is not a number")

// Key returns the key of the block that begins with a number.
func Key(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }
