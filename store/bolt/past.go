package bolt

import (
	"bytes"
	"fmt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// rewind makes a snapshot that of a place: what is in the file, and over it, in the place
// of pending entries, the state of each key before its first change after the place.
func (s *scopeStore) rewind(sn *snapshot, w want) error {
	if kept := s.past.Load(); kept != nil && kept.at == w.at {
		sn.over, sn.length = kept.over, -1
		return s.isIndexOlder(sn, w.index, kept.from)
	}
	from, inside, err := s.findIn(sn, w.at, true)
	if err == nil && inside {
		err = store.ErrTrimmed // there never was such a state here
	}
	if err == nil {
		err = s.isIndexOlder(sn, w.index, from)
	}
	if err != nil {
		return err
	}
	full, err := s.full(sn)
	if err != nil {
		return err
	}
	if from <= full {
		return store.ErrTrimmed
	}
	sn.over, sn.length = overlay.NewView(), -1
	expect, gap := from, false
	var bad error
	err = s.eachBlock(sn, from, func(b *record.Block) bool {
		if b.Last() < from {
			return true
		}
		if gap = b.First() > expect; gap {
			return false
		}
		expect = b.Last() + 1
		for i := range b.Entries {
			e := &b.Entries[i]
			if e.Number < from || sn.over.Has(e.Key) {
				continue
			}
			was, err := s.stateBefore(e)
			if err != nil {
				bad = err
				return false
			}
			sn.over.Put(was)
		}
		return true
	})
	switch {
	case bad != nil:
		return bad
	case err != nil:
		return s.cutLog(err)
	case gap, expect <= sn.logged.Last:
		return store.ErrTrimmed
	}
	if s.db.readOnly {
		s.keepPast(sn, w.at, from)
	}
	return nil
}

// full returns the number above which the file has all items of the log. The file may be
// ahead of what is acknowledged.
func (s *scopeStore) full(sn *snapshot) (uint64, error) {
	if sn.scope == nil {
		return 0, nil
	}
	m, err := layout.ReadManifest(s.id, sn.scope)
	if err != nil {
		return 0, s.db.corrupt("scope "+s.scope.String(), err)
	}
	return m.Log.Full, nil
}

// past is what a snapshot of a place has over the file. It is kept for a file that nobody
// changes, since reading the log costs as much as reading thousands of objects.
type past struct {
	at   store.Place
	from uint64 // the first item of the log behind the place
	over overlay.View
}

// keepPast keeps copies, because what sn has is part of the file's memory.
func (s *scopeStore) keepPast(sn *snapshot, at store.Place, from uint64) {
	kept := overlay.NewView()
	sn.over.Scan(func(e *overlay.Entry) bool {
		c := *e
		c.Payload.Bytes = bytes.Clone(c.Payload.Bytes)
		kept.Put(&c)
		return true
	})
	s.past.Store(&past{at, from, kept})
}

// stateBefore returns the state before an entry of the log in the form of a pending one.
func (s *scopeStore) stateBefore(e *record.LogEntry) (*overlay.Entry, error) {
	was := &overlay.Entry{Key: e.Key, Name: e.OwnKey()}
	switch {
	case e.Kind&record.KindUnknown != 0:
		return nil, fmt.Errorf("%w: the state of %q is not known", store.ErrTrimmed, e.OwnKey())
	case e.Header == nil, e.Kind&record.KindShort != 0:
		return was, nil
	}
	head, err := s.seal.Header(seal.InScope, e.Key, e.Header)
	if err != nil {
		return nil, s.db.unreadable("header "+e.Key, err)
	}
	r, err := record.Decode(e.Key, e.Record)
	if err != nil {
		return nil, s.db.unreadable("object "+e.Key, err)
	}
	payload := r.Payload
	if r.DataKey != 0 {
		if payload, err = s.seal.AppendPayload(nil, seal.InScope, e.Key, r); err != nil {
			return nil, s.db.unreadable("object "+e.Key, err)
		}
	}
	was.Head, was.Payload, was.Codec = head, record.Packed{Dictionary: r.Dictionary, Bytes: payload}, r.Codec
	return was, nil
}

// isIndexOlder returns an error if the entries of an index do not say what the index was
// like at an item of the log.
func (s *scopeStore) isIndexOlder(sn *snapshot, name string, number uint64) error {
	if sn.scope == nil || name == "" {
		return nil
	}
	m, err := layout.ReadManifest(s.id, sn.scope)
	if err != nil {
		return s.db.corrupt("scope "+s.scope.String(), err)
	}
	if state, ok := m.Indexes[name]; !ok || state.Since >= number {
		return fmt.Errorf("index %q did not exist then, or has no entries in the file: %w", name, store.ErrNoIndex)
	}
	return nil
}
