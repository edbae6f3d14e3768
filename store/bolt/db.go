package bolt

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Options configure how a database is opened and written. The zero value selects the
// documented defaults.
type Options struct {
	// CommitInterval is how long a change waits for other changes to share its
	// transaction. 0 means 1 s. A crash loses at most this much progress and never
	// consistency: the objects and the resource version go back together.
	CommitInterval time.Duration
	// CommitBytes is the number of bytes of waiting changes at which they are written
	// without waiting for the end of the interval. 0 means 8 MiB.
	CommitBytes int
	// Compression specifies how new records are compressed.
	Compression Compression
	// Keys provides the user's keys, which protect encrypted scopes. If it is nil,
	// nothing is encrypted, and opening a scope of Secrets returns store.ErrNoKey. While
	// the provider returns an error, opening an encrypted scope returns store.ErrNoKey
	// and the stored state does not change. If none of the provider's keys opens the
	// file, encrypted scopes start cold.
	Keys codec.KeyProvider
	// EncryptAll encrypts every scope. A scope that was stored unencrypted starts cold;
	// bbolt overwrites its old pages only in the course of time. EncryptAll without Keys
	// is an error.
	EncryptAll bool
	// LockTimeout is how long Open waits for another process to release the file, and for
	// memory and file descriptors if the system has none. 0 means 1 s.
	LockTimeout time.Duration
	// MaxPending is the number of bytes of waiting changes above which the database is
	// reported as degraded (store.Commits). 0 means 256 MiB. Only the newest state of
	// each changed object waits. Above the bound no change is dropped and no caller
	// blocks.
	MaxPending int64
	// MaxBytes bounds the size of the file, in bytes; 0 means no bound. A file that has
	// reached the bound behaves as on a full disk: the logs give room to the objects, and
	// changes that cannot be written wait in memory and are served from there. A bound
	// below 4 MiB is rounded down to a power of two.
	MaxBytes int
	// MaxAge is the maximum age of a scope's checkpoint when the scope is opened; a scope
	// with an older checkpoint is dropped. 0 means no bound: the server decides what is
	// too old.
	MaxAge time.Duration
	// Epoch names a history of the cluster. If it differs from the epoch that the file
	// was last opened with, all stored scopes are dropped. Change it, for example, after
	// the cluster's etcd was restored. "" keeps the epoch of the file.
	Epoch string
	// AllowNetworkFS permits a file on a file system that several machines can share, as
	// NFS, SMB, CephFS and Lustre, and on FUSE, of which that is not known. Their locks
	// and mapped memory do not give the guarantees that bbolt needs: set it only if one
	// machine alone has the file.
	AllowNetworkFS bool
	// Logger logs damage and failed writes. The zero Logger, which logr.Discard returns,
	// means klog.Background.
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
	if o.Logger.IsZero() {
		o.Logger = klog.Background()
	}
}

