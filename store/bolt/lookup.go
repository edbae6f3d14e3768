package bolt

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// Objects implements store.Store.
func (s *scopeStore) Objects(q store.Query) ([]runtime.Object, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	q.Selector, q.Encoded = q.Matcher(), false // convert the selector only once
	if objects, ok := (memory{s}).list(q); ok {
		return objects, nil
	}
	name, values := s.narrowest(q)
	entries, err := s.pick(q, name, values, q.At.IsZero())
	if err != nil {
		return nil, err
	}
	return store.DecodeAll[runtime.Object](s, entries)
}

// Keys implements store.Store.
func (s *scopeStore) Keys(q store.Query) (keys []string, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	if err := s.whyIncomplete(); err != nil {
		return nil, err
	}
	find, err := s.finder(q.Index, q.Values, !q.At.IsZero())
	if err != nil {
		return nil, err
	}
	p := view.NewPicker(q, s.objects, find)
	// Without any other condition, the keys can be read without the headers, whose
	// checksums a reader's Open has not checked.
	whole := q.Keys == nil && p.SelectsAll()
	err = s.readAs("keys", want{index: q.Index, values: q.Values, at: q.At}, func(sn *snapshot) (err error) {
		switch {
		case whole && q.Index != "":
			keys, err = sn.NamedKeys(find)
		case whole && !s.db.readOnly:
			if keys, err = sn.Keys("", -1); err != nil {
				err = s.db.corrupt("scope "+s.scope.String(), err)
			}
		default:
			keys, err = p.Keys(&sn.Snapshot)
		}
		return err
	})
	if err != nil && !q.At.IsZero() && s.isReplaced() {
		return s.Keys(q)
	}
	if err == nil && s.db.readOnly {
		err = s.checkKeys(q, whole, len(keys))
	}
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// checkKeys checks of a reader's file what an answer of Keys with n keys depends on: a
// missing header has no checksum that fails. whole means that nothing but an index of the
// query selects.
func (s *scopeStore) checkKeys(q store.Query, whole bool, n int) error {
	isNow := q.At.IsZero()
	switch {
	case q.Keys != nil:
		// A selector may have refused the others.
		if n == len(q.Keys) || !q.Matcher().Empty() {
			return nil
		}
	case whole && isNow && q.Index == "":
		return s.checks.all(n)
	case whole && isNow, q.Limit > 0 && n == q.Limit:
		return nil // an index is checked where it is read; more is another answer
	case isNow && q.Index == "" && q.Namespace == "" && q.After == "" && q.Limit <= 0:
		return nil // the walk over all headers has counted them
	}
	return s.checks.stored()
}

// Values implements store.Store.
func (s *scopeStore) Values(indexName string) (values []string, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	if s.db.isClosed() {
		return nil, store.ErrClosed
	}
	s.mu.Lock()
	_, isStored := s.indexes.Stored[indexName]
	m := s.inMemory[indexName]
	if err = cmp.Or(s.cause, s.whyIncompleteLocked()); err == nil && m != nil && !s.isLoading() {
		values = m.Values()
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		return values, nil
	case !isStored:
		return nil, s.noIndex(indexName)
	}
	err = s.read("index "+indexName, func(sn *snapshot) (err error) {
		if err := s.checks.index(&sn.Snapshot, indexName); err != nil {
			return err
		}
		values, err = sn.IndexValues(indexName)
		return err
	})
	return values, err
}

// whyIncomplete returns store.ErrIncomplete if the scope was opened read-only before its
// first list was complete.
func (s *scopeStore) whyIncomplete() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whyIncompleteLocked()
}

// finder returns what finds the keys of some values of an index, nil if the name is "".
// past asks the file, since an index in memory is that of now.
func (s *scopeStore) finder(name string, values []string, past bool) (view.Finder, error) {
	s.mu.Lock()
	_, isStored := s.indexes.Stored[name]
	inMemory := s.inMemory[name] != nil
	s.mu.Unlock()
	switch {
	case name == "":
		return nil, nil
	case inMemory && !past:
		return func(sn *view.Snapshot) ([]string, error) {
			slices.Sort(sn.Found)
			return sn.Found, nil
		}, nil
	case isStored:
		stored := make([]string, len(values))
		for i, value := range values {
			var err error
			if stored[i], err = s.seal.IndexValue(name, value); err != nil {
				return nil, err
			}
		}
		return func(sn *view.Snapshot) ([]string, error) {
			if err := s.checks.index(sn, name); err != nil {
				return nil, err
			}
			if len(values) == 1 {
				return sn.IndexKeys(name, values[0], stored[0]), nil
			}
			found := map[string]struct{}{}
			for i, value := range values {
				for _, key := range sn.IndexKeys(name, value, stored[i]) {
					found[key] = struct{}{}
				}
			}
			return sortedKeys(found), nil
		}, nil
	}
	return nil, s.noIndex(name)
}

func (s *scopeStore) noIndex(name string) error { return store.NoIndex(name, s.Indexers()) }

// Indexers implements store.Store.
func (s *scopeStore) Indexers() cache.Indexers {
	if open, err := s.reader(); err == nil {
		s = open
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.indexes.Indexers()
}
