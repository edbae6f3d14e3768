package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// encodedVersion returns a state in the log.
func (s *fileScope) encodedVersion(v *store.Version) *Encoded {
	switch {
	case v == nil:
		return nil
	case !v.IsKnown():
		return &Encoded{}
	}
	return &Encoded{func() (runtime.Object, error) { return s.Decode(v.Entry) }}
}

func (s *fileScope) Changes(ctx context.Context, since time.Time, _ bool, head func(wire.HistoryHead)) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		state, err := s.History()
		if err != nil {
			yield(Change{}, err)
			return
		}
		head(wire.HistoryHead{Begins: state.Begins, Complete: state.Oldest.Time})
		for e, err := range s.Follow(ctx, store.Place{}) {
			if err != nil {
				yield(Change{}, err)
				return
			}
			if e.Mark != nil || e.Time.Before(since) {
				continue
			}
			if !yield(Change{e.Key, e.RV, e.Since, e.Time, s.encodedVersion(e.Old), s.encodedVersion(e.New)}, nil) {
				return
			}
		}
	}
}

// isInLog returns an *absentError that says where the log begins if a place is not in it.
func isInLog(s store.Store, scope store.Scope, at store.Place) error {
	_, err := s.Keys(store.Query{At: at, Limit: 1})
	state, stateErr := s.History()
	isAhead := errors.Is(err, store.ErrAhead)
	switch {
	case err == nil || stateErr != nil:
		return err
	case !isAhead && !errors.Is(err, store.ErrTrimmed):
		return err
	case isAhead:
		err = fmt.Errorf("%s is at resource version %s, %s is not reached", scope, s.Checkpoint().RV, momentText(at))
	case state.Oldest.IsZero():
		err = fmt.Errorf("%s has no log yet", scope)
	case !isBefore(at, state.Oldest):
		err = fmt.Errorf("%s: no state of %s was stored whole: it is inside what was written at once, or inside a list, or an object could not be stored then",
			scope, momentText(at))
	default:
		err = fmt.Errorf("%s: no state of %s is known; the log begins at %s, resource version %s",
			scope, momentText(at), FromThen(state.Oldest.Time), cmp.Or(state.Oldest.RV, cmdutil.NoValue))
	}
	return &absentError{err}
}

// infoThen returns the description of what is read: at an earlier moment, its own number
// of objects and its own checkpoint.
func (s *fileScope) infoThen() (info store.Info, err error) {
	info = s.info
	if s.at.IsZero() {
		return info, nil
	}
	keys, err := s.AllKeys()
	if err != nil {
		return info, err
	}
	info.Objects = len(keys)
	info.Checkpoint, err = s.checkpointThen()
	return info, err
}

// checkpointThen returns the last checkpoint up to s.at.
func (s *fileScope) checkpointThen() (store.Checkpoint, error) {
	state, err := s.History()
	if err != nil {
		return store.Checkpoint{}, err
	}
	var marks []store.Mark
	for e, err := range s.Follow(context.Background(), store.Place{}) {
		switch {
		case err != nil:
			return store.Checkpoint{}, err
		case e.Mark != nil && e.Mark.Mark == s.at.Mark && s.at.Exact():
			return store.Checkpoint{RV: e.Mark.RV, Time: e.Mark.Time}, nil
		case e.Mark != nil && e.Mark.Mark >= state.Oldest.Mark:
			marks = append(marks, *e.Mark)
		}
	}
	i, inside, err := store.FindMark(marks, s.Checkpoint().RV, s.at, true)
	if err != nil {
		return store.Checkpoint{}, err
	}
	then := store.Checkpoint{RV: marks[i].RV, Time: marks[i].Time}
	if !inside && s.at.RV != "" {
		then.RV = s.at.RV // nothing has changed from the mark on
	}
	return then, nil
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

type fileScope struct {
	store.Store
	path string
	info store.Info
	at   store.Place
}

// damaged returns an error for damage that the command found itself.
func (s *fileScope) damaged(format string, args ...any) error {
	return &store.CorruptionError{Path: s.path, Where: "scope " + s.info.Scope.String(), Err: fmt.Errorf(format, args...)}
}

func (s *fileScope) AllKeys() ([]string, error) {
	keys, err := s.Keys(store.Query{At: s.at})
	if err != nil {
		return nil, err
	}
	// Opening a read-only file does not check the whole file.
	if s.at.IsZero() && len(keys) != s.info.Objects {
		return nil, s.damaged("%d keys, not %d", len(keys), s.info.Objects)
	}
	return keys, nil
}

func (s *fileScope) ByIndex(name, value string) ([]string, error) {
	return s.Keys(store.Query{Index: name, Values: []string{value}, At: s.at})
}

func (s *fileScope) Labelled(selector labels.Selector) ([]string, error) {
	return s.Keys(store.Query{Selector: selector, At: s.at})
}

func (s *fileScope) Among(keys []string, selector labels.Selector) ([]string, error) {
	if !s.at.IsZero() {
		return s.Keys(store.Query{Keys: keys, Selector: selector, At: s.at})
	}
	return store.Among(s.Store, keys, selector)
}

// errLost indicates damage, because no process changes a file that is open for reading.
var errLost = fmt.Errorf("%w: a key without an object", store.ErrCorrupt)

func (s *fileScope) Fetch(keys []string, d Depth) ([]Encoded, error) {
	if !s.at.IsZero() {
		return s.fetchPast(keys)
	}
	out := make([]Encoded, len(keys))
	headers := map[string]store.Header{}
	if d == Header {
		found, err := s.HeadersOf(keys)
		if err != nil {
			return nil, err
		}
		for _, h := range found {
			headers[h.Key] = h
		}
	}
	err := parallel.Do(len(keys), func(i int) error {
		if h := headers[keys[i]]; !h.Created.IsZero() {
			out[i] = headerOnly(h)
			return nil
		}
		e, ok, err := s.Entry(keys[i])
		if err == nil && !ok {
			err = fmt.Errorf("%s %q: %w", s.info.Scope.Resource, keys[i], errLost)
		}
		out[i] = Encoded{func() (runtime.Object, error) { return s.Decode(e) }}
		return err
	})
	return out, err
}

// fetchPast returns the objects at s.at.
func (s *fileScope) fetchPast(keys []string) ([]Encoded, error) {
	entries, err := s.Select(store.Query{Keys: keys, At: s.at})
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]store.Entry, len(entries))
	for _, e := range entries {
		byKey[e.Key] = e
	}
	out := make([]Encoded, len(keys))
	for i, key := range keys {
		e, ok := byKey[key]
		if !ok {
			return nil, fmt.Errorf("%s %q: %w", s.info.Scope.Resource, key, errLost)
		}
		out[i] = Encoded{func() (runtime.Object, error) { return s.Decode(e) }}
	}
	return out, nil
}

func (s *fileScope) IndexValues(name string) (out []IndexValue, err error) {
	values, err := s.Values(name)
	if err != nil {
		return nil, err
	}
	for _, value := range values {
		keys, err := s.ByIndex(name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, IndexValue{value, len(keys)})
	}
	return out, nil
}
