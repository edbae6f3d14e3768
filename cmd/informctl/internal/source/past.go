package source

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/store"
)

// isInLog returns an *absentError that says where the log begins if a place is not in it.
func isInLog(s store.Reader, scope store.Scope, at store.Place) error {
	_, err := s.Keys(store.Query{At: at, Limit: 1})
	state, stateErr := s.History()
	isAhead := errors.Is(err, store.ErrAhead)
	var begins time.Time
	switch {
	case err == nil || stateErr != nil:
		return err
	case !isAhead && !errors.Is(err, store.ErrTrimmed):
		return err
	case isAhead:
		err = fmt.Errorf("%s is at resource version %s, %s is not reached", scope, s.Checkpoint().RV, momentText(at))
	case HasNoHistory(state):
		err = fmt.Errorf("%s: %s", scope, NoHistory(scope))
	case state.Oldest.IsZero():
		err = fmt.Errorf("%s: no state of %s can be read: the beginning of the log is damaged; informctl verify says more", scope, momentText(at))
	case !isBefore(at, state.Oldest):
		err = fmt.Errorf("%s: no state of %s was stored whole: it is inside what was written at once, or inside a list, or an object could not be stored then",
			scope, momentText(at))
	default:
		begins = state.Oldest.Time
		err = fmt.Errorf("%s: no state of %s is known; the log begins at %s, resource version %s",
			scope, momentText(at), FromThen(state.Oldest.Time), cmp.Or(state.Oldest.RV, cmdutil.NoValue))
	}
	return &absentError{err, begins}
}

// describeThen makes the description that of the moment of the view, with its own number
// of objects and its own checkpoint.
func (v *View) describeThen() error {
	keys, err := v.Keys(store.Query{})
	if err != nil {
		return err
	}
	if v.Info.Encrypted && len(keys) > 0 { // without the key there are no names either
		if _, err := v.Select(store.Query{Keys: keys[:1], At: v.at}); err != nil {
			return err
		}
	}
	v.Info.Objects = len(keys)
	v.Info.Checkpoint, err = checkpointAt(v.Reader, v.at)
	return err
}

// HasNoHistory reports whether a log has nothing, since it has not begun or leaves out
// what changes.
func HasNoHistory(state store.LogState) bool {
	return state.Last.IsZero() || state.Entries == 0 && state.Unlogged > 0
}

// NoHistory says why a scope has no history.
func NoHistory(s store.Scope) string {
	if resources.IsFrequent(s.Resource) {
		return fmt.Sprintf("no history is kept of it; informctl run --history %s=24h keeps one", s.Resource)
	}
	return "there is no log yet"
}

// checkpointAt returns the last checkpoint up to a place.
func checkpointAt(s store.Reader, at store.Place) (store.Checkpoint, error) {
	m, inside, err := markAt(s, at)
	if err != nil {
		return store.Checkpoint{}, err
	}
	then := store.Checkpoint{RV: m.RV, Time: m.Time}
	if !inside && !at.Exact() && at.RV != "" {
		then.RV = at.RV // nothing has changed from the mark on
	}
	return then, nil
}

// markAt returns the mark with a state of the server that a place means, and whether the
// place is inside the commit after it.
func markAt(s store.Reader, at store.Place) (m store.Mark, inside bool, err error) {
	finder, ok := s.(store.MarkFinder)
	if !ok {
		return m, false, fmt.Errorf("%T has no past", s)
	}
	return finder.MarkAt(at, true)
}

// MarkAt returns the newest place with a state of the server that is not after a moment,
// with the resource version up to which nothing has changed there, as far as the moment
// goes. Where that is inside of what was written at once, it is the place before. If the
// moment is not reached, it is the newest place, and ahead says so.
func MarkAt(s store.Reader, scope store.Scope, at store.Place) (place store.Place, ahead, err error) {
	state, err := s.History()
	if err != nil {
		return place, nil, fmt.Errorf("%s: %w", scope, err)
	}
	m, inside, err := markAt(s, at)
	switch {
	case errors.Is(err, store.ErrAhead) && !state.Readable.IsZero():
		if place = state.Readable; place.Mark == state.Last.Mark {
			place.RV = state.Stored
		}
		return place, isInLog(s, scope, at), nil
	case err != nil:
		return place, nil, cmp.Or(isInLog(s, scope, at), fmt.Errorf("%s: %w", scope, err))
	}
	if place = m.Place; at.RV != "" && !inside {
		place.RV = at.RV
	}
	return place, nil, nil
}

// isBefore reports whether a moment is before a place.
func isBefore(at, place store.Place) bool {
	if at.RV == "" {
		return at.Time.Before(place.Time)
	}
	order, err := resourceversion.CompareResourceVersion(at.RV, place.RV)
	return err != nil || order < 0
}

func momentText(at store.Place) string {
	switch {
	case at.Exact():
		return at.String()
	case at.RV != "":
		return "resource version " + at.RV
	}
	return at.Time.Local().Format(time.RFC3339)
}

// FromThen returns the first moment from a time on that --at and --since take as it is
// written.
func FromThen(t time.Time) string {
	return t.Add(time.Second - 1).Truncate(time.Second).Local().Format(time.RFC3339)
}
