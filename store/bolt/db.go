package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// Options say how a database is opened and written. The zero value is the
// documented defaults.
type Options struct {
	// CommitInterval is how long a change waits for others to share its
	// transaction. 0 is 1 s. A crash loses at most this much progress, never
	// consistency: the resource version goes back with the objects.
	CommitInterval time.Duration
	// CommitBytes of waiting changes are written without waiting for the
	// interval's end. 0 is 8 MiB.
	CommitBytes int
	// Compression says how records are written from now on.
	Compression Compression
	// Keys has the user's keys, with which Secrets are encrypted. nil: nothing is, and
	// opening a scope of Secrets is store.ErrNoKey. While a provider has an error, so
	// is opening any scope that is encrypted, and what is stored stays as it is; where
	// its keys are others than the file's were, such scopes start cold.
	Keys codec.KeyProvider
	// EncryptAll encrypts every scope. One that was stored otherwise starts cold;
	// bbolt overwrites what that was in time only. Without Keys it is an error.
	EncryptAll bool
	// LockTimeout is how long Open waits for another process to release the
	// file. 0 is 1 s.
	LockTimeout time.Duration
	// MaxPending is how many bytes of changes may wait for the disk before that is
	// reported as degraded (store.Commits). 0 is 256 MiB. What waits is the newest
	// state of each changed object; beyond the bound nothing is dropped and nobody
	// waits.
	MaxPending int64
	// MaxBytes bounds the file, in bytes; 0 is no bound. At the bound it is as on a
	// full disk: what is not written waits in memory, and is served from there. Of a bound
	// under 16 MiB the next lower power of two is used.
	MaxBytes int
	// MaxAge is how old a scope's checkpoint may be when the scope is opened; an
	// older one is dropped. 0 is no bound: the server says what is too old.
	MaxAge time.Duration
	// Epoch names a history. When it is another one than the file was last opened
	// with, all that is stored is dropped: to be changed after a cluster's etcd was
	// restored, for example. "" leaves the file's as it is.
	Epoch string
	// AllowNetworkFS lets the file be on NFS or SMB, whose locks and mapped memory do
	// not keep what bbolt needs.
	AllowNetworkFS bool
	// Logger is told of damage and of writes that failed. The zero Logger
	// discards.
	Logger logr.Logger
}

func (o *Options) applyDefaults() {
	if o.CommitInterval <= 0 {
		o.CommitInterval = time.Second
	}
	if o.CommitBytes <= 0 {
		o.CommitBytes = 8 << 20
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = time.Second
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 256 << 20
	}
}

// DB is a database in one bbolt file. It is a store.Backend.
type DB struct {
	path      string // as it was given
	absolute  string // the same, whatever the process's directory is by now
	opts      Options
	readOnly  bool
	setAside  string // where a damaged file went last; "" where there was none; protected by mu
	suspended error  // why there is no file: see maxRebuilds

	// handleMu protects handle: readers hold it for reading while they have a
	// transaction, the committer for writing while it opens the file again.
	handleMu sync.RWMutex
	handle   *bbolt.DB   // nil after Close
	file     fs.FileInfo // of the file that was opened last
	working  fs.FileInfo // of the file of the last handle

	// beginMu is held while bbolt begins a transaction. Where that panics, on a file
	// that was cut under it, bbolt's locks stay locked: the handle is poisoned and
	// nobody may touch it again, not even to close it.
	beginMu  sync.Mutex
	poisoned bool
	lock     *os.File // what handle works on, to release its lock without it
	found    uint64   // bbolt's number of the last transaction when the file was opened
	written  uint64   // the same of the last one that was written since; changed under writeMu

	beside *os.File // whose lock is held until Close; nil: there is none

	// writeMu is held by whoever writes: the committer, and a scope that is being
	// opened or loaded. bbolt has such a lock too; this one is released while the
	// file is opened again.
	writeMu sync.Mutex
	damaged int // writes in turn that failed by damage; protected by writeMu

	// keyMu protects the fields below. It is held while the user's keys are asked for.
	keyMu      sync.Mutex
	keys       *keyring // nil until a scope needs it
	rewrapped  *keyring // the same, where another user's key wraps it than in the file
	keysAsked  time.Time
	sealBudget uint64 // set before any scope is opened

	departedBytes int64 // what each scope keeps of the departed; set before any is opened

	// openMu is held for reading while a scope is opened, for writing while some are
	// wiped. Taken before all others.
	openMu sync.RWMutex

	// mu protects the fields below.
	mu      sync.Mutex
	scopes  map[string]*Store // by id: every scope that was opened
	commits store.Commits     // less what is a scope's own

	closed      atomic.Bool  // set under mu
	longestRead atomic.Int64 // nanoseconds of a transaction
	rebuilds    atomic.Int64 // files that were damaged or lost and begun again

	pending   atomic.Int64 // bytes that wait in all scopes; changed under Store.mu
	overwhelm atomic.Bool  // more than MaxPending wait, and it was logged

	changed    chan struct{}      // tells the committer that something waits; holds one
	urgent     chan struct{}      // tells it not to wait for the interval; holds one
	stop       context.CancelFunc // ends the committer, which then writes once more
	committer  chan struct{}      // closed when the committer has ended
	checked    thoroughness       // of openFile
	verified   chan struct{}      // closed when verifyRest has ended
	closeOnce  sync.Once
	closeError error
}

