package store

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// History bounds the log of a scope: what was changed, with the states before. The zero
// value selects the defaults. Every value is valid.
type History struct {
	// Bytes bounds the encoded entries. Deletions that not every handler has received may
	// take twice as many. 0 means 32 MiB, and math.MaxInt64 means no bound but that of
	// the backend for all scopes together. A negative value keeps no log, but for
	// deletions that not every handler has received, with the bound of the default. A
	// backend that runs out of space keeps less.
	Bytes int64
	// Age bounds how much older than the newest change an entry gets. It does not run
	// while nothing changes, and the time between two processes counts only when the
	// second has run for as long. 0 means an hour, a negative value no bound.
	Age time.Duration
}

// noBound are more bytes than any log has. A backend may calculate with four times as
// many.
const noBound = math.MaxInt64 / 4

// Bounds returns the bounds with the defaults filled in. Zero bytes mean no log, and an
// age of zero means no bound.
func (h History) Bounds() (bytes int64, age time.Duration) {
	if bytes, age = min(max(h.Bytes, 0), noBound), max(h.Age, 0); h.Bytes == 0 {
		bytes = 32 << 20
	}
	if h.Age == 0 {
		age = time.Hour
	}
	return bytes, age
}

var (
	// ErrTrimmed indicates that the log no longer holds what followed a Place, or that
	// there is no state of the server at it: it is inside a list, for example. The caller
	// has to read the present state.
	ErrTrimmed = errors.New("store: the log does not reach back to there")

	// ErrAhead indicates a Place whose resource version is higher than that of what is
	// stored.
	ErrAhead = errors.New("store: the resource version is not reached yet")

	// ErrLineage indicates a Place of another history: the scope was wiped, lost or
	// dropped since, its server was restored to an earlier state, or its file is a copy
	// that has gone another way.
	ErrLineage = errors.New("store: a place of another history")
)

// Place is a moment of a scope: that of a mark in its log. A Place with only an RV means
// the mark with that resource version; if that is inside a commit, the mark before it. A
// Place with only a Time means the newest mark that is not after it. The zero Place is
// the beginning of the log for Follow, and now for a Query.
type Place struct {
	Lineage string // of the history: random, and another one after a loss
	Mark    uint64 // the number of the mark
	Random  uint64 // of the mark, because a restored copy of a file uses numbers again
	// RV is the resource version of the mark; "" if the scope had none. If the mark is
	// frozen, the content is newer.
	RV   string
	Time time.Time // of the commit
}

// IsZero reports whether nothing of the Place is set.
func (p Place) IsZero() bool { return p == Place{} }

// Exact reports whether the Place names a mark, so that nothing has to be looked for.
func (p Place) Exact() bool { return p.Lineage != "" }

// String returns what ParsePlace takes.
func (p Place) String() string {
	return p.Lineage + "." + strconv.FormatUint(p.Mark, 36) + "." + strconv.FormatUint(p.Random, 36)
}

// ParsePlace returns the Place that String has described, without its RV and Time.
func ParsePlace(s string) (Place, error) {
	parts := strings.Split(s, ".")
	if len(parts) == 3 && parts[0] != "" {
		mark, err := strconv.ParseUint(parts[1], 36, 64)
		random, err2 := strconv.ParseUint(parts[2], 36, 64)
		if errors.Join(err, err2) == nil {
			return Place{Lineage: parts[0], Mark: mark, Random: random}, nil
		}
	}
	return Place{}, fmt.Errorf("%q is not a place in a log, such as 5t3k8d2m.1c.zik0zj", s)
}

// Mark ends the changes of one commit.
type Mark struct {
	Place
	FromRV string // the resource version before the commit; "" if there was none
	// Begins means that the log begins here: what there was is not in it, as when a list
	// was loaded. Who follows reads what there is.
	Begins bool
	// Frozen means that the content is newer than RV, because something could not be
	// stored. Listing means that a list was being applied: the content equals no state of
	// the server. Neither can be read by resource version.
	Frozen, Listing bool
}