// DB is a database in one bbolt file. It is a store.Backend.
type DB struct {
	path     string // as the caller passed it
	absolute string // path made absolute, independent of the current directory
	opts     Options
	readOnly bool
	// epoch is that of the file: Options.Epoch or, if that is "", the one that was found.
	// It is set before any scope is opened.
	epoch string
	// setAside is where the last damaged file was moved, or "" if there was none. mu
	// protects it.
	setAside  string
	suspended error // why no file is used: see Suspended

	// handleMu protects handle. Readers hold it for reading during a transaction; a
	// writer holds it for writing while it reopens the file.
	handleMu sync.RWMutex
	handle   *bbolt.DB   // nil after Close
	file     fs.FileInfo // the file that was opened last
	working  fs.FileInfo // the file of the last working handle

	// beginMu is held while bbolt begins a transaction. If that panics, because the file
	// was truncated while it was open, bbolt's locks stay locked: the handle is poisoned
	// and must not be used again, not even to close it.
	beginMu  sync.Mutex
	poisoned bool
	lock     *os.File // the file of handle, to release its lock without handle
	found    uint64   // bbolt's number of the last transaction when the file was opened
	// written is the number of the last transaction that this process wrote. It changes
	// under writeMu.
	written uint64

	beside *os.File // the lock file, whose lock is held until Close; nil if there is none

	// writeMu is held by every writer: the committer, and the opening or loading of a
	// scope. bbolt has such a lock too, but writeMu is also held while the file is
	// reopened.
	writeMu writeLock
	damaged int // consecutive writes that failed because of damage; protected by writeMu
	// lost is set while the content is lost and no fresh file could be begun. Scopes do
	// not lose again what they hold in memory since. writeMu protects it.
	lost bool

	// keyMu protects the fields below. It is held during the call of the key provider.
	keyMu      sync.Mutex
	keys       *seal.Keyring // nil until a scope needs it
	rewrapped  *seal.Keyring // keys, if wrapped anew and not yet written
	sealBudget uint64        // set before any scope is opened

	shared

	// The committer has these.
	trimmed   int64 // bytes; see trimFor
	leastLogs int64 // bytes of logs that could not be trimmed

	// openMu is held for reading while a scope is opened and for writing while scopes are
	// wiped. It is locked before all other locks.
	openMu sync.RWMutex

	// mu protects the fields below.
	mu      sync.Mutex
	scopes  map[string]*scopeStore // every scope that was opened, by id
	commits store.Commits          // without the fields that belong to one scope

	closed      atomic.Bool  // set under mu
	longestRead atomic.Int64 // nanoseconds of a read transaction
	rebuilds    atomic.Int64 // how often a damaged or lost file was replaced by a new one

	overwhelm atomic.Bool // more than MaxPending bytes wait, and that was logged

	stop      context.CancelFunc // ends the committer after one last commit
	committer chan struct{}      // closed when the committer has ended
	// ledgerLosses counts the losses of all ledgers.
	ledgerLosses atomic.Uint64
	closeOnce    sync.Once
	closeError   error
}

var _ store.Backend = (*DB)(nil)

