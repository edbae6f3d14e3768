package bolt

import (
	"errors"
	"fmt"
	"slices"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// opening is a scope while it is opened: what is stored of it is read, dropped if it is
// of no use, and given the indexes of the options. One goroutine has it. The committer
// may already use the scope.
type opening struct {
	*scopeStore
	old *scopeStore // that was opened before, and is closed; nil: none
}

// load reads what the file contains of the scope, drops it if it cannot be used, and
// builds missing indexes.
func (s opening) load() error {
	m, err := s.readOwnManifest()
	if err != nil {
		return err
	}
	if s.db.readOnly {
		if m == nil {
			return fmt.Errorf("%s: %w", s.scope, store.ErrNotFound)
		}
		s.locked(func(s *state) { s.opened(m) })
		s.useIndexes(m)
		err := s.fillIndexes()
		if errors.Is(err, store.ErrCorrupt) { // the rest can be read
			s.db.opts.Logger.Error(err, "Indexes cannot be made, reads by them return an error", "scope", s.scope.String())
			s.locked((*state).indexesDamaged)
			return nil
		}
		return err
	}
	if why := s.useless(m); why != "" {
		if s.old != nil {
			s.old.locked((*state).outdated)
			earlier := from(s.old, (*state).earlier)
			s.locked(func(s *state) { s.follows(earlier) })
		}
		switch {
		case m == nil:
			s.locked((*state).openedNone)
		case s.isReadable(m):
			s.locked(func(s *state) { s.openedUseless(m.Log) })
		default: // what has departed is dropped; its numbers are not used again
			s.locked((*state).openedNone)
			l := m.Log
			l.Settled = max(l.Departed, l.Settled)
			s.locked(func(s *state) { s.openedUseless(l) })
		}
		if err = s.startEmpty(m != nil || s.damaged, why); !mayGoOn(err) {
			return err
		}
		// A full disk must not keep the scope from being persisted later: the first write
		// creates its bucket.
		s.db.opts.Logger.Error(err, "Could not begin a scope, keeping it in memory until it can be written", "scope", s.scope.String())
		s.noBucket.Store(true)
		compares := m != nil && s.isReadable(m)
		s.locked(func(s *state) { s.begunInMemory(compares) })
		s.db.tell(false)
		return nil
	}
	s.locked(func(s *state) { s.opened(m) })
	if err := s.dropStaging(); mayGoOn(err) {
		s.db.opts.Logger.Error(err, "Could not drop what a list has left, the next one does", "scope", s.scope.String())
	} else if err != nil {
		return err
	}
	if err := s.reconcileIndexes(m); err != nil {
		return err
	}
	return s.fillIndexes()
}

// mayGoOn reports whether only a write failed, for example on a full disk, so that the
// stored state can still be read.
func mayGoOn(err error) bool {
	return err != nil && !boltfile.IsDamage(err) && !errors.Is(err, store.ErrClosed)
}

// useless returns why the stored state cannot be used, or "" if it can be used.
func (s opening) useless(m *record.Manifest) string {
	codec := s.opts.Codec
	switch {
	case m == nil:
		return "nothing stored yet"
	case s.damaged:
		return "it was damaged"
	case s.opts.Fresh:
		return "asked to start fresh"
	case !m.Complete:
		return "first list did not end"
	case m.Keys != s.seal.KeysID():
		return s.otherSeal(m)
	case s.seal != nil && m.Dictionaries.Count > 0:
		return "its dictionary is not encrypted"
	case codec != nil && (m.Codec != codec.Name() || m.Fingerprint != codec.Fingerprint()):
		return "object type changed"
	case m.Transform != s.opts.TransformVersion:
		return "transform changed"
	case s.db.opts.MaxAge > 0 && time.Since(m.Time).Abs() > s.db.opts.MaxAge:
		return "older than the maximum age"
	}
	return ""
}

// otherSeal returns why a scope cannot be used whose stored encryption differs from the
// requested one.
func (s opening) otherSeal(m *record.Manifest) string {
	why := "the key that it was encrypted with is lost"
	switch {
	case s.seal == nil:
		why = "it is encrypted and no key was given"
	case m.Keys == "":
		why = "it was stored without encryption"
	}
	if m.Keys == "" {
		s.db.opts.Logger.Info("Dropping what is stored of a scope", "scope", s.scope.String(), "because", why)
	} else { // the given keys may be the wrong ones
		s.db.opts.Logger.Error(nil, "Dropping what is stored of a scope", "scope", s.scope.String(), "because", why)
	}
	return why
}

// storedIndex returns an index of a file of which only its name and its identity are
// known. The function tells readers whether it is that of nodes; nothing is written with
// it.
func storedIndex(name, identity string) index.Index {
	if idx := index.NodeName(); identity == idx.Identity() {
		return idx
	}
	return index.Index{Name: name}
}

// reconcileIndexes changes the file's indexes to those of the options: it drops other
// indexes and builds missing and changed ones from the stored objects. If the disk is
// full, it keeps the latter in memory, and the next write drops their old entries from
// the file.
func (s opening) reconcileIndexes(m *record.Manifest) error {
	var drop, build []string
	for name, state := range m.Indexes {
		idx, wanted := s.indexes.Stored[name]
		if !wanted || state.Identity != idx.Identity() || !state.Ready {
			drop = append(drop, name)
		}
	}
	for name := range s.indexes.Stored {
		if _, there := m.Indexes[name]; !there || slices.Contains(drop, name) {
			build = append(build, name)
		}
	}
	if len(drop)+len(build) == 0 {
		return nil
	}
	err := s.db.update("indexes of "+s.scope.String(), func(tx *bbolt.Tx) error {
		w, err := s.writer(tx)
		if err != nil {
			return err
		}
		for _, name := range drop {
			if err := w.DropIndex(name); err != nil {
				return err
			}
		}
		s.sayDropped(drop)
		for _, name := range build {
			w.Manifest.Indexes[name] = record.IndexState{Identity: s.indexes.Stored[name].Identity()}
		}
		return w.End()
	})
	if err == nil && len(build) > 0 {
		err = s.buildIndexes(build)
	}
	if !mayGoOn(err) {
		return err
	}
	s.db.opts.Logger.Error(err, "Could not make indexes in the file, keeping them in memory until the next start", "scope", s.scope.String(), "indexes", build)
	next, built := s.indexes.Clone(), map[string]*indexes.Memory{}
	for _, name := range build {
		next.Volatile[name] = next.Stored[name].Func
		delete(next.Stored, name)
		built[name] = indexes.NewMemory()
	}
	s.locked(func(s *state) { s.indexesNotStored(next, built, append(drop, build...)) })
	s.db.tell(false)
	return nil
}

// useIndexes changes the scope's indexes to those of the file, which is only read, and
// those of the options. Of the latter, what the file does not have as it is asked for is
// kept in memory.
func (s opening) useIndexes(m *record.Manifest) {
	next, built := s.indexes.Clone(), map[string]*indexes.Memory{}
	for name, idx := range s.indexes.Stored {
		if there := m.Indexes[name]; !there.Ready || there.Identity != idx.Identity() {
			next.Volatile[name], built[name] = idx.Func, indexes.NewMemory()
			delete(next.Stored, name)
		}
	}
	for name, there := range m.Indexes {
		if there.Ready && !next.Has(name) {
			next.Stored[name] = storedIndex(name, there.Identity)
		}
	}
	s.locked(func(s *state) { _ = s.indexesBuilt(next, built) })
}

// sayDropped logs the indexes that are no longer requested, because queries by them
// worked before.
func (s opening) sayDropped(names []string) {
	for _, name := range names {
		if !s.indexes.Has(name) {
			s.db.opts.Logger.Info("Index is no longer kept", "index", name, "scope", s.scope.String())
		}
	}
}

// buildIndexes rewrites the headers and index entries of every object, in chunks, so that
// no user code runs inside a transaction. The indexes become ready with the last chunk;
// after a crash before that, the next start builds them again.
func (s opening) buildIndexes(names []string) error {
	losses, packer := from(s.scopeStore, (*state).countLosses), s.packer.Load()
	for after, more := "", true; more; {
		entries, err := s.scanAs(false, after, chunk)
		if err != nil {
			return err
		}
		prepared := make([]*overlay.Entry, 0, len(entries))
		for _, e := range entries {
			obj, err := s.Decode(e)
			if err != nil {
				return err
			}
			p, err := s.codec.Prepare(s.indexes, e.Key, obj, s.rejects(e.Key))
			if err != nil {
				return err
			}
			prepared = append(prepared, p)
			after = e.Key
		}
		more = len(entries) == chunk
		packed, err := packer.Pack(seal.InScope, prepared)
		if err != nil {
			return err
		}
		err = s.db.update("indexes of "+s.scope.String(), func(tx *bbolt.Tx) error {
			if from(s.scopeStore, (*state).countLosses) != losses {
				return nil // the next read returns the cause
			}
			w, err := s.writer(tx)
			if err != nil {
				return err
			}
			for i, p := range prepared {
				if err := w.Put(p, packed[i], w.Before(p.Key)); err != nil {
					return err
				}
			}
			if !more {
				for _, name := range names {
					state := w.Manifest.Indexes[name]
					state.Ready, state.Since = true, w.Manifest.Log.Last
					w.Manifest.Indexes[name] = state
				}
			}
			return w.End()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fillIndexes computes or reads the entries of the indexes in memory.
func (s opening) fillIndexes() error {
	if len(s.indexes.Volatile) > 0 {
		built, err := s.computeVolatile(s.indexes.Volatile, false, s.rejects)
		if err != nil {
			return err
		}
		// The error says that they are of lost content.
		s.locked(func(s *state) { _ = s.indexesBuilt(s.indexes, built) })
	}
	for name := range s.indexes.Stored {
		if !from(s.scopeStore, func(s *state) bool { return s.inMemory[name] != nil }) {
			continue
		}
		built := indexes.NewMemory()
		err := s.read("index "+name, func(sn *snapshot) error {
			if s.db.readOnly {
				if err := s.checks.index(&sn.Snapshot, name); err != nil {
					return err
				}
			}
			return sn.EachIndexed(name, built.Add)
		})
		if err != nil {
			return err
		}
		s.locked(func(s *state) { _ = s.indexesBuilt(s.indexes, map[string]*indexes.Memory{name: built}) })
	}
	return nil
}

// rejects returns a function that passes the errors of index functions to
// Options.Rejected.
func (s *scopeStore) rejects(key string) func(error) {
	return func(err error) {
		if s.opts.Rejected != nil {
			s.opts.Rejected(&store.ObjectError{Key: key, Err: err})
		}
	}
}