var _ store.Backend = (*DB)(nil)

// Open opens or creates the database at path, and its directory. Damage is no
// error: a damaged file is renamed (see DB.SetAside) and a fresh one begun. Every
// entry is checked; the records of a file of more than 1 GiB in the background, while
// nothing is written to it. Where
// that has happened three times within ten minutes no file is used: opening a scope
// is an error then, and informers run in memory. Errors: a file that is not the
// process's own alone, *NetworkFSError, store.ErrLocked after Options.LockTimeout, store.ErrNotOurs for a file
// of another kind, and those of the file system; the file is then unchanged.
func Open(path string, opts Options) (*DB, error) {
	opts.applyDefaults()
	if opts.EncryptAll && opts.Keys == nil {
		return nil, errors.New("open cache: EncryptAll needs Keys")
	}
	d, err := newDB(path, opts, false)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	err = d.openFile(creating)
	// Others may be opening the same file: what one has just created is empty to
	// the next, until its lock is taken.
	for tries := 0; errors.Is(err, store.ErrCorrupt) && tries < 5; tries++ {
		if n := len(recentRebuilds(d.absolute, time.Now())); n >= maxRebuilds {
			d.suspend(fmt.Errorf("%w; begun again %d times within %s, not used for now", err, n, rebuildWindow))
			return d, nil
		}
		if err = d.replaceDamaged(err); err == nil {
			err = d.openFile(creating)
		}
	}
	if err == nil {
		if err = d.beginEpoch(); err != nil && d.handle != nil {
			_ = d.closeHandle(d.handle) // or its lock would stay
		}
	}
	if err != nil {
		pagefile.UnlockBeside(d.beside, d.absolute, d.readOnly)
		return nil, fmt.Errorf("open cache: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	d.verifyRest(ctx)
	go d.commitLoop(ctx)
	return d, nil
}

// suspend makes a database without a file.
func (d *DB) suspend(cause error) {
	d.suspended = cause
	d.opts.Logger.Error(cause, "Cache file is damaged too often, going on without", "path", d.path)
	d.stop = func() {}
	close(d.committer)
	close(d.verified)
}

// beginEpoch drops all scopes where the epoch has changed.
func (d *DB) beginEpoch() error {
	if d.opts.Epoch == "" {
		return nil
	}
	same := false
	err := d.view("epoch", func(tx *bbolt.Tx) error {
		same = string(tx.Bucket(bucketMeta).Get(keyEpoch)) == d.opts.Epoch
		return nil
	})
	if err != nil || same {
		return err
	}
	d.opts.Logger.Info("Another epoch begins, dropping all that is stored", "path", d.path, "epoch", d.opts.Epoch)
	return d.update("epoch", func(tx *bbolt.Tx) error {
		if tx.Bucket(bucketScope) != nil {
			if err := tx.DeleteBucket(bucketScope); err != nil {
				return err
			}
		}
		if err := tx.Bucket(bucketMeta).Put(keyEpoch, []byte(d.opts.Epoch)); err != nil {
			return err
		}
		return writeScopeTally(tx)
	})
}

// OpenReadOnly opens an existing database for reading and changes nothing.
// The pages and manifests are checked here, a scope's entries when it is opened,
// and each record again when it is read. Errors: store.ErrLocked while a process has it open for writing,
// *store.CorruptionError, store.ErrNotOurs, *NetworkFSError, and those of the file system.
func OpenReadOnly(path string, opts Options) (*DB, error) {
	opts.applyDefaults()
	d, err := newDB(path, opts, true)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	close(d.committer)
	d.stop = func() {}
	if d.beside, err = pagefile.LockBeside(d.at(), true, opts.LockTimeout); err == nil {
		err = d.openFile(reading)
	}
	if err != nil {
		pagefile.UnlockBeside(d.beside, d.absolute, d.readOnly)
		return nil, fmt.Errorf("open cache: %w", err)
	}
	return d, nil
}

func newDB(path string, opts Options, readOnly bool) (*DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	return &DB{
		path: path, absolute: absolute, opts: opts, readOnly: readOnly,
		scopes:    map[string]*Store{},
		changed:   make(chan struct{}, 1),
		urgent:    make(chan struct{}, 1),
		committer: make(chan struct{}),
		verified:  make(chan struct{}),

		// 1 ms to 33 s, and 1 KiB to 1 GiB.
		commits: store.Commits{Durations: newBuckets(0.001, 2, 16), Sizes: newBuckets(1024, 4, 11)},

		sealBudget: defaultSealBudget, departedBytes: departedBytes,
	}, nil
}

// SetAside returns where Open moved a damaged file; "" where there was none.
func (d *DB) SetAside() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setAside
}

// Path returns the absolute path of the file.
func (d *DB) Path() string { return d.absolute }

// at is where the file is: as its user has named it, for the errors of opening it, and
// once it was opened by its absolute path.
func (d *DB) at() string {
	if d.working == nil {
		return d.path
	}
	return d.absolute
}

// opening says what a file is opened for.
type opening int

const (
	creating  opening = iota // to write, every entry checked; made where there is none
	reopening                // to write on, after a failure
	reading                  // to read
)

// openFile opens and checks the file and sets d.handle.
func (d *DB) openFile(what opening) error {
	flag := os.O_RDWR
	switch what {
	case reopening:
	case reading:
		flag = os.O_RDONLY
	case creating:
		flag |= os.O_CREATE
		if err := d.holdLock(); err != nil {
			return err
		}
	}
	f, created, err := pagefile.OpenLocked(d.at(), flag, d.opts.LockTimeout)
	if err != nil {
		return err
	}
	if d.file, err = f.Stat(); err == nil {
		err = checkTrust(f, d.path, d.file, &d.opts, d.readOnly)
	}
	if err == nil {
		switch {
		case what != creating:
			d.checked = leading
		case d.file.Size() > backgroundBytes:
			d.checked = butRecords
		default:
			d.checked = everything
		}
	}
	if err == nil && !created {
		err = preflight(d.path, f, d.file.Size(), d.checked)
	}
	if err != nil {
		pagefile.Unlock(f)
		return err
	}
	var handle *bbolt.DB
	err = pagefile.Guard(d.path, "opening", func() (err error) {
		handle, err = bbolt.Open(d.path, 0o600, pagefile.Options(f, d.readOnly, d.opts.MaxBytes))
		return err
	})
	if err != nil {
		pagefile.Unlock(f)
		return d.classify("opening", err)
	}
	found, err := d.lastWritten(handle)
	if err == nil {
		err = d.check(handle, f, d.checked)
	}
	var written uint64
	if err == nil {
		written, err = d.lastWritten(handle)
	}
	if err != nil {
		if errors.Is(err, pagefile.ErrPanicked) {
			pagefile.Unlock(f)
		} else {
			_ = pagefile.Guard(d.path, "closing", handle.Close)
		}
		return err
	}
	d.beginMu.Lock()
	defer d.beginMu.Unlock()
	d.handle, d.lock, d.poisoned, d.working, d.found, d.written = handle, f, false, d.file, found, written
	return nil
}

// lastWritten returns bbolt's number of the last transaction in the file.
func (d *DB) lastWritten(handle *bbolt.DB) (number uint64, err error) {
	err = pagefile.Guard(d.path, "opening", func() error {
		return handle.View(func(tx *bbolt.Tx) error {
			number = uint64(tx.ID())
			return nil
		})
	})
	return number, err
}

// isFormat reports whether a format's name is of another version of this program.
func isFormat(name []byte) bool {
	version, ok := bytes.CutPrefix(name, []byte(formatPrefix))
	_, err := strconv.ParseUint(string(version), 10, 16)
	return ok && err == nil
}

// classify tells what bbolt's errors mean to a caller.
func (d *DB) classify(where string, err error) error {
	for _, damage := range []error{bbolterrors.ErrInvalid, bbolterrors.ErrChecksum, bbolterrors.ErrVersionMismatch} {
		if errors.Is(err, damage) {
			return d.corrupt(where, err)
		}
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return fmt.Errorf("%s: %w", d.path, store.ErrLocked)
	}
	return err
}

// check reads the format and what there is to verify.
func (d *DB) check(handle *bbolt.DB, f *os.File, how thoroughness) error {
	var known, empty bool
	err := pagefile.Guard(d.path, "format", func() error {
		return handle.View(func(tx *bbolt.Tx) error {
			first, _ := tx.Cursor().First()
			empty = first == nil
			meta := tx.Bucket(bucketMeta)
			if meta == nil {
				if tx.Bucket(bucketScope) != nil {
					return d.corrupt("format", errors.New("missing"))
				}
				return nil
			}
			known = true
			if err := onlyOurs(tx); err != nil {
				return d.corrupt("root", err)
			}
			switch got := meta.Get(keyFormat); {
			case bytes.Equal(got, []byte(format)):
			case isFormat(got):
				return fmt.Errorf("%s has %s; this program reads %s", d.path, got, format)
			default:
				return d.corrupt("format", errors.New("unknown"))
			}
			return verify(context.Background(), d.path, tx, how)
		})
	})
	if err != nil {
		return err
	}
	if known {
		return nil
	}
	if ours, err := pagefile.HasMarker(f, formatPrefix); err != nil || ours {
		return d.corrupt("root", errors.Join(errors.New("buckets are missing"), err))
	}
	if !empty {
		return fmt.Errorf("%s: %w", d.path, store.ErrNotOurs)
	}
	if d.readOnly {
		return nil
	}
	return pagefile.Guard(d.path, "creation", func() error {
		return handle.Update(func(tx *bbolt.Tx) error {
			if err := createMeta(tx); err != nil {
				return err
			}
			return writeScopeTally(tx)
		})
	})
}

// createMeta makes the meta bucket of a fresh file.
func createMeta(tx *bbolt.Tx) error {
	meta, err := tx.CreateBucket(bucketMeta)
	if err != nil {
		return err
	}
	if err := meta.Put(keyCreated, []byte(time.Now().UTC().Format(time.RFC3339))); err != nil {
		return err
	}
	return meta.Put(keyFormat, []byte(format))
}

// onlyOurs reports what else than our buckets is in the root.
func onlyOurs(tx *bbolt.Tx) error {
	c := tx.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if v != nil || !bytes.Equal(k, bucketMeta) && !bytes.Equal(k, bucketScope) {
			return errors.New("a bucket is missing")
		}
	}
	return nil
}