// Open opens or creates the database at path and its directory. Damage is not an error: a
// damaged file is renamed (see DB.SetAside) and replaced by an empty one. Open checks
// every entry before it returns: a file of 1 GiB takes 0.6 s from the page cache, and as
// long as it takes to read it from a disk.
//
// A file that cannot be used is no error either, and is not changed: it can be changed by
// users other than the process's own, its directory or disk cannot be written, or the
// file system returns another error. Open then logs the cause, and the database works
// without a file: see DB.Suspended.
//
// Errors: store.ErrLocked after Options.LockTimeout; store.ErrNotOurs for a file of
// another kind; *NetworkFSError; a file of another format version, one that is not a
// regular file, and one that exists and may not be opened (fs.ErrPermission); and scopes
// of another Options.Epoch that the disk refuses to drop. The file is not changed. A
// program that must start nevertheless goes on with WithoutFile.
func Open(path string, opts Options) (*DB, error) {
	opts.applyDefaults()
	if opts.EncryptAll && opts.Keys == nil {
		return nil, errors.New("open cache: EncryptAll needs Keys")
	}
	d, err := newDB(path, opts, false)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	err = d.openForWriting()
	// Another process may be creating the same file: until that process has locked the
	// file, it is empty and looks damaged.
	for tries := 0; errors.Is(err, store.ErrCorrupt) && tries < 5; tries++ {
		if err = d.replaceDamaged(err); err == nil {
			err = d.openForWriting()
		}
	}
	unusable := err != nil && !isCallers(d.path, err)
	if err == nil {
		if err = d.beginEpoch(); err != nil && d.handle != nil {
			_ = d.closeHandle(d.handle) // else its lock would stay held
		}
	}
	if err != nil {
		pagefile.UnlockBeside(d.beside, d.absolute, d.readOnly)
		d.beside = nil
	}
	switch {
	case unusable:
		d.suspend(err)
		return d, nil
	case err != nil:
		return nil, fmt.Errorf("open cache: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go d.commitLoop(ctx)
	return d, nil
}

// beginEpoch drops all scopes if the epoch has changed.
func (d *DB) beginEpoch() error {
	found := ""
	err := d.view("epoch", func(tx *bbolt.Tx) error {
		found = string(tx.Bucket(layout.Meta).Get(layout.KeyEpoch))
		return nil
	})
	if d.epoch = cmp.Or(d.opts.Epoch, found); err != nil || d.epoch == found {
		return err
	}
	return d.update("epoch", d.beginEpochIn)
}

// isOfEpoch reports whether the content of the file is of the epoch.
func (d *DB) isOfEpoch(tx *bbolt.Tx) bool {
	return d.epoch == "" || string(tx.Bucket(layout.Meta).Get(layout.KeyEpoch)) == d.epoch
}

// beginEpochIn drops all scopes if the file is of another epoch. A fresh file has the
// epoch from its first transaction on: see createMeta.
func (d *DB) beginEpochIn(tx *bbolt.Tx) error {
	if d.isOfEpoch(tx) {
		return nil
	}
	meta := tx.Bucket(layout.Meta)
	d.opts.Logger.Info("Another epoch begins, dropping all that is stored", "path", d.path, "epoch", d.epoch)
	if tx.Bucket(layout.Scopes) != nil {
		if err := tx.DeleteBucket(layout.Scopes); err != nil {
			return err
		}
	}
	if err := meta.Put(layout.KeyEpoch, []byte(d.epoch)); err != nil {
		return err
	}
	return layout.WriteScopeTally(tx)
}

// OpenReadOnly opens an existing database for reading and changes nothing. It checks the
// pages and the manifests. The entries of a scope are checked when an answer depends on
// their number, and each record again when it is read. Errors: store.ErrLocked while a
// process has the database open for writing, *store.CorruptionError, store.ErrNotOurs,
// *NetworkFSError, and errors of the file system.
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

// newDB returns a database that has not opened its file. Without a current directory, it
// returns one with a relative path beside the error.
func newDB(path string, opts Options, readOnly bool) (*DB, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		absolute = path
	}
	d := &DB{
		path: path, absolute: absolute, opts: opts, readOnly: readOnly, epoch: opts.Epoch,
		scopes: map[string]*scopeStore{},
		shared: shared{
			fileLogBytes: fileLogBytes,
			changed:      make(chan struct{}, 1),
			urgent:       make(chan struct{}, 1),
		},
		committer: make(chan struct{}),
		writeMu:   newWriteLock(),

		// 1 ms to 33 s, and 1 KiB to 1 GiB.
		commits: store.Commits{Durations: newBuckets(0.001, 2, 16), Sizes: newBuckets(1024, 4, 11)},

		sealBudget: seal.DefaultBudget,
	}
	return d, err
}

// SetAside returns where the last damaged file was moved, or "" if there was none.
func (d *DB) SetAside() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setAside
}

// Path returns the absolute path of the file.
func (d *DB) Path() string { return d.absolute }

// at returns the path of the file: as the caller passed it until the file has been
// opened, so that errors name it, and the absolute path afterwards.
func (d *DB) at() string {
	if d.working == nil {
		return d.path
	}
	return d.absolute
}

// opening is the purpose for which a file is opened.
type opening int

