package bolt

import (
	"errors"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
)

// Prepare implements store.Store.
func (s *scopeStore) Prepare(b *store.Batch) error {
	s.mu.Lock()
	indexes := s.indexes
	s.mu.Unlock()
	var errs []error
	kept := b.Changes[:0]
	for _, c := range b.Changes {
		if e, ok := c.Prepared.(*overlay.Entry); !ok || e.Indexes != indexes || e.Applied {
			e, err := s.codec.PrepareChange(indexes, c)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			c.Key, c.Prepared = e.Name, e
		} else {
			e.Departing = c.Departs
		}
		kept = append(kept, c)
	}
	b.Changes = kept
	return errors.Join(errs...)
}

// Apply implements store.Store.
func (s *scopeStore) Apply(b store.Batch) error {
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	return s.applyBatch(b)
}

// applyBatch applies a batch. The caller must hold writerMu.
func (s *scopeStore) applyBatch(b store.Batch) error {
	want := len(b.Changes)
	b.Changes = append([]store.Change(nil), b.Changes...)
	if err := s.Prepare(&b); err != nil || len(b.Changes) != want {
		return err
	}
	entries := make([]*overlay.Entry, len(b.Changes))
	for i, c := range b.Changes {
		entries[i] = c.Prepared.(*overlay.Entry)
	}
	var loaded loadedList
	if b.Loaded {
		var err error
		if loaded, err = s.loadedList(); err != nil {
			return err
		}
	}
	existed, known := s.existed(b.Before, entries)
	if err := s.insert(b, entries, loaded, existed, known); err != nil {
		return err
	}
	s.db.noteWaiting()
	return nil
}

// insert makes prepared entries visible, and what a first list has left. The caller must
// hold writerMu.
func (s *scopeStore) insert(b store.Batch, entries []*overlay.Entry, loaded loadedList, existed []bool, known bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.role != roleWriter {
		return store.ErrClosed
	}
	if s.cause != nil && (!b.Loaded || s.relist == nil || s.relist.lost != nil) {
		return s.cause
	}
	s.applied(b, entries, loaded, existed, known)
	// A first list is committed at once: its resource version becomes a place in the log
	// before changes follow, and what is left of it may need a dictionary, which takes
	// time. Short lists share a commit, because a process may have hundreds of them.
	long := b.Loaded && s.length >= codec.MinSamples
	s.db.tell((s.overlay.Bytes() >= s.db.opts.CommitBytes || long) && s.commitErr == nil)
	return nil
}

// existed is whichExist, for a batch that may know it. The caller must hold writerMu.
func (s *scopeStore) existed(before store.Before, entries []*overlay.Entry) (existed []bool, known bool) {
	m, _ := before.Moment.(*moment)
	s.locked(func(s *state) { existed, known = s.existedAt(m, entries) })
	if known {
		return existed, true
	}
	return s.whichExist(entries)
}

// whichExist reports which entries have stored objects. The caller must hold writerMu,
// else the answer could change. If the file cannot be read, it reports that all exist and
// that known is false: then Len is not exact, but no change is lost.
func (s *scopeStore) whichExist(entries []*overlay.Entry) (existed []bool, known bool) {
	existed = make([]bool, len(entries))
	if len(entries) == 0 {
		return existed, true
	}
	err := s.readAs("headers", want{beside: true}, func(sn *snapshot) error {
		for i, e := range entries {
			existed[i] = sn.Exists(e.Key)
		}
		return nil
	})
	if err != nil {
		for i := range existed {
			existed[i] = true
		}
	}
	return existed, err == nil
}
