package bolt

import (
	"errors"
	"fmt"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/objcodec"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// maxMends bounds how often Open mends a file: its handle may be missing, then the scope
// may be damaged, and then what has to be read to drop it (twice, until another file
// takes its place: see boltfile.File.Update).
const maxMends = 4

// Open implements store.Backend. A scope whose stored content is damaged begins empty, as
// one that the file does not have.
func (d *DB) Open(scope store.Scope, opts store.Options) (store.Store, error) {
	scope, err := scope.Canonical()
	if err != nil {
		return nil, err
	}
	if opts.History == (store.History{}) {
		opts.History = d.opts.History
	}
	d.openMu.RLock()
	defer d.openMu.RUnlock()
	_ = d.file.Retry() // else what fails for want of a handle would not be tried again
	s, err := d.openOnce(scope, opts, false)
	isDamaged := false
	for mends := 0; err != nil && mends < maxMends && d.mend(scope, err, isDamaged); mends++ {
		isDamaged = isDamaged || boltfile.IsDamage(err)
		s, err = d.openOnce(scope, opts, isDamaged)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// mend reports whether a scope that could not be opened may be tried again. isDamaged
// says that the last attempt has used nothing of what is stored of it.
func (d *DB) mend(scope store.Scope, err error, isDamaged bool) bool {
	switch {
	case d.readOnly:
		return false
	case errors.Is(err, boltfile.ErrNoHandle):
		// If it fails, the next attempt says so.
		_ = d.update("open again", func(*bbolt.Tx) error { return nil })
		return true
	case boltfile.IsDamage(err) && isDamaged:
		d.file.Lock()
		defer d.file.Unlock()
		if _, err := d.manifestOf(scope, true); boltfile.IsDamage(err) {
			return d.file.Reopen(true, err) == nil
		}
		return true
	case boltfile.IsDamage(err):
		d.opts.Logger.Error(err, "Dropping what is stored of a scope", "scope", scope.String(), "because", "it is damaged")
		return true
	}
	return false
}

// openOnce opens a scope. If what is stored is damaged, the scope begins empty.
func (d *DB) openOnce(scope store.Scope, opts store.Options, isDamaged bool) (*scopeStore, error) {
	id := scope.ID()
	sealed, err := d.sealOf(scope, isDamaged)
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
	s.damaged, s.loaded = isDamaged, make(chan struct{})
	defer close(s.loaded)
	d.scopes[id] = s
	d.mu.Unlock()
	if old != nil {
		// The committer may be writing what old has left. It begins no further attempt.
		d.file.Lock()
		d.file.Unlock() //nolint:staticcheck // nothing is done under it
	}
	if err := (opening{s, old}).load(); err != nil {
		s.locked((*state).dropLog)
		d.mu.Lock()
		if d.scopes[id] = old; old == nil {
			delete(d.scopes, id)
		}
		d.mu.Unlock()
		d.tell(false) // commits have passed over what old has left
		return nil, err
	}
	if old != nil {
		old.replaceBy(s)
	}
	return s, nil
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
	s.checks.s = s
	s.codec = &objcodec.Codec{
		Scope: scope, Codec: opts.Codec, Seal: sealed, DecodesAll: opts.DecodedBytes < 0, Corrupt: d.corrupt, Unreadable: d.unreadable,
		Decompress: func(id uint64, payload, buf []byte) ([]byte, error) {
			return s.packer.Load().Decompress(id, payload, buf)
		},
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

func (s *scopeStore) readOwnManifest() (m *record.Manifest, err error) {
	err = s.db.view("manifest", func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if !s.db.readOnly && !s.db.isOfEpoch(tx) {
			b = nil // a file that was put here, from which nothing could be dropped yet
		}
		if b != nil {
			if m, err = layout.ReadManifest(s.id, b); err != nil && !s.damaged {
				return s.db.corrupt("scope "+s.scope.String(), err)
			}
		}
		if s.damaged {
			return nil
		}
		if err := s.packer.Load().Load(b); err != nil {
			return s.db.corrupt("dictionaries of "+s.scope.String(), err)
		}
		return nil
	})
	return m, err
}

// startEmpty creates an empty bucket for the scope. If drop is set, it drops the old
// bucket first.
func (s *scopeStore) startEmpty(drop bool, why string) error {
	m := s.emptyManifest(why)
	s.locked(func(s *state) { s.begins(m) })
	err := s.db.update("scope "+s.scope.String(), func(tx *bbolt.Tx) error {
		if err := s.db.beginEpochIn(tx); err != nil {
			return err
		}
		return s.create(tx, m, drop)
	})
	if err == nil {
		s.noBucket.Store(false)
		s.locked(func(s *state) { s.begun(m) })
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
		if m, err := layout.ReadManifest(s.id, b); err == nil && from(s, func(s *state) bool { return s.mayHaveWritten(m) }) {
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
			// What another process, or a wipe of unknown outcome, has left is of no use.
			err = graveyard.BeginAgain(b, was, m, s.isReadable(was) && from(s, (*state).countLosses) == 0)
		}
		if err != nil {
			return err
		}
	}
	if b == nil || !drop {
		if b, err = scopes.CreateBucket([]byte(s.id)); err != nil {
			return err
		}
		above, err := layout.TakeReached(tx, s.id)
		if err != nil {
			return err
		}
		m.Log.Above = store.Higher(m.Log.Above, above)
	}
	// The file that had it was lost, and this process may end before the next list.
	m.Log.Above = store.Higher(m.Log.Above, from(s, (*state).earlier))
	if err := layout.CreateContent(b, m); err != nil {
		return err
	}
	if err := s.seal.Persist(tx); err != nil {
		return err
	}
	compares := b.Bucket(layout.Former) != nil
	tx.OnCommit(func() { s.locked(func(s *state) { s.formerKept(compares) }) })
	return layout.WriteScopeTally(tx)
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
