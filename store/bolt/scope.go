package bolt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// Store is one scope of a DB. It is a store.Store.
//
// # Pending
//
// Apply puts changes into pending and returns; readers merge pending over the
// file. The committer copies pending, writes it with the checkpoint of the same
// moment in one transaction (promises 1 and 2), and only then removes what it
// wrote. A reader copies pending and begins its transaction under mu, which a
// commit needs to remove its entries: so it sees exactly one moment, whether the
// commit in flight is in its transaction or not.
//
// # Decoded objects
//
// A reader that decoded an object offers it to the cache with the generation
// that the key had before the read; Apply raises the generation, so an object
// that was replaced meanwhile is not kept. Generations are counted for groups of
// keys, which costs a missed insertion now and then and no memory per key. A
// reader of a snapshot takes an object from the cache by the hash of its content,
// which the header has: the cache may be ahead of the snapshot.
type Store struct {
	db    *DB
	id    string
	scope store.Scope
	opts  store.Options
	seal  *seal // nil: not encrypted

	dictionaries atomic.Pointer[dictionaries]
	trials       trials
	lostSignal   chan struct{} // holds one
	// noBucket says that the file has nothing of the scope, or nothing that may be seen. It
	// is set to false under DB.writeMu. It is read inside transactions, in which no lock
	// may be waited for: who holds it may be waiting to begin one, behind a writer that
	// waits for this one to end.
	noBucket atomic.Bool

	next atomic.Pointer[Store] // opened in the place of this one; nil: it is the newest

	encodes, decodes work // of objects

	verifyOnce sync.Once
	verifyErr  error // set by verifyOnce

	// writerMu is held by Apply, AddIndexers and the like, one at a time, so that
	// an index can be made while readers go on. Taken before mu.
	writerMu sync.Mutex

	// mu protects the fields below.
	mu           sync.Mutex
	pending      *btree.Map[string, *entry]
	indexed      *btree.Map[string, *entry] // the same by pendingIndexKey, for each value
	pendingBytes int
	storedBytes  int64 // of the records in the file
	length       int   // objects that readers see
	miscounted   bool  // length may be wrong, since the file could not be read when something was applied
	checkpoint   store.Checkpoint
	storeRV      string                  // what LastStoreSyncResourceVersion answers
	dirty        bool                    // checkpoint or pending differ from the file
	listed       bool                    // something was stored: a list is compared with it
	loading      bool                    // a first list is being loaded: readers see nothing
	indexes      *indexSet               // replaced, never changed
	inMemory     map[string]*memoryIndex // entries of indexes.volatile, and of all where all is decoded
	generations  [256]uint64
	decoded      *decodedObjects  // written under mu
	hits, misses uint64           // of get
	readErr      error            // why List could not answer
	lost         error            // why there is nothing to read until the scope is listed again
	losses       uint64           // how often what was stored was lost
	oldIndexes   []string         // of the file, dropped by the next write; changed to nil under writeMu
	commitErr    error            // of the last attempt; nil after a success
	committed    chan struct{}    // closed and replaced after each attempt to commit
	applied      uint64           // number of the last change of state
	written      uint64           // the same, as the file has it
	indexErrs    map[string]error // what verifyIndex found, by name
	sampled      bool             // for a dictionary, when the scope had grown
	departed     departures
	leased       bool
	writable     bool
	relist       *relist
}

var _ store.Store = (*Store)(nil)

// entry is the newest state of a changed key.
type entry struct {
	key     string  // in the file
	name    string  // the object's own: see fileKey
	payload packed  // none: deleted
	head    *header // nil: deleted
	// volatile holds the values of index functions without an identity, by name.
	volatile map[string][]string
	indexes  *indexSet      // what the index values were made with
	object   runtime.Object // what was encoded, for the cache; not kept in pending

	departing bool   // what was stored under the key is to be kept among the departed
	departs   uint64 // its number there, given when the entry becomes visible; 0: it is not
	before    packed // of what departs: what was stored, where the file does not have that
	last      packed // of what departs: its final state
}

// values returns the object's values in an index.
func (e *entry) values(name string) []string {
	if values, ok := e.volatile[name]; ok || e.head == nil {
		return values
	}
	return e.head.Index[name]
}

// stored returns the header as it is written beside p.
func (e *entry) stored(p packed) *header {
	if p.head != nil {
		return p.head
	}
	return e.head
}