// replaceDamaged sets the file aside, under its lock.
func (d *DB) replaceDamaged(cause error) error {
	f, _, err := pagefile.OpenLocked(d.at(), os.O_RDWR, d.opts.LockTimeout)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process has set it aside already
	}
	if err != nil {
		return err
	}
	defer pagefile.Unlock(f)
	if now, err := f.Stat(); err != nil || !os.SameFile(now, d.file) {
		return err // or has replaced it
	}
	aside, err := setAside(d.at(), cause)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.setAside = aside
	d.mu.Unlock()
	d.rebuilds.Add(1)
	d.opts.Logger.Error(cause, "Cache file is damaged, starting with a fresh one", "path", d.path, "setAside", aside)
	return nil
}

// Scopes implements store.Backend.
func (d *DB) Scopes() ([]store.Info, error) {
	var infos []store.Info
	err := d.view("scopes", func(tx *bbolt.Tx) error {
		scopes := tx.Bucket(bucketScope)
		if scopes == nil {
			return nil
		}
		return scopes.ForEachBucket(func(id []byte) error {
			b := scopes.Bucket(id)
			m, err := readManifest(string(id), b)
			if err != nil {
				return d.corrupt("scope "+string(id), err)
			}
			info := store.Info{
				ID: string(id), Scope: m.scope(), Objects: int(m.Objects.Count), Bytes: m.Bytes,
				Codec: m.Codec, TypeFingerprint: m.Fingerprint, TransformVersion: m.Transform,
				Checkpoint: m.checkpoint(), Complete: m.Complete, Encrypted: m.Keys != "",
			}
			for _, name := range m.indexNames() {
				if !m.Indexes[name].Ready {
					continue // made again when an informer opens the scope
				}
				info.Indexes = append(info.Indexes, store.IndexInfo{
					Name: name, Identity: m.Indexes[name].Identity, Values: countValues(b, name),
				})
			}
			infos = append(infos, info)
			return nil
		})
	})
	slices.SortFunc(infos, func(a, b store.Info) int { return strings.Compare(sortKey(a.Scope), sortKey(b.Scope)) })
	return infos, err
}

