package bolt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
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
	// History is that of the scopes whose store.Options have none.
	History store.History
	// HistoryBytes bounds the logs of all scopes together, in bytes: above it the largest
	// are trimmed. 0 means 256 MiB.
	HistoryBytes int64
	// MaxAge is the maximum age of a scope's checkpoint when the scope is opened; a scope
	// with an older checkpoint is dropped. 0 means no bound: the server decides what is
	// too old.
	MaxAge time.Duration
	// Epoch names a history of the cluster. If it differs from the epoch that the file
	// was last opened with, all stored scopes are dropped. Change it, for example, after
	// the cluster's etcd was restored. "" keeps the epoch of the file. Resource versions
	// that a scope had reached are of another history then, if it is listed at a lower
	// one: see store.LogState.Above.
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
	if o.HistoryBytes <= 0 {
		o.HistoryBytes = 256 << 20
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 256 << 20
	}
	if o.Logger.IsZero() {
		o.Logger = klog.Background()
	}
}

// NetworkFSError reports a file on a file system that several machines can share. Open
// and OpenReadOnly return it unless Options.AllowNetworkFS is set. The file is not
// changed.
type NetworkFSError = boltfile.NetworkFSError

// DB is a database in one bbolt file. It is a store.Backend.
type DB struct {
	path     string // as the caller passed it
	opts     Options
	readOnly bool
	file     *boltfile.File
	// epoch is that of the file: Options.Epoch or, if that is "", the one that was found.
	// It is set before any scope is opened.
	epoch string

	keys seal.Keys

	shared

	// openMu is held for reading while a scope is opened and for writing while scopes are
	// wiped. It is locked before all other locks.
	openMu sync.RWMutex

	// mu protects the fields below.
	mu      sync.Mutex
	scopes  map[string]*scopeStore // every scope that was opened, by id
	commits store.Commits          // without the fields that belong to one scope

	overwhelm atomic.Bool // more than MaxPending bytes wait, and that was logged

	stop      context.CancelFunc // ends the committer after one last commit
	committer *committer
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
// Errors: an empty path; store.ErrLocked after Options.LockTimeout; store.ErrNotOurs for
// a file of another kind; *NetworkFSError; a file of another format version, one that is
// not a regular file, and one that exists and may not be opened (fs.ErrPermission); and
// scopes of another Options.Epoch that the disk refuses to drop. The file is not changed.
// A program that must start nevertheless goes on with WithoutFile.
func Open(path string, opts Options) (*DB, error) {
	opts.applyDefaults()
	if path == "" {
		return nil, errNoPath
	}
	if opts.EncryptAll && opts.Keys == nil {
		return nil, errors.New("open cache: EncryptAll needs Keys")
	}
	d, err := newDB(path, opts, false)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if err = d.file.Open(); err != nil && !isCallers(d.path, err) {
		d.suspend(err)
		return d, nil
	}
	if err == nil {
		if err = d.beginEpoch(); err != nil {
			_ = d.file.Close() // else its lock would stay held
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop = cancel
	go d.committer.run(ctx)
	return d, nil
}

// errNoPath is the error for what a program passes that has not read its configuration.
var errNoPath = errors.New("open cache: the path is empty, and has to name a file")

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
	if scopes := tx.Bucket(layout.Scopes); scopes != nil {
		var ids []string
		_ = scopes.ForEachBucket(func(id []byte) error { ids = append(ids, string(id)); return nil })
		reached := layout.ReadReached(tx, ids)
		if err := tx.DeleteBucket(layout.Scopes); err != nil {
			return err
		}
		if err := layout.WriteReached(tx, reached); err != nil {
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
	if path == "" {
		return nil, errNoPath
	}
	d, err := newDB(path, opts, true)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	close(d.committer.done)
	d.stop = func() {}
	if err = d.file.OpenReadOnly(); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	return d, nil
}

// newDB returns a database that has not opened its file. Without a current directory, it
// returns one with a relative path beside the error.
func newDB(path string, opts Options, readOnly bool) (*DB, error) {
	d := &DB{
		path: path, opts: opts, readOnly: readOnly, epoch: opts.Epoch,
		scopes: map[string]*scopeStore{},
		shared: shared{
			changed: make(chan struct{}, 1),
			urgent:  make(chan struct{}, 1),
		},

		// 1 ms to 33 s, and 1 KiB to 1 GiB.
		commits: store.Commits{Durations: newBuckets(0.001, 2, 16), Sizes: newBuckets(1024, 4, 11)},
	}
	d.committer = &committer{DB: d, done: make(chan struct{})}
	d.keys.Provider = opts.Keys
	d.keys.Wrapped = func() { d.tell(false) } // the committer writes them
	d.logs.Max, d.logs.Exceeded = opts.HistoryBytes, func() { d.tell(false) }
	var err error
	d.file, err = boltfile.New(path, boltfile.Options{
		ReadOnly: readOnly, LockTimeout: opts.LockTimeout, MaxBytes: opts.MaxBytes,
		AllowNetworkFS: opts.AllowNetworkFS, Logger: opts.Logger,
		Marker: layout.FormatPrefix, HoldsEntries: holdsEntries,
	}, (*owner)(d))
	return d, err
}

// SetAside returns where the last damaged file was moved, or "" if there was none.
func (d *DB) SetAside() string { return d.file.SetAside() }

// Path returns the absolute path of the file.
func (d *DB) Path() string { return d.file.Path() }

func (d *DB) isClosed() bool { return d.file.IsClosed() }

// view runs fn in a read transaction: see boltfile.File.View.
func (d *DB) view(where string, fn func(*bbolt.Tx) error) error { return d.file.View(where, fn) }

// update runs fn in a write transaction: see boltfile.File.Update.
func (d *DB) update(where string, fn func(*bbolt.Tx) error) error {
	return d.file.Update(context.Background(), where, fn)
}

func (d *DB) corrupt(where string, err error) error {
	return &store.CorruptionError{Path: d.path, Where: where, Err: err}
}

// Close implements store.Backend. It writes the waiting changes, ends the committer and
// releases the file. If waiting changes are lost with the file meanwhile, it returns the
// cause.
func (d *DB) Close() error {
	d.closeOnce.Do(func() {
		d.file.EndCopies() // else what follows may wait for their readers
		d.mu.Lock()
		for _, s := range d.scopes { // what was lost before is no error of Close
			s.locked(func(s *state) { s.lostErr = nil })
		}
		d.mu.Unlock()
		// The last commit does not open the file again. What waits has its error.
		if err := d.file.Retry(); err != nil {
			d.opts.Logger.Error(err, "Could not open the cache again to write the last changes", "path", d.path)
		}
		d.mu.Lock()
		d.file.EndUse()
		scopes := make([]*scopeStore, 0, len(d.scopes))
		for _, s := range d.scopes {
			scopes = append(scopes, s)
		}
		d.mu.Unlock()
		for _, s := range scopes {
			s.endWrites()
		}
		d.stop()
		<-d.committer.done
		closeError := d.file.Close()
		for _, s := range scopes {
			d.closeError = errors.Join(d.closeError, s.unwritten())
			s.locked((*state).closed)
		}
		d.closeError = errors.Join(d.closeError, closeError)
	})
	return d.closeError
}
