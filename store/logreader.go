package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"
)

// LogFilter selects the changes of some objects. The zero value selects all.
type LogFilter struct {
	Namespace string   // "" means all; what has none is in each
	Names     []string // of objects; none means all
}

// IsZero reports whether all changes are selected.
func (f LogFilter) IsZero() bool { return f.Namespace == "" && len(f.Names) == 0 }

// Matches reports whether changes of an object are selected.
func (f LogFilter) Matches(key string) bool {
	if f.IsZero() {
		return true
	}
	namespace, name, isNamespaced := strings.Cut(key, "/")
	if !isNamespaced {
		namespace, name = "", key
	}
	return (f.Namespace == "" || namespace == "" || namespace == f.Namespace) && (len(f.Names) == 0 || slices.Contains(f.Names, name))
}

// LogFilterer is implemented by Readers that read the changes of some objects at less
// cost than those of all.
type LogFilterer interface {
	// FollowSome is Follow for the changes that f selects, and all marks.
	FollowSome(ctx context.Context, after Place, f LogFilter) iter.Seq2[Event, error]
}

// MarkFinder is implemented by Readers that find a mark without reading the whole log.
type MarkFinder interface {
	// MarkAt returns the mark that a Place means, and whether the Place is inside the
	// commit after it. readable asks for a mark whose content was a state of the server.
	// Errors: ErrTrimmed, also for the zero Place and where the log has to be read to
	// find out, ErrLineage and ErrAhead.
	MarkAt(p Place, readable bool) (m Mark, inside bool, err error)
}

// FollowSome is Follow for the changes that f selects, and all marks. Of a Reader that is
// no LogFilterer it reads all.
func FollowSome(ctx context.Context, r Reader, after Place, f LogFilter) iter.Seq2[Event, error] {
	if some, ok := r.(LogFilterer); ok {
		return some.FollowSome(ctx, after, f)
	}
	return func(yield func(Event, error) bool) {
		for e, err := range r.Follow(ctx, after) {
			if err == nil && e.Mark == nil && !f.Matches(e.Key) {
				continue
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// FollowSince yields the changes that f selects and that were written at or after a time,
// with the mark before them and those behind, or from the beginning of the log if that is
// later. It goes on as Follow, and ends with ErrTrimmed if the log is trimmed beyond what
// was yielded.
func FollowSince(ctx context.Context, r Reader, since time.Time, f LogFilter) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		late := func(e Event, err error) bool {
			return err == nil && e.Mark == nil && e.Time.Before(since) || yield(e, err)
		}
		take := late
		var from Place
		if finder, ok := r.(MarkFinder); ok && !since.IsZero() {
			if m, _, err := finder.MarkAt(Place{Time: since.Add(-1)}, false); err == nil {
				// Nothing may follow, and who reads up to a mark has to know.
				if from = m.Place; !yield(Event{Time: m.Time, Mark: &m}, nil) {
					return
				}
				// The clock may have been behind: what follows the mark is later,
				// whatever it says.
				take = yield
			}
		}
		begins := true
		for e, err := range FollowSome(ctx, r, from, f) {
			isGone := errors.Is(err, ErrTrimmed) || errors.Is(err, ErrLineage)
			if begins && isGone && !from.IsZero() { // it was trimmed or lost meanwhile
				FollowSome(ctx, r, Place{}, f)(late)
				return
			}
			if begins = false; !take(e, err) {
				return
			}
		}
	}
}