// IsReadable reports whether the content at the mark was the server's at its resource
// version.
func (m *Mark) IsReadable() bool { return m.RV != "" && !m.Frozen && !m.Listing }

// Version is a state of an object in the log.
type Version struct {
	Header Header
	Entry  Entry // without Object and Raw if the state is not known any more
}

// IsKnown reports whether the state itself is there, and not only its key.
func (v *Version) IsKnown() bool { return v.Entry.Object != nil || v.Entry.Raw != nil }

// Event is what Follow yields: a change of one object, or a mark. Changes of one object
// inside one commit are one change. An object that another one replaces is two events, a
// deletion and a creation.
type Event struct {
	Key string
	// Old and New are the states before and after; nil means that there was no object.
	Old, New *Version
	// of the change; "" if it is not known, as of a deletion found by a list
	RV string
	// Time is when the change was written. If Since is not zero, the change was made
	// between Since and Time, by which it was caught up on.
	Since, Time time.Time
	// Inside means that who follows from a resource version may have seen states between
	// Old and New: the version was inside this commit, or a list, which has no order, is
	// part of it.
	Inside bool
	// By is the state of another object that has taken the place of a deleted one.
	By *Version
	// Short is the last state of an object that was created and deleted inside one
	// commit; Old and New are nil then, and RV is that of the deletion. Where the commit
	// begins or ends with another object of the same name, the object need not be kept. A
	// deletion without Old and Short is of an object that the store has never held.
	Short *Version
	Mark  *Mark // of a mark, which has nothing else
}

// Steps returns the event or, if another object has replaced the one before, its deletion
// and the creation of the other one. Backends call it.
func (e Event) Steps() []Event {
	if e.Short != nil && e.New != nil {
		short, creation := e, e
		short.New, short.RV, short.By = nil, "", e.New
		creation.Short = nil
		return []Event{short, creation}
	}
	if e.Old == nil || e.New == nil || e.Old.Header.UID == e.New.Header.UID || e.Old.Header.UID == "" || e.New.Header.UID == "" {
		return []Event{e}
	}
	deletion, creation := e, e
	deletion.New, deletion.RV, deletion.By = nil, "", e.New
	creation.Old = nil
	return []Event{deletion, creation}
}

// LogState describes the log of a scope.
type LogState struct {
	// Oldest is the first Place that can be followed, Last the last one. Both are zero if
	// the log has no mark, Oldest also if what is there cannot be read.
	Oldest, Last Place
	// Newer means that what there is at Last is newer than its resource version: the mark
	// is frozen, or a list was being applied.
	Newer bool
	// Stored is the resource version up to which nothing has changed since Last, and up
	// to which everything is written. It equals Last.RV if Newer is set, and is "" if
	// Last has none. Follow from a Place with it leads across the next list.
	Stored string
	// Readable is the newest Place that a Query can read by its resource version: the
	// last mark for which Mark.IsReadable holds. It is zero if there is none.
	Readable Place
	// Above is the highest resource version that a history of the server had reached
	// which is no more; "" if there is none. A resource version up to it may be of
	// either. What was wiped, or is of another epoch of a file, counts as such a history
	// if the list after it has a lower resource version.
	Above string

	Begins  time.Time // of the oldest entry: deletions are kept longer than the rest
	Entries int
	Bytes   int64  // encoded
	Dropped uint64 // entries that the bounds have dropped
	// Unlogged counts the changes that the log has never had: a commit had more of them
	// than the log may hold, or there is no history. What a first list loads is no
	// change.
	Unlogged uint64
}

// SetLast sets Last and what follows from it, for backends. stored is the resource
// version of what is written, "" if there is none. SetLast reports whether the mark is
// readable; if not, it leaves Readable as it is.
func (s *LogState) SetLast(m *Mark, stored string) (isReadable bool) {
	s.Last, s.Newer, s.Stored = m.Place, m.Frozen || m.Listing, m.RV
	if isReadable = m.IsReadable(); isReadable {
		s.Readable = m.Place
		s.Stored = Higher(stored, m.RV)
	}
	return isReadable
}