func (e *entry) size() int {
	return len(e.key) + len(e.payload.bytes) + len(e.before.bytes) + len(e.last.bytes) + 256
}

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
	if d.isClosed() || d.suspended != nil {
		d.mu.Unlock()
		return nil, d.noHandle()
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
	if err := s.load(); err != nil {
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

// replaceBy forgets what a closed store could not write, and has it read from the one
// that was opened in its place.
func (s *Store) replaceBy(next *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next.Store(next)
	s.dropPendingLocked()
	s.written, s.dirty = s.applied, false
	s.decoded.clear()
	s.endAttemptLocked()
}

// reader returns the store that is read in the place of this one: after Close, that
// which was opened since. While that holds no whole list there is nothing to read.
func (s *Store) reader() (*Store, error) {
	now := s
	for next := now.next.Load(); next != nil; next = now.next.Load() {
		now = next
	}
	if now == s {
		return s, nil
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	if !now.listed {
		return nil, fmt.Errorf("%s was closed, and is listed anew: %w", s.scope, store.ErrClosed)
	}
	return now, nil
}

func newStore(d *DB, scope store.Scope, sealed *seal, opts store.Options) (*Store, error) {
	s := &Store{
		db: d, id: scope.ID(), scope: scope, opts: opts, seal: sealed,
		pending:   &btree.Map[string, *entry]{},
		indexed:   &btree.Map[string, *entry]{},
		indexes:   &indexSet{stored: map[string]index.Index{}, volatile: cache.Indexers{}},
		inMemory:  map[string]*memoryIndex{},
		committed: make(chan struct{}), lostSignal: make(chan struct{}, 1),
		indexErrs: map[string]error{},
		trials:    trials{every: retrainBytes},
		leased:    true,
		writable:  !d.readOnly,
	}
	for _, idx := range opts.Indexes {
		if err := checkIndexName(idx.Name); err != nil {
			return nil, err
		}
		if idx.Func == nil {
			return nil, fmt.Errorf("index %q has no function", idx.Name)
		}
		if _, twice := s.indexes.stored[idx.Name]; twice {
			return nil, fmt.Errorf("index %q is given twice", idx.Name)
		}
		s.indexes.stored[idx.Name] = idx
	}
	for name, fn := range opts.Indexers {
		if fn == nil {
			return nil, fmt.Errorf("index %q has no function", name)
		}
		if _, twice := s.indexes.stored[name]; twice {
			if index.IsNamespace(fn) && s.indexes.stored[name].Identity() == index.Namespace().Identity() {
				continue
			}
			return nil, fmt.Errorf("index %q is given twice", name)
		}
		if index.IsNamespace(fn) && checkIndexName(name) == nil {
			idx := index.Namespace()
			idx.Name = name
			s.indexes.stored[name] = idx
			continue
		}
		s.indexes.volatile[name] = fn
		s.inMemory[name] = newMemoryIndex()
	}
	if opts.DecodedBytes < 0 {
		for name := range s.indexes.stored {
			s.inMemory[name] = newMemoryIndex()
		}
	}
	var err error
	if s.decoded, err = newDecodedObjects(opts.DecodedBytes); err != nil {
		return nil, fmt.Errorf("cache of decoded objects: %w", err)
	}
	return s, nil
}

// maxIndexName bounds the name of an index whose entries are stored, in bytes. It is the
// name of a bucket, and bbolt refuses an empty one and one of more than 32 KiB at the next
// commit, which is one of all scopes.
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

// load reads what the file holds of the scope, drops it where it is of no use,
// and makes the indexes that are not there.
func (s *Store) load() error {
	m, err := s.readOwnManifest()
	if err != nil {
		return err
	}
	if s.db.readOnly {
		if m == nil {
			return fmt.Errorf("%s: %w", s.scope, store.ErrNotFound)
		}
		if s.loading = !m.Complete; s.loading {
			s.readErr = fmt.Errorf("%s: %w", s.scope, store.ErrIncomplete)
		}
		s.startFrom(m)
		for name, state := range m.Indexes {
			if state.Ready {
				s.indexes.stored[name] = index.Index{Name: name}
			}
		}
		return nil
	}
	if why := s.useless(m); why != "" {
		s.retireDictionaries()
		if err = s.startEmpty(m != nil, why); !mayGoOn(err) {
			return err
		}
		// A disk that is full must not keep the scope from being persisted later: whoever
		// writes to it first makes its bucket.
		s.db.opts.Logger.Error(err, "Could not begin a scope, keeping it in memory until it can be written", "scope", s.scope.String())
		s.noBucket.Store(true)
		s.mu.Lock()
		s.changedLocked() // what is of no use goes as soon as it can
		s.mu.Unlock()
		s.db.tell(false)
		return nil
	}
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

// mayGoOn reports whether an error is of a write alone, as on a full disk: what there is
// can be read.
func mayGoOn(err error) bool {
	return err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrClosed)
}

// startFrom takes over what is stored. The committer may look at s already.
func (s *Store) startFrom(m *manifest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.length, s.checkpoint, s.storeRV = int(m.Objects.Count), m.checkpoint(), m.RV
	s.storedBytes = m.Bytes
	s.listed = true
	s.departed = departures{last: max(m.Departed.Last, m.Departed.Settled), settled: m.Departed.Settled, told: m.Departed.Settled, kept: int(m.Departed.Tally.Count)}
	if s.departed.kept > 0 {
		s.departed.dropFromFile = m.Departed.Settled
	}
}

// dropStaging forgets a relist that the last process did not end.
func (s *Store) dropStaging() error {
	left := false
	where := "staging of " + s.scope.String()
	err := s.db.view(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		left = b != nil && b.Bucket(bucketStaging) != nil
		return nil
	})
	if err != nil || !left {
		return err
	}
	return s.db.update(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if b == nil || b.Bucket(bucketStaging) == nil {
			return nil // lost with the file meanwhile
		}
		return b.DeleteBucket(bucketStaging)
	})
}

func (s *Store) readOwnManifest() (m *manifest, err error) {
	err = s.db.view("manifest", func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if b != nil {
			if m, err = readManifest(s.id, b); err != nil {
				return s.db.corrupt("scope "+s.scope.String(), err)
			}
		}
		return s.loadDictionaries(b)
	})
	return m, err
}

