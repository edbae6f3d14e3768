package mem

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// Object returns the object with a key.
func (s *lease) Object(key string) (obj runtime.Object, exists bool, err error) {
	st, err := s.view()
	if it, ok := st.objects.Get(key); ok {
		return it.object, true, nil
	}
	return nil, false, err
}

// Entry returns the object with a key.
func (s *lease) Entry(key string) (store.Entry, bool, error) {
	obj, ok, err := s.Object(key)
	if !ok {
		return store.Entry{}, false, err
	}
	return store.Entry{Key: key, Object: obj}, true, nil
}

// Objects returns the objects that match q.
func (s *lease) Objects(q store.Query) ([]runtime.Object, error) {
	return collect(s, q, func(it *item) runtime.Object { return it.object })
}

// Select returns the entries that match q.
func (s *lease) Select(q store.Query) ([]store.Entry, error) {
	return collect(s, q, func(it *item) store.Entry { return store.Entry{Key: it.key, Object: it.object} })
}

// Keys returns the keys of the objects that match q.
func (s *lease) Keys(q store.Query) ([]string, error) {
	return collect(s, q, func(it *item) string { return it.key })
}

// collect returns a value of each object that matches q.
func collect[T any](s *lease, q store.Query, value func(*item) T) ([]T, error) {
	matcher := q.Matcher()
	after, prefix := q.Range()
	st, err := s.at(q.At)
	if err != nil {
		return nil, err
	}
	var found []T
	var among map[string]bool
	if q.Keys != nil {
		among = make(map[string]bool, len(q.Keys))
		for _, key := range q.Keys {
			among[key] = true
		}
	}
	take := func(it *item) (more bool) {
		if among != nil && !among[it.key] {
			return true
		}
		if !strings.HasPrefix(it.key, prefix) {
			return false // the key is in the next namespace
		}
		if !matcher.Empty() {
			var m metav1.Object
			if m, err = meta.Accessor(it.object); err != nil {
				return false
			}
			if !matcher.Matches(labels.Set(m.GetLabels())) {
				return true
			}
		}
		found = append(found, value(it))
		return q.Limit <= 0 || len(found) < q.Limit
	}
	if q.Index == "" {
		if labels.MatchesNothing(matcher) {
			return nil, nil
		}
		if q.Keys != nil {
			for _, key := range slices.Compact(slices.Sorted(slices.Values(q.Keys))) {
				if it, ok := st.objects.Get(key); ok && key > after && !take(it) {
					break
				}
			}
			return found, err
		}
		if matcher.Empty() && prefix == "" && q.Limit <= 0 {
			found = make([]T, 0, st.objects.Len())
		}
		st.objects.Ascend(after, func(key string, it *item) bool { return key == after || take(it) })
		return found, err
	}
	ix, err := st.index(q.Index)
	if err != nil {
		return nil, err
	}
	for _, it := range ix.itemsOf(q.Values) {
		if it.key > after && !take(it) {
			break
		}
	}
	return found, err
}

// itemsOf returns the items with one of the index values, in key order.
func (ix inverted) itemsOf(values []string) []*item {
	if len(values) == 1 {
		return ix.items(values[0])
	}
	byKey := map[string]*item{}
	for _, value := range values {
		for _, it := range ix.items(value) {
			byKey[it.key] = it
		}
	}
	items := make([]*item, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		items = append(items, byKey[key])
	}
	return items
}

// Values returns the values of an index in order.
func (s *lease) Values(indexName string) ([]string, error) {
	st, err := s.view()
	if err != nil {
		return nil, err
	}
	ix, err := st.index(indexName)
	if err != nil {
		return nil, err
	}
	return ix.distinct(), nil
}

// Indexers returns the index functions in a map that the caller owns.
func (s *lease) Indexers() cache.Indexers {
	st, _ := s.view()
	return st.indexers()
}

func (st *state) indexers() cache.Indexers {
	indexers := make(cache.Indexers, len(st.inverted))
	for _, ix := range st.inverted {
		indexers[ix.name] = ix.fn
	}
	return indexers
}

// AddIndexes adds all index functions or, on an error, none. It calls them for the stored
// objects. Meanwhile other writers wait, and readers of the past.
func (s *lease) AddIndexes(newIndexers cache.Indexers) error {
	return s.update(func(next *state) error {
		for _, name := range slices.Sorted(maps.Keys(newIndexers)) {
			if _, err := next.index(name); err == nil {
				return fmt.Errorf("add index %q: %w", name, errTwice)
			}
			if newIndexers[name] == nil {
				return fmt.Errorf("add index %q: no function", name)
			}
			ix := fromFunc(name, newIndexers[name])
			ix.entries = newEntries()
			next.inverted = append(next.inverted, ix)
		}
		return next.extendAll()
	})
}