func sortKey(s store.Scope) string {
	return strings.Join([]string{s.Resource, s.Namespace, s.LabelSelector, s.FieldSelector, s.Form.String(), s.Cluster, s.Kind.Version}, "\x00")
}

// countValues counts the distinct values of a stored index by seeking past each.
func countValues(scope *bbolt.Bucket, name string) int {
	b := indexBucket(scope, name)
	if b == nil {
		return 0
	}
	n := 0
	c := b.Cursor()
	for k, v := c.First(); k != nil; n++ {
		value, _, ok := parseIndexEntry(k, v)
		if !ok {
			break
		}
		k, v = c.Seek(append(appendIndexPrefix(nil, value), 0xFF, 0xFF, 0xFF, 0xFF))
	}
	return n
}

func indexBucket(scope *bbolt.Bucket, name string) *bbolt.Bucket {
	if b := scope.Bucket(bucketIndex); b != nil {
		return b.Bucket([]byte(name))
	}
	return nil
}

// view runs fn in a read transaction. fn copies what it needs and calls no user
// code: a transaction that stays open makes the file grow.
func (d *DB) view(where string, fn func(*bbolt.Tx) error) error {
	d.handleMu.RLock()
	defer d.handleMu.RUnlock()
	if d.handle == nil {
		return d.noHandle()
	}
	tx, err := d.begin(where, false)
	if err != nil {
		return err
	}
	began := time.Now()
	return pagefile.Guard(d.path, where, func() error {
		defer d.endRead(tx, began)
		return fn(tx)
	})
}

