package bolt

import (
	"bytes"
	"fmt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
)

// rewind makes a snapshot that of a place: what is in the file, and over it, in the place
// of pending entries, the state of each key before its first change after the place.
func (sn *snapshot) rewind(w want) error {
	if kept := sn.s.past.Load(); kept != nil && kept.at == w.at {
		sn.Overlay, sn.Length = kept.over, -1
		return sn.isIndexOlder(w.index, kept.from)
	}
	reader := sn.log()
	mark, inside, err := reader.MarkAt(w.at, true)
	from := mark.Mark + 1
	if err == nil && inside {
		err = store.ErrTrimmed // there never was such a state here
	}
	if err == nil {
		err = sn.isIndexOlder(w.index, from)
	}
	if err != nil {
		return err
	}
	if sn.Overlay, err = reader.Before(from); err != nil {
		return err
	}
	sn.Length = -1
	if sn.s.db.readOnly {
		sn.keepPast(w.at, from)
	}
	return nil
}

// past is what a snapshot of a place has over the file. It is kept for a file that nobody
// changes, since reading the log costs as much as reading thousands of objects.
type past struct {
	at   store.Place
	from uint64 // the first item of the log behind the place
	over overlay.View
}

// keepPast keeps copies, because what sn has is part of the file's memory.
func (sn *snapshot) keepPast(at store.Place, from uint64) {
	kept := overlay.NewView()
	sn.Overlay.Scan(func(e *overlay.Entry) bool {
		c := *e
		c.Payload.Bytes = bytes.Clone(c.Payload.Bytes)
		kept.Put(&c)
		return true
	})
	sn.s.past.Store(&past{at, from, kept})
}

// isIndexOlder returns an error if the entries of an index do not say what the index was
// like at an item of the log.
func (sn *snapshot) isIndexOlder(name string, number uint64) error {
	if sn.Scope == nil || name == "" {
		return nil
	}
	m, err := layout.ReadManifest(sn.s.id, sn.Scope)
	if err != nil {
		return sn.s.db.corrupt("scope "+sn.s.scope.String(), err)
	}
	if state, ok := m.Indexes[name]; !ok || state.Since >= number {
		return fmt.Errorf("index %q did not exist then, or has no entries in the file: %w", name, store.ErrNoIndex)
	}
	return nil
}
