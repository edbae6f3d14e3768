package bolt

import (
	"errors"
	"fmt"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Open implements store.Backend.
func (d *DB) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	scope, err := scope.Canonical()
	if err != nil {
		return nil, err
	}
	d.openMu.RLock()
	defer d.openMu.RUnlock()
	id := scope.ID()
	sealed, err := d.sealOf(scope)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	if err := d.file.Usable(); err != nil {
		d.mu.Unlock()
		return nil, err
	}
	if s := d.scopes[id]; s != nil && s.isLeased() && !d.readOnly {
		d.mu.Unlock()
		return nil, fmt.Errorf("%s: %w", scope, store.ErrInUse)
	}
	old := d.scopes[id]
	s, err := newStore(d, scope, sealed, opts)
	if err != nil {
		d.mu.Unlock()
		return nil, err
	}
	d.scopes[id] = s
	d.mu.Unlock()
	if old != nil {
		// The committer may be writing what old has left. It begins no further attempt.
		d.file.Lock()
		d.file.Unlock() //nolint:staticcheck // nothing is done under it
	}
	if err := s.load(old); err != nil {
		s.forgetLog()
		d.mu.Lock()
		if d.scopes[id] = old; old == nil {
			delete(d.scopes, id)
		}
		d.mu.Unlock()
		return nil, err
	}
	if old != nil {
		old.replaceBy(s)
	}
	return s, nil
}

// outdate makes reads return store.ErrClosed, because another store is about to drop what
// they have read so far. A walk would go on with what is listed next.
func (s *scopeStore) outdate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outdated()
}

// replaceBy discards what a closed store could not write, and makes its reads use next,
// the store that was opened in its place.
func (s *scopeStore) replaceBy(next *scopeStore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next.Store(next)
	s.replaced()
}

func newStore(d *DB, scope store.Scope, sealed *seal.Seal, opts store.Options) (*scopeStore, error) {
	s := &scopeStore{
		db: d, id: scope.ID(), scope: scope, opts: opts, seal: sealed,
	}
	s.state.init(&d.shared, opts)
	packer, err := s.newPacker()
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	s.packer.Store(packer)
	if d.readOnly {
		s.role = roleViewer
	}
	for _, idx := range opts.Indexes {
		if err := checkIndexName(idx.Name); err != nil {
			return nil, err
		}
		if idx.Func == nil {
			return nil, fmt.Errorf("index %q has no function", idx.Name)
		}
		if _, twice := s.indexes.Stored[idx.Name]; twice {
			return nil, fmt.Errorf("index %q is given twice", idx.Name)
		}
		s.indexes.Stored[idx.Name] = idx
	}
	for name, fn := range opts.Indexers {
		if fn == nil {
			return nil, fmt.Errorf("index %q has no function", name)
		}
		if _, twice := s.indexes.Stored[name]; twice {
			if index.IsNamespace(fn) && s.indexes.Stored[name].Identity() == index.Namespace().Identity() {
				continue
			}
			return nil, fmt.Errorf("index %q is given twice", name)
		}
		if index.IsNamespace(fn) && checkIndexName(name) == nil {
			idx := index.Namespace()
			idx.Name = name
			s.indexes.Stored[name] = idx
			continue
		}
		s.indexes.Volatile[name] = fn
		s.inMemory[name] = indexes.NewMemory()
	}
	if opts.DecodedBytes < 0 {
		for name := range s.indexes.Stored {
			s.inMemory[name] = indexes.NewMemory()
		}
	}
	if s.objects, err = objcache.New(opts); err != nil {
		return nil, fmt.Errorf("cache of decoded objects: %w", err)
	}
	return s, nil
}

// maxIndexName bounds the name of a stored index, in bytes. The name becomes the name of
// a bucket. bbolt rejects an empty bucket name and one of more than 32 KiB; the rejection
// would fail the next commit, which all scopes share.
const maxIndexName = 1 << 10

func checkIndexName(name string) error {
	switch {
	case name == "":
		return errors.New("an index whose entries are stored has no name")
	case len(name) > maxIndexName:
		return fmt.Errorf("an index whose entries are stored has a name of %d bytes, want %d at most", len(name), maxIndexName)
	}
	return nil
}

// load reads what the file contains of the scope, drops it if it cannot be used, and
// builds missing indexes.
func (s *scopeStore) load(old *scopeStore) error {
	m, err := s.readOwnManifest()
	if err != nil {
		return err
	}
	if s.db.readOnly {
		if m == nil {
			return fmt.Errorf("%s: %w", s.scope, store.ErrNotFound)
		}
		s.startDepartures(m.Log)
		s.startFrom(m)
		for name, state := range m.Indexes {
			if state.Ready {
				s.indexes.Stored[name] = index.Index{Name: name}
			}
		}
		return nil
	}
	if why := s.useless(m); why != "" {
		if old != nil {
			old.outdate()
		}
		switch {
		case m == nil:
			s.packing.Lost(nil)
		case s.isReadable(m):
			s.startDepartures(m.Log)
		default: // what has departed is dropped; its numbers are not used again
			s.packing.Lost(nil)
			l := m.Log
			l.Settled = max(l.Departed, l.Settled)
			s.startDepartures(l)
		}
		if err = s.startEmpty(m != nil, why); !mayGoOn(err) {
			return err
		}
		// A full disk must not keep the scope from being persisted later: the first write
		// creates its bucket.
		s.db.opts.Logger.Error(err, "Could not begin a scope, keeping it in memory until it can be written", "scope", s.scope.String())
		s.noBucket.Store(true)
		s.mu.Lock()
		s.departed.Compares = m != nil && s.isReadable(m)
		s.changelog.BegunInMemory()
		s.progress.changed() // the next commit drops the old bucket
		s.mu.Unlock()
		s.db.tell(false)
		return nil
	}
	s.startDepartures(m.Log) // first: a commit may trim the log from startFrom on
	s.startFrom(m)
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
	return err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrClosed)
}