// endRead ends a read transaction that began then.
func (d *DB) endRead(tx *bbolt.Tx, began time.Time) {
	_ = tx.Rollback()
	took := int64(time.Since(began))
	for longest := d.longestRead.Load(); took > longest && !d.longestRead.CompareAndSwap(longest, took); {
		longest = d.longestRead.Load()
	}
}

// begin needs handleMu.
func (d *DB) begin(where string, write bool) (tx *bbolt.Tx, err error) {
	d.beginMu.Lock()
	defer d.beginMu.Unlock()
	if d.poisoned {
		return nil, d.corrupt(where, errors.New("the file was cut or overwritten"))
	}
	err = pagefile.Guard(d.path, where, func() (err error) {
		tx, err = d.handle.Begin(write)
		return err
	})
	d.poisoned = errors.Is(err, pagefile.ErrPanicked)
	return tx, err
}

// closeHandle closes a handle, or leaves a poisoned one behind without its lock.
func (d *DB) closeHandle(handle *bbolt.DB) error {
	d.beginMu.Lock()
	poisoned := d.poisoned
	d.beginMu.Unlock()
	if poisoned {
		pagefile.Unlock(d.lock)
		return nil
	}
	return pagefile.Guard(d.path, "closing", handle.Close)
}

// update runs fn in a write transaction, while readers go on. After an error the
// file is opened again, for its state is unknown.
func (d *DB) update(where string, fn func(*bbolt.Tx) error) error {
	if d.readOnly {
		return store.ErrReadOnly
	}
	if d.suspended != nil {
		return d.suspended
	}
	d.writeMu.Lock()
	defer d.writeMu.Unlock()
	err := d.isThere()
	if err == nil {
		err = d.tryUpdate(where, fn)
	}
	if err == nil || errors.Is(err, store.ErrClosed) {
		d.damaged = 0
		return err
	}
	if errors.Is(err, store.ErrCorrupt) && !errors.Is(err, errNoHandle) {
		d.damaged++
	}
	return errors.Join(err, d.reopenLocked(d.damaged > 1, err))
}

