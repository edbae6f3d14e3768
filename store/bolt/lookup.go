package bolt

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
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
	q.Selector = q.Matcher() // convert the selector only once
	if objects, ok := s.objectsDecoded(q); ok {
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
	p, find, err := s.newPicker(q, q.Index, q.Values)
	if err != nil {
		return nil, err
	}
	// Without any other condition, the keys can be read without the headers, whose
	// checksums a reader's Open has not checked.
	whole := q.Keys == nil && p.matcher.Empty() && p.after == "" && p.prefix == "" && p.limit <= 0
	err = s.readAs("keys", want{index: q.Index, values: q.Values, at: q.At}, func(sn *snapshot) (err error) {
		switch {
		case whole && q.Index != "":
			keys, err = s.namedKeys(sn, find)
		case whole && !s.db.readOnly:
			if keys, err = sn.keys("", -1); err != nil {
				err = s.db.corrupt("scope "+s.scope.String(), err)
			}
		default:
			keys, err = p.keys(sn, find)
		}
		return err
	})
	if err == nil && whole && q.Index == "" && q.At.IsZero() {
		err = s.isWhole(len(keys))
	}
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// namedKeys returns the objects' own keys of what find finds.
func (s *scopeStore) namedKeys(sn *snapshot, find finder) ([]string, error) {
	keys, err := find(sn)
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		if keys[i], err = sn.name(key); err != nil {
			return nil, s.db.corrupt("header "+key, err)
		}
	}
	return keys, nil
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
		if err := s.verifyIndex(sn, indexName); err != nil {
			return err
		}
		values, err = s.indexValues(sn, indexName)
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

// finder returns the file keys of some values of one index, in order. nil: there is no
// index to ask.
type finder func(*snapshot) ([]string, error)

// past asks the file, since an index in memory is that of now.
func (s *scopeStore) finder(name string, values []string, past bool) (finder, error) {
	s.mu.Lock()
	_, isStored := s.indexes.Stored[name]
	inMemory := s.inMemory[name] != nil
	s.mu.Unlock()
	switch {
	case inMemory && !past:
		return func(sn *snapshot) ([]string, error) {
			slices.Sort(sn.found)
			return sn.found, nil
		}, nil
	case isStored:
		stored := make([]string, len(values))
		for i, value := range values {
			var err error
			if stored[i], err = s.seal.IndexValue(name, value); err != nil {
				return nil, err
			}
		}
		return func(sn *snapshot) ([]string, error) {
			if err := s.verifyIndex(sn, name); err != nil {
				return nil, err
			}
			if len(values) == 1 {
				return sn.indexKeys(name, values[0], stored[0]), nil
			}
			found := map[string]struct{}{}
			for i, value := range values {
				for _, key := range sn.indexKeys(name, value, stored[i]) {
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