// useless says why stored state cannot be used; "" where it can.
func (s *Store) useless(m *manifest) string {
	codec := s.opts.Codec
	switch {
	case m == nil:
		return "nothing stored yet"
	case s.opts.Fresh:
		return "asked to start fresh"
	case !m.Complete:
		return "first list did not end"
	case m.Keys != s.seal.keysID():
		return s.otherSeal(m)
	case s.seal != nil && m.Dictionaries.Count > 0:
		return "its dictionary is not encrypted"
	case codec != nil && (m.Codec != codec.Name() || m.Fingerprint != codec.Fingerprint()):
		return "object type changed"
	case m.Transform != s.opts.TransformVersion:
		return "transform changed"
	case s.db.opts.MaxAge > 0 && time.Since(m.Time) > s.db.opts.MaxAge:
		return "older than the maximum age"
	}
	return ""
}

// startEmpty drops the scope's bucket and begins a new one.
func (s *Store) startEmpty(drop bool, why string) error {
	m := s.emptyManifest(why)
	s.mu.Lock()
	s.checkpoint = m.checkpoint()
	s.mu.Unlock()
	err := s.db.update("scope "+s.scope.String(), func(tx *bbolt.Tx) error { return s.create(tx, m, drop) })
	if err == nil {
		s.setNoBucket(false)
	}
	return err
}

// create makes the scope's bucket.
func (s *Store) create(tx *bbolt.Tx, m *manifest, drop bool) error {
	scopes, err := tx.CreateBucketIfNotExists(bucketScope)
	if err != nil {
		return err
	}
	if drop {
		if err := scopes.DeleteBucket([]byte(s.id)); err != nil && !errors.Is(err, bbolterrors.ErrBucketNotFound) {
			return err
		}
	}
	b, err := scopes.CreateBucket([]byte(s.id))
	if err != nil {
		return err
	}
	for _, name := range [][]byte{bucketHeaders, bucketObjects} {
		if _, err := b.CreateBucket(name); err != nil {
			return err
		}
	}
	if err := m.write(b); err != nil {
		return err
	}
	if err := s.seal.persistKeys(tx); err != nil {
		return err
	}
	return writeScopeTally(tx)
}

