package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// origin is the source of scopes: a file, or the process that holds it.
type origin interface {
	// openScope returns a scope. If c is not nil, it decodes the records in its format.
	openScope(info store.Info, c codec.Codec) (reader, error)
	Close() error
}

// reader is the interface through which commands read one scope. All keys that it returns
// are sorted. If a process is queried, its objects may change between two calls. A reader
// must be used from one goroutine, except encoded.decode.
type reader interface {
	all() ([]string, error)
	byIndex(name, value string) ([]string, error)
	labelled(labels.Selector) ([]string, error)
	// among returns those of the keys that exist and whose labels match.
	among(keys []string, selector labels.Selector) ([]string, error)
	// fetch returns the objects of keys, in their order. d defines which parts are
	// needed.
	fetch(keys []string, d depth) ([]encoded, error)
	// values returns the values of an index, sorted. Values of Secrets may be redacted.
	values(index string) ([]indexValue, error)
	// history yields the changes in the log that were written at or after a time, and
	// those that are written later if live is set. head is called before the first one.
	history(ctx context.Context, since time.Time, live bool, head func(wire.HistoryHead)) iter.Seq2[change, error]
}

// change is one change of an object. A state that is nil was not there.
type change struct {
	key, rv string
	// it was made between them; since is zero if it was made at time
	since, time time.Time
	old, new    *encoded
}

// encodedVersion returns a state in the log.
func (s *fileScope) encodedVersion(v *store.Version) *encoded {
	switch {
	case v == nil:
		return nil
	case !v.IsKnown():
		return &encoded{}
	}
	return &encoded{func() (runtime.Object, error) { return s.Decode(v.Entry) }}
}

func (s *fileScope) history(ctx context.Context, since time.Time, _ bool, head func(wire.HistoryHead)) iter.Seq2[change, error] {
	return func(yield func(change, error) bool) {
		state, err := s.History()
		if err != nil {
			yield(change{}, err)
			return
		}
		head(wire.HistoryHead{Begins: state.Begins, Complete: state.Oldest.Time})
		for e, err := range s.Follow(ctx, store.Place{}) {
			if err != nil {
				yield(change{}, err)
				return
			}
			if e.Mark != nil || e.Time.Before(since) {
				continue
			}
			if !yield(change{e.Key, e.RV, e.Since, e.Time, s.encodedVersion(e.Old), s.encodedVersion(e.New)}, nil) {
				return
			}
		}
	}
}

// depth is the part of an object that is needed.
type depth int

const (
	nothing depth = iota // only its key
	header               // namespace, name, UID, RV, creation: nothing is decoded
	record               // the parts that the codec of the scope decodes
)

// encoded is an object in its stored form.
type encoded struct {
	decode func() (runtime.Object, error) // nil: the object no longer exists
}

// headerOnly returns an object that is decoded from its header.
func headerOnly(h store.Header) encoded {
	return encoded{decode: func() (runtime.Object, error) {
		m := &metav1.PartialObjectMetadata{}
		m.Namespace, m.Name, _ = cache.SplitMetaNamespaceKey(h.Key)
		m.UID, m.ResourceVersion = types.UID(h.UID), h.RV
		m.CreationTimestamp = metav1.NewTime(h.Created)
		return m, nil
	}}
}

// indexValue is one value of an index.
type indexValue struct {
	Value string `json:"value"`
	Count int    `json:"count"` // number of objects with the value
}

// fileSource reads a file that no process writes.
type fileSource struct {
	*bolt.DB
	at store.Place // the moment to read; zero is now
}

func (f fileSource) openScope(info store.Info, c codec.Codec) (reader, error) {
	s, err := f.Open(info.Scope, store.Options{Codec: c})
	if err == nil && !f.at.IsZero() {
		err = isInLog(s, info.Scope, f.at)
	}
	return &fileScope{s, f.Path(), info, f.at}, err
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
			scope, momentText(at), fromThen(state.Oldest.Time), cmp.Or(state.Oldest.RV, cmdutil.NoValue))
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
	keys, err := s.all()
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

