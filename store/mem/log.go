package mem

import (
	"context"
	"iter"

	"github.com/informctl/informctl/store"
)

// Follow yields the changes since somebody has first followed the scope: before that,
// nothing is kept of them.
func (s *lease) Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error] {
	st, err := s.view()
	if err != nil {
		return func(yield func(store.Event, error) bool) { yield(store.Event{}, err) }
	}
	return func(yield func(store.Event, error) bool) {
		s.write.Lock() // a batch that is being applied may not be noted
		st.recent.Start()
		s.write.Unlock()
		st.recent.Follow(ctx, after, s.db.ended)(yield)
	}
}

// History describes what Follow keeps.
func (s *lease) History() (store.LogState, error) {
	st, err := s.view()
	return st.recent.State(), err
}

// event returns the event of a change that is about to be applied. it is nil for a
// deletion.
func (st *state) event(c store.Change, it *item) (e store.Event, err error) {
	e = store.Event{Key: keyOf(c, it), RV: c.RV}
	if it != nil {
		if e.New, err = version(it); err != nil {
			return e, err
		}
		e.RV = e.New.Header.RV
	}
	old, exists := st.objects.Get(e.Key)
	switch {
	case exists:
		e.Old, err = version(old)
	case it == nil && c.Short.Object != nil:
		e.Short, err = version(&item{key: c.Key, object: c.Short.Object})
	}
	return e, err
}

func version(it *item) (*store.Version, error) {
	h, err := store.HeaderOf(it.object)
	return &store.Version{Header: h, Entry: store.Entry{Key: it.key, Object: it.object}}, err
}

// at returns the state at a place.
func (s *lease) at(p store.Place) (*state, error) {
	st, err := s.view()
	if err != nil || p.IsZero() {
		return st, err
	}
	s.write.Lock() // the log ends with what the state has, and copying writes to it
	st = s.state.Load()
	before, err := st.recent.Before(p)
	past := st.copy()
	s.write.Unlock()
	if err != nil {
		return nil, err
	}
	for key, v := range before {
		if v == nil {
			past.delete(key)
			continue
		}
		it, err := past.extend(&item{key: key, object: v.Entry.Object})
		if err != nil {
			return nil, err
		}
		past.set(it)
	}
	return past, nil
}