// isThere notices that the file was removed or replaced under its name, which an
// open file does not show.
func (d *DB) isThere() error {
	d.handleMu.RLock()
	defer d.handleMu.RUnlock()
	if d.handle == nil {
		return nil
	}
	if named, err := os.Lstat(d.absolute); err != nil || !os.SameFile(named, d.working) {
		return fmt.Errorf("%s was removed or replaced", d.path)
	}
	return nil
}

func (d *DB) tryUpdate(where string, fn func(*bbolt.Tx) error) error {
	d.handleMu.RLock()
	defer d.handleMu.RUnlock()
	if d.handle == nil {
		return d.noHandle()
	}
	tx, err := d.begin(where, true)
	if err != nil {
		return err
	}
	err = pagefile.Guard(d.path, where, func() error {
		number := uint64(tx.ID())
		if !d.isNext(number) {
			return errors.Join(d.corrupt("file", errWritten), tx.Rollback())
		}
		if err := fn(tx); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		err := tx.Commit()
		if err == nil {
			d.written = number
		}
		return err
	})
	if errors.Is(err, pagefile.ErrPanicked) {
		d.beginMu.Lock()
		d.poisoned = true
		d.beginMu.Unlock()
	}
	return err
}

// isNext reports whether a transaction of that number follows what this process has
// written: the last one, or one whose commit had an error and that the file may have.
func (d *DB) isNext(number uint64) bool { return number == d.written+1 || number == d.written+2 }

// noHandle says why there is none: the database was closed, or the file could
// not be opened again after a write that failed.
func (d *DB) noHandle() error {
	if d.isClosed() {
		return store.ErrClosed
	}
	if d.suspended != nil {
		return d.suspended
	}
	return d.corrupt("file", errNoHandle)
}

// errWritten indicates a file that a program which keeps no locks has written to.
var errWritten = errors.New("another process has written to it")

var errNoHandle = errors.New("could not be opened again after a write that failed")

func (d *DB) isClosed() bool { return d.closed.Load() }

func (d *DB) corrupt(where string, err error) error {
	return &store.CorruptionError{Path: d.path, Where: where, Err: err}
}

// Close implements store.Backend: it writes what waits, ends the committer and
// releases the file.
func (d *DB) Close() error {
	d.closeOnce.Do(func() {
		d.mu.Lock()
		d.closed.Store(true)
		scopes := make([]*Store, 0, len(d.scopes))
		for _, s := range d.scopes {
			scopes = append(scopes, s)
		}
		d.mu.Unlock()
		for _, s := range scopes {
			s.endWrites()
		}
		d.stop()
		<-d.committer
		if !d.readOnly {
			<-d.verified
		}
		d.handleMu.Lock()
		handle := d.handle
		d.handle = nil
		d.handleMu.Unlock()
		for _, s := range scopes {
			d.closeError = errors.Join(d.closeError, s.unwritten())
		}
		if handle != nil {
			d.closeError = errors.Join(d.closeError, d.closeHandle(handle))
		}
		pagefile.UnlockBeside(d.beside, d.absolute, d.readOnly)
	})
	return d.closeError
}