// fromThen returns the first moment from a time on that --at and --since take as it is
// written.
func fromThen(t time.Time) string {
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

func (s *fileScope) all() ([]string, error) {
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

func (s *fileScope) byIndex(name, value string) ([]string, error) {
	return s.Keys(store.Query{Index: name, Values: []string{value}, At: s.at})
}

func (s *fileScope) labelled(selector labels.Selector) ([]string, error) {
	return s.Keys(store.Query{Selector: selector, At: s.at})
}

func (s *fileScope) among(keys []string, selector labels.Selector) ([]string, error) {
	if !s.at.IsZero() {
		return s.Keys(store.Query{Keys: keys, Selector: selector, At: s.at})
	}
	return store.Among(s.Store, keys, selector)
}

// errLost indicates damage, because no process changes a file that is open for reading.
var errLost = fmt.Errorf("%w: a key without an object", store.ErrCorrupt)

func (s *fileScope) fetch(keys []string, d depth) ([]encoded, error) {
	if !s.at.IsZero() {
		return s.fetchPast(keys)
	}
	out := make([]encoded, len(keys))
	headers := map[string]store.Header{}
	if d == header {
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
		out[i] = encoded{func() (runtime.Object, error) { return s.Decode(e) }}
		return err
	})
	return out, err
}

// fetchPast returns the objects at s.at.
func (s *fileScope) fetchPast(keys []string) ([]encoded, error) {
	entries, err := s.Select(store.Query{Keys: keys, At: s.at})
	if err != nil {
		return nil, err
	}
	byKey := make(map[string]store.Entry, len(entries))
	for _, e := range entries {
		byKey[e.Key] = e
	}
	out := make([]encoded, len(keys))
	for i, key := range keys {
		e, ok := byKey[key]
		if !ok {
			return nil, fmt.Errorf("%s %q: %w", s.info.Scope.Resource, key, errLost)
		}
		out[i] = encoded{func() (runtime.Object, error) { return s.Decode(e) }}
	}
	return out, nil
}

func (s *fileScope) values(name string) (out []indexValue, err error) {
	values, err := s.Values(name)
	if err != nil {
		return nil, err
	}
	for _, value := range values {
		keys, err := s.byIndex(name, value)
		if err != nil {
			return nil, err
		}
		out = append(out, indexValue{value, len(keys)})
	}
	return out, nil
}

// fetch returns the objects of items, in their order. d defines which parts are needed.
func fetch(items []item, d depth) ([]encoded, error) {
	out := make([]encoded, len(items))
	at := map[*view][]int{}
	var views []*view
	for i, item := range items {
		if at[item.view] == nil {
			views = append(views, item.view)
		}
		at[item.view] = append(at[item.view], i)
	}
	for _, v := range views {
		keys := make([]string, 0, len(at[v]))
		for _, i := range at[v] {
			keys = append(keys, items[i].key())
		}
		found, err := v.fetch(keys, d)
		if err != nil {
			return nil, err
		}
		for n, i := range at[v] {
			out[i] = found[n]
		}
	}
	return out, nil
}

// part is a part of the items with their objects.
type part struct {
	items   []item
	objects []encoded
}

// inParts fetches items in chunks, so that memory does not grow with their number. It
// fetches the next chunk while the caller uses the current one. An error is the last
// element.
func inParts(items []item, d depth) iter.Seq2[part, error] {
	type answer struct {
		part
		err error
	}
	ask := func(items []item) chan answer {
		c := make(chan answer, 1)
		go func() {
			objects, err := fetch(items, d)
			c <- answer{part{items, objects}, err}
		}()
		return c
	}
	return func(yield func(part, error) bool) {
		var asked chan answer
		defer func() {
			if asked != nil {
				<-asked // the goroutine must end before the source is closed
			}
		}()
		size := chunk
		if d == header {
			size *= 4 // one query to a process
		}
		for next := range slices.Chunk(items, size) {
			previous := asked
			var a answer
			if previous != nil {
				a = <-previous
			}
			asked = ask(next)
			if previous != nil && (!yield(a.part, a.err) || a.err != nil) {
				return
			}
		}
		if asked != nil {
			a := <-asked
			asked = nil
			yield(a.part, a.err)
		}
	}
}
