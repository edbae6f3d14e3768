package bolt

import (
	"errors"

	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/view"
)

// Select implements store.Store.
func (s *scopeStore) Select(q store.Query) ([]store.Entry, error) {
	s, err := s.reader()
	if err != nil {
		return nil, err
	}
	q.Selector = q.Matcher() // convert the selector only once
	if entries, ok := (memory{s}).entries(q); ok {
		return entries, nil
	}
	name, values := s.narrowest(q)
	return s.pick(q, name, values, s.opts.DecodedBytes < 0 && q.At.IsZero() && !q.Encoded)
}

// narrowest returns the index by which a query is answered, and the values in it; "" if
// all keys have to be looked at.
func (s *scopeStore) narrowest(q store.Query) (name string, values []string) {
	if q.Index == "" && q.Namespace == "" && q.Keys == nil && q.Limit <= 0 && q.At.IsZero() {
		return s.labelIndex(q.Selector)
	}
	return q.Index, q.Values
}

// labelIndex returns a stored index and the values in it that contain everything that a
// selector can match. It returns "" if there is no such index.
func (s *scopeStore) labelIndex(matcher labels.Selector) (name string, values []string) {
	s.mu.Lock()
	stored := s.indexes.Stored
	s.mu.Unlock()
	requirements, _ := matcher.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			idx := index.Label(r.Key())
			if there, ok := stored[idx.Name]; ok && there.Identity() == idx.Identity() {
				return idx.Name, r.ValuesUnsorted()
			}
		}
	}
	return "", nil
}

// pick answers a query by values of the named index, or by all keys if the name is "".
// keep is set if the caller will decode the whole answer: pick then decodes it and caches
// it, if all of it fits into the budget. A larger answer would only evict objects that
// other readers use.
func (s *scopeStore) pick(q store.Query, indexName string, values []string, keep bool) ([]store.Entry, error) {
	find, err := s.finder(indexName, values, !q.At.IsZero())
	if err != nil {
		return nil, err
	}
	if s.db.readOnly {
		// A missing entry has no checksum that could fail.
		if err := errors.Join(s.whyIncomplete(), s.checks.stored()); err != nil {
			return nil, err
		}
	}
	p, tickets := view.NewPicker(q, s.objects, find), (*objcache.Tickets)(nil)
	w := want{index: indexName, values: values, tickets: keep, at: q.At}
	err = s.readAs("objects", w, func(sn *snapshot) error {
		tickets = sn.Tickets
		return p.Select(&sn.Snapshot)
	})
	if err != nil && !q.At.IsZero() && s.isReplaced() {
		if s, err = s.reader(); err == nil {
			return s.pick(q, indexName, values, keep)
		}
	}
	if err == nil && q.At.IsZero() && !q.Encoded {
		s.objects.Lend(p.Entries, p.Hashes)
	}
	if err == nil && keep && s.objects.Fits(p.Entries) {
		err = s.keep(p, tickets)
	}
	if err != nil {
		return nil, err
	}
	return p.Entries, nil
}

// keep decodes the entries that are not decoded yet, and puts the objects that the cache
// does not have into it.
func (s *scopeStore) keep(p *view.Picker, tickets *objcache.Tickets) error {
	objects, err := store.DecodeAll[kruntime.Object](s, p.Entries)
	if err != nil {
		return err
	}
	for i, e := range p.Entries {
		if p.Hashes[i] == nil {
			continue
		}
		key, size, isKnown := record.FileKey(e.Key), record.RawSize(e.Raw), true
		if e.Object != nil { // a reader holds it
			_, size, isKnown = s.objects.Held(key, p.Hashes[i])
		}
		if isKnown {
			s.offer(key, objcache.Value{Object: objects[i], Encoded: size, Hash: p.Hashes[i]}, tickets.Of(key))
		}
		p.Entries[i] = store.Entry{Key: e.Key, Object: objects[i]}
	}
	return nil
}