const (
	creating  opening = iota // for writing: checks every entry, creates a missing file
	reopening                // for writing again after a failure
	reading                  // for reading
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
	uncreate := func() { // the lock is held
		if created {
			_ = os.Remove(d.at())
		}
	}
	if d.file, err = f.Stat(); err == nil {
		if err = checkTrust(f, d.path, d.file, &d.opts, d.readOnly); err != nil && !created {
			// What is wrong with a file that is not a cache is no matter.
			if notOurs := preflight(d.path, f, d.file.Size(), leading); errors.Is(notOurs, store.ErrNotOurs) {
				err = notOurs
			}
		}
	}
	how := leading
	if what == creating {
		how = everything
	}
	if err == nil && !created {
		err = preflight(d.path, f, d.file.Size(), how)
	}
	if err == nil && !d.readOnly {
		err = closeToOthers(f, d.path, d.file)
	}
	if err != nil {
		uncreate()
		pagefile.Unlock(f)
		return err
	}
	var handle *bbolt.DB
	err = pagefile.Guard(d.path, "opening", func() (err error) {
		handle, err = pagefile.Handle(d.path, f, d.readOnly, d.opts.MaxBytes)
		return err
	})
	if err != nil {
		uncreate() // only a part of it may be written
		pagefile.Unlock(f)
		return d.classify("opening", err)
	}
	found, err := d.lastWritten(handle)
	if err == nil {
		err = d.check(handle, f, how)
	}
	var written uint64
	if err == nil {
		written, err = d.lastWritten(handle)
	}
	if err != nil {
		uncreate()
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

// classify maps bbolt's errors to errors of this package.
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

// check reads the format and verifies the entries as thoroughly as how says. It
// initializes an empty file.
func (d *DB) check(handle *bbolt.DB, f *os.File, how thoroughness) error {
	var known, empty bool
	err := pagefile.Guard(d.path, "format", func() error {
		return handle.View(func(tx *bbolt.Tx) error {
			first, _ := tx.Cursor().First()
			empty = first == nil
			meta := tx.Bucket(layout.Meta)
			if meta == nil {
				if tx.Bucket(layout.Scopes) != nil {
					return d.corrupt("format", errors.New("missing"))
				}
				return nil
			}
			known = true
			if err := layout.OnlyOurs(tx); err != nil {
				return d.corrupt("root", err)
			}
			switch got := meta.Get(layout.KeyFormat); {
			case bytes.Equal(got, []byte(layout.Format)):
			case layout.IsFormat(got):
				return &formatError{d.path, string(got)}
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
	if ours, err := pagefile.HasMarker(f, layout.FormatPrefix); err != nil || ours {
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
			if err := layout.CreateMeta(tx, d.epoch); err != nil {
				return err
			}
			return layout.WriteScopeTally(tx)
		})
	})
}

// replaceDamaged sets the file aside while it holds the file's lock.
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
		return err // nil: another process has replaced it
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

// closeHandle closes a handle. It does not close a poisoned handle but releases its lock.
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

// errWritten indicates that a program which takes no locks has written to the file.
var errWritten = errors.New("another process has written to it")

var errNoHandle = errors.New("could not be opened again after a write that failed")

func (d *DB) isClosed() bool { return d.closed.Load() }

func (d *DB) corrupt(where string, err error) error {
	return &store.CorruptionError{Path: d.path, Where: where, Err: err}
}

// Close implements store.Backend. It writes the waiting changes, ends the committer and
// releases the file.
func (d *DB) Close() error {
	d.closeOnce.Do(func() {
		d.mu.Lock()
		d.closed.Store(true)
		scopes := make([]*scopeStore, 0, len(d.scopes))
		for _, s := range d.scopes {
			scopes = append(scopes, s)
		}
		d.mu.Unlock()
		for _, s := range scopes {
			s.endWrites()
		}
		d.stop()
		<-d.committer
		d.handleMu.Lock()
		handle := d.handle
		d.handle = nil
		d.handleMu.Unlock()
		for _, s := range scopes {
			d.closeError = errors.Join(d.closeError, s.unwritten())
			s.forgetDecoded()
		}
		if handle != nil {
			d.closeError = errors.Join(d.closeError, d.closeHandle(handle))
		}
		pagefile.UnlockBeside(d.beside, d.absolute, d.readOnly)
	})
	return d.closeError
}