// startFrom takes over the stored state. The committer may already use s.
func (s *scopeStore) startFrom(m *record.Manifest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened(m)
}

// startDepartures takes over the departed objects of an earlier process's log.
func (s *scopeStore) startDepartures(l record.LogState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.departed.Opened(l)
}

// dropStaging drops the staging bucket of a relist that did not end.
func (s *scopeStore) dropStaging() error {
	if s.needsBucket() {
		return nil
	}
	left := false
	where := "staging of " + s.scope.String()
	err := s.db.view(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		left = b != nil && b.Bucket(layout.Staging) != nil
		return nil
	})
	if err != nil || !left {
		return err
	}
	return s.db.update(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if b == nil || b.Bucket(layout.Staging) == nil {
			return nil // lost with the file meanwhile
		}
		return b.DeleteBucket(layout.Staging)
	})
}

func (s *scopeStore) readOwnManifest() (m *record.Manifest, err error) {
	err = s.db.view("manifest", func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if !s.db.readOnly && !s.db.isOfEpoch(tx) {
			b = nil // a file that was put here, from which nothing could be dropped yet
		}
		if b != nil {
			if m, err = layout.ReadManifest(s.id, b); err != nil {
				return s.db.corrupt("scope "+s.scope.String(), err)
			}
		}
		if err := s.packer.Load().Load(b); err != nil {
			return s.db.corrupt("dictionaries of "+s.scope.String(), err)
		}
		return nil
	})
	return m, err
}

// useless returns why the stored state cannot be used, or "" if it can be used.
func (s *scopeStore) useless(m *record.Manifest) string {
	codec := s.opts.Codec
	switch {
	case m == nil:
		return "nothing stored yet"
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

// startEmpty creates an empty bucket for the scope. If drop is set, it drops the old
// bucket first.
func (s *scopeStore) startEmpty(drop bool, why string) error {
	m := s.emptyManifest(why)
	s.mu.Lock()
	s.checkpoint = m.Checkpoint()
	s.mu.Unlock()
	err := s.db.update("scope "+s.scope.String(), func(tx *bbolt.Tx) error {
		if err := s.db.beginEpochIn(tx); err != nil {
			return err
		}
		return s.create(tx, m, drop)
	})
	if err == nil {
		s.setNoBucket(false)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changelog.Opened(m)
	}
	return err
}

// createFirst creates the bucket of a scope that has none yet, or one of an earlier
// process. If the bucket is in the file already, by a commit whose outcome was not known,
// it stays as it is.
func (s *scopeStore) createFirst(tx *bbolt.Tx, why string) error {
	if err := s.db.beginEpochIn(tx); err != nil { // the file may be another one now
		return err
	}
	if b := s.bucketIn(tx); b != nil {
		if m, err := layout.ReadManifest(s.id, b); err == nil && s.hasWritten(m) {
			return nil
		}
	}
	return s.create(tx, s.emptyManifest(why), true)
}

// create creates the scope's bucket. If drop is set, the scope may have one.
func (s *scopeStore) create(tx *bbolt.Tx, m *record.Manifest, drop bool) error {
	scopes, err := tx.CreateBucketIfNotExists(layout.Scopes)
	if err != nil {
		return err
	}
	b := scopes.Bucket([]byte(s.id))
	if b != nil && drop {
		was, err := layout.ReadManifest(s.id, b)
		switch {
		case err != nil: // nothing in it can be used
			err, b = scopes.DeleteBucket([]byte(s.id)), nil
		default:
			err = s.beginAgain(b, was, m)
		}
		if err != nil {
			return err
		}
	}
	if b == nil || !drop {
		if b, err = scopes.CreateBucket([]byte(s.id)); err != nil {
			return err
		}
	}
	if err := layout.CreateContent(b, m); err != nil {
		return err
	}
	if err := s.seal.Persist(tx); err != nil {
		return err
	}
	compares := b.Bucket(layout.Former) != nil
	tx.OnCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.departed.Compares = compares
	})
	return layout.WriteScopeTally(tx)
}

// hasWritten reports whether the log in the file ends with a commit of s whose outcome
// was not known.
func (s *scopeStore) hasWritten(m *record.Manifest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changelog.MayHaveWritten(m.Log)
}

// emptyManifest returns the manifest of a scope that has not been listed, with the
// reason.
func (s *scopeStore) emptyManifest(why string) *record.Manifest {
	m := record.NewManifest(s.scope)
	m.Transform, m.Keys = s.opts.TransformVersion, s.seal.KeysID()
	if s.opts.Codec != nil {
		m.Codec, m.Fingerprint = s.opts.Codec.Name(), s.opts.Codec.Fingerprint()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, idx := range s.indexes.Stored {
		m.Indexes[name] = record.IndexState{Identity: idx.Identity(), Ready: true}
	}
	m.SetCheckpoint(store.Checkpoint{Reason: why, Time: time.Now()})
	return m
}
