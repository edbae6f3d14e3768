package source

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

// Depth is the part of an object that is needed.
type Depth int

// The depths, each of which includes those before it.
const (
	Nothing Depth = iota // only its key
	Header               // namespace, name, UID, RV, creation: nothing is decoded
	Record               // the parts that the codec of the scope decodes
)

// Keys returns the keys that match q at the moment of the view, sorted.
func (v *View) Keys(q store.Query) ([]string, error) {
	q.At = v.at
	return v.Reader.Keys(q)
}

// Among returns those of the sorted keys that exist and whose labels match.
func (v *View) Among(keys []string, selector labels.Selector) ([]string, error) {
	if v.at.IsZero() {
		return store.Among(v.Reader, keys, selector)
	}
	return v.Keys(store.Query{Keys: keys, Selector: selector})
}

// KeysOf returns the keys that objects with the given names may have, sorted. Either all
// keys of a resource have a namespace or none has, as the first of them shows: to ask for
// a key that cannot be there makes a reader check all objects of a file.
func (v *View) KeysOf(namespace string, names []string) ([]string, error) {
	first, err := v.Reader.Keys(store.Query{Limit: 1})
	if err != nil {
		return nil, err
	}
	isThere := func(isNamespaced bool) bool {
		return len(first) == 0 || strings.Contains(first[0], "/") == isNamespaced
	}
	var keys []string
	for _, name := range names {
		if isThere(false) {
			keys = append(keys, name)
		}
		if isThere(true) {
			keys = append(keys, namespace+"/"+name)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// errLost indicates damage, because no process changes a file that is open for reading.
var errLost = fmt.Errorf("%w: a key without an object", store.ErrCorrupt)

// Fetch returns the objects of keys, in their order, with the parts that d says. An entry
// without an object is that of one that a process has deleted since its key was read.
func (v *View) Fetch(keys []string, d Depth) ([]store.Entry, error) {
	found := make(map[string]store.Entry, len(keys))
	left := keys
	if d == Header && v.at.IsZero() {
		headers, err := v.HeadersOf(keys)
		if err != nil {
			return nil, err
		}
		left = nil
		for _, h := range headers {
			if h.Created.IsZero() {
				left = append(left, h.Key)
				continue
			}
			found[h.Key] = headerOnly(h)
		}
	}
	entries, err := v.entries(left)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		found[e.Key] = e
	}
	out := make([]store.Entry, len(keys))
	for i, key := range keys {
		e, ok := found[key]
		if !ok && v.ofFile {
			return nil, v.lost(key)
		}
		out[i] = e
	}
	return out, nil
}

func (v *View) lost(key string) error {
	return fmt.Errorf("%s %q: %w", v.Info.Scope.Resource, key, errLost)
}

// entries returns the entries of keys. Select would check a whole scope of a file.
func (v *View) entries(keys []string) ([]store.Entry, error) {
	if len(keys) == 0 {
		return nil, nil // a Query without keys selects all
	}
	if !v.ofFile || !v.at.IsZero() {
		return v.Select(store.Query{Keys: keys, At: v.at})
	}
	entries := make([]store.Entry, len(keys))
	return entries, parallel.Do(len(keys), func(i int) error {
		e, ok, err := v.Entry(keys[i])
		if err == nil && !ok {
			err = v.lost(keys[i])
		}
		entries[i] = e
		return err
	})
}

// headerOnly returns an object that consists of its header.
func headerOnly(h store.Header) store.Entry {
	m := &metav1.PartialObjectMetadata{}
	m.Namespace, m.Name, _ = cache.SplitMetaNamespaceKey(h.Key)
	m.UID, m.ResourceVersion = types.UID(h.UID), h.RV
	m.CreationTimestamp = metav1.NewTime(h.Created)
	return store.Entry{Key: h.Key, Object: m}
}

// Changes yields the changes in the log that some selects and that are after a place or,
// if that is zero, were written at or after a time, and those that are written later if
// follow is set. state describes the log.
func (v *View) Changes(ctx context.Context, state store.LogState, after store.Place, since time.Time, some store.LogFilter, follow bool) iter.Seq2[store.Event, error] {
	var events iter.Seq2[store.Event, error]
	live, isLive := v.Reader.(*liveScope)
	switch {
	case !after.IsZero():
		events = store.FollowSome(ctx, v.Reader, after, some)
	case isLive:
		events = live.follow(ctx, after, since, some)
	default:
		events = store.FollowSince(ctx, v.Reader, since, some)
	}
	return func(yield func(store.Event, error) bool) {
		if !follow && !v.ofFile && state.Last.IsZero() {
			return // there would be no end
		}
		for e, err := range events {
			switch {
			case err != nil:
				yield(e, err)
				return
			case e.Mark != nil && state.Last.IsZero():
				continue // of a history that was rewound, and is not listed again yet
			case e.Mark != nil && !follow && e.Mark.Lineage != state.Last.Lineage:
				yield(e, store.ErrLineage) // its marks may never get so far
				return
			case e.Mark != nil && e.Mark.Mark >= state.Last.Mark && !follow:
				return
			case e.Mark != nil:
				continue
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// ChangesOf returns an event or, for an object that was created and deleted inside one
// commit, both changes.
func ChangesOf(e store.Event) []store.Event {
	if e.Short == nil {
		return []store.Event{e}
	}
	created, deleted := e, e
	created.New, created.RV, created.Short = e.Short, e.Short.Header.RV, nil
	deleted.Old, deleted.Short = e.Short, nil
	return []store.Event{created, deleted}
}
