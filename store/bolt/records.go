package bolt

import (
	"fmt"
	"math"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

var (
	_ store.Recorder  = (*scopeStore)(nil)
	_ store.Payloader = (*scopeStore)(nil)
	_ store.Viewer    = (*DB)(nil)
)

// Records implements store.Recorder.
func (s *scopeStore) Records(keys []string) (out store.Records, err error) {
	if s, err = s.reader(); err != nil {
		return out, err
	}
	out.Records = make([]store.Record, 0, len(keys))
	err = s.read("objects", func(sn *snapshot) error {
		for _, key := range keys {
			e, ok, err := sn.Raw(record.FileKey(key))
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			id, compressed, payload, err := record.ParseRaw(e.Raw)
			if err != nil {
				return s.db.corrupt("object "+key, err)
			}
			out.Records = append(out.Records, store.Record{
				Key: key, Codec: id, Dictionary: compressed, Payload: payload, Bytes: len(e.Raw),
			})
		}
		return nil
	})
	if err != nil {
		return store.Records{}, err
	}
	known := s.packer.Load()
	out.Dictionaries = map[uint64][]byte{}
	for _, r := range out.Records {
		if r.Dictionary == dictionary.None {
			continue
		}
		var exists bool
		if out.Dictionaries[r.Dictionary], exists = known.Dictionary(r.Dictionary); !exists {
			return store.Records{}, s.db.corrupt("object "+r.Key, fmt.Errorf("dictionary %d is missing", r.Dictionary))
		}
	}
	return out, nil
}

// isLost reports whether the stored content was wiped or was lost with the file.
func (s *scopeStore) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause != nil
}

// View implements store.Viewer.
func (d *DB) View(id string) (store.Store, store.Scope, error) {
	d.openMu.RLock() // a wipe removes scopes and takes the lock of keys
	defer d.openMu.RUnlock()
	if err := d.file.Usable(); err != nil {
		return nil, store.Scope{}, err
	}
	known := d.loadedScope(id)
	if known != nil && (known.isLeased() || !known.isLost()) {
		return known, known.scope, nil
	}
	var m *record.Manifest
	err := d.view("manifest", func(tx *bbolt.Tx) (err error) {
		if b := layout.Scope(tx, id); b != nil {
			if m, err = layout.ReadManifest(id, b); err != nil {
				return d.corrupt("scope "+id, err)
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, store.Scope{}, err
	case m == nil:
		return nil, store.Scope{}, fmt.Errorf("%s: %w", id, store.ErrNotFound)
	}
	sealed, err := d.readersSeal(m)
	if err != nil {
		return nil, store.Scope{}, err
	}
	s, err := newStore(d, m.Scope(), sealed, store.Options{History: d.opts.History})
	if err != nil {
		return nil, store.Scope{}, err
	}
	s.role = roleViewer
	for name, state := range m.Indexes {
		if state.Ready {
			s.indexes.Stored[name] = storedIndex(name, state.Identity)
		}
	}
	// Read the manifest again, because the file may have changed meanwhile.
	if m, err = s.readOwnManifest(); err != nil {
		return nil, store.Scope{}, err
	}
	if m == nil {
		return nil, store.Scope{}, fmt.Errorf("%s: %w", id, store.ErrNotFound)
	}
	// Without its key it is not kept: the next View asks for the key again.
	isKept := sealed == nil || sealed.Err() == nil
	if !isKept {
		s.changelog.Sum = &changelog.Sum{Max: math.MaxInt64}
	}
	d.mu.Lock()
	isFirst := d.scopes[id] == nil || d.scopes[id] == known
	if isFirst {
		s.locked(func(s *state) { s.opened(m) })
		if isKept {
			d.scopes[id] = s
		}
	}
	d.mu.Unlock()
	if !isFirst {
		if s = d.loadedScope(id); s == nil {
			return nil, store.Scope{}, fmt.Errorf("%s: %w", id, store.ErrNotFound)
		}
	}
	return s, s.scope, nil
}

// loadedScope returns the store of a scope, nil if there is none. It waits for one that
// is being opened, which answers no reads yet.
func (d *DB) loadedScope(id string) *scopeStore {
	for {
		d.mu.Lock()
		s := d.scopes[id]
		d.mu.Unlock()
		if s == nil || s.loaded == nil {
			return s
		}
		select {
		case <-s.loaded:
			return s
		default:
			<-s.loaded // it may have failed
		}
	}
}