// emptyManifest is that of a scope that has not been listed, and why.
func (s *Store) emptyManifest(why string) *manifest {
	m := newManifest(s.scope)
	m.Transform, m.Keys = s.opts.TransformVersion, s.seal.keysID()
	if s.opts.Codec != nil {
		m.Codec, m.Fingerprint = s.opts.Codec.Name(), s.opts.Codec.Fingerprint()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, idx := range s.indexes.stored {
		m.Indexes[name] = indexState{Identity: idx.Identity(), Ready: true}
	}
	m.setCheckpoint(store.Checkpoint{Reason: why, Time: time.Now()})
	return m
}

// bucket returns what may be read or changed of the file; nil where there is nothing.
func (s *Store) bucket(tx *bbolt.Tx) *bbolt.Bucket {
	if s.needsBucket() {
		return nil
	}
	return s.bucketIn(tx)
}

func (s *Store) bucketIn(tx *bbolt.Tx) *bbolt.Bucket {
	if scopes := tx.Bucket(bucketScope); scopes != nil {
		return scopes.Bucket([]byte(s.id))
	}
	return nil
}

func (s *Store) isLeased() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leased
}

// Checkpoint implements store.Store.
func (s *Store) Checkpoint() store.Checkpoint {
	s, err := s.reader()
	if err != nil {
		return store.Checkpoint{Reason: err.Error(), Time: time.Now()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checkpoint
}

// Len implements store.Store.
func (s *Store) Len() int {
	s, err := s.reader()
	if err != nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loading {
		return 0
	}
	return s.length
}

// Err implements store.Store.
func (s *Store) Err() error {
	if s.db.isClosed() {
		return store.ErrClosed
	}
	s, err := s.reader()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readErr
}

// Close implements store.Store.
func (s *Store) Close() error {
	if !s.isLeased() {
		return nil
	}
	s.endWrites()
	s.mu.Lock()
	r := s.relist
	s.mu.Unlock()
	if r != nil {
		_ = r.Close()
	}
	var err error
	if !s.db.readOnly && !s.db.isChecking() {
		// One attempt: a disk that is full must not keep a process from ending. What is
		// not written while the file is checked is by DB.Close, which ends that.
		err = s.flushOnce(context.Background())
	}
	s.mu.Lock()
	s.leased = false
	s.mu.Unlock()
	return err
}

func (s *Store) endWrites() {
	s.writerMu.Lock()
	defer s.writerMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writable = false
}

// unwritten returns the error of the last commit where something still waits.
func (s *Store) unwritten() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.written == s.applied {
		return nil
	}
	if s.commitErr == nil {
		return fmt.Errorf("%s: closed before the last changes were written", s.scope)
	}
	return fmt.Errorf("%s: last changes are not written: %w", s.scope, s.commitErr)
}

// Flush implements store.Store.
func (s *Store) Flush(ctx context.Context) error {
	s.mu.Lock()
	target := s.applied
	for s.written < target {
		attempt := s.committed
		s.mu.Unlock()
		s.db.wake()
		select {
		case <-attempt:
		case <-s.db.committer:
			s.mu.Lock()
			done := s.written >= target
			s.mu.Unlock()
			if done {
				return nil
			}
			return store.ErrClosed
		case <-ctx.Done():
			s.mu.Lock()
			err := errors.Join(ctx.Err(), s.commitErr)
			s.mu.Unlock()
			return err
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
	return nil
}

// flushOnce waits for one attempt to write what was applied before: a disk that
// is broken keeps nobody.
func (s *Store) flushOnce(ctx context.Context) error {
	s.mu.Lock()
	target := s.applied
	for tries := 0; s.written < target && tries < 2; tries++ { // the first may have begun before
		attempt := s.committed
		s.mu.Unlock()
		s.db.wake()
		select {
		case <-attempt:
		case <-s.db.committer:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
	}
	s.mu.Unlock()
	return s.unwritten()
}

// Invalidate implements store.Store.
func (s *Store) Invalidate(ctx context.Context, reason string) error {
	s.writerMu.Lock()
	s.mu.Lock()
	if !s.writable {
		s.mu.Unlock()
		s.writerMu.Unlock()
		return store.ErrClosed
	}
	if s.lost != nil { // and so has no resource version
		s.mu.Unlock()
		s.writerMu.Unlock()
		return nil
	}
	s.setCheckpointLocked(store.Checkpoint{Reason: reason})
	s.mu.Unlock()
	s.writerMu.Unlock()
	return s.flushOnce(ctx)
}

func (s *Store) setCheckpointLocked(c store.Checkpoint) {
	c.Time = time.Now()
	s.checkpoint = c
	if c.RV != "" {
		s.storeRV = c.RV
	}
	s.changedLocked()
}

func (s *Store) changedLocked() {
	s.dirty = true
	s.applied++
}
