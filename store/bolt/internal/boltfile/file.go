// Package boltfile is one bbolt file whose bytes, name and lock may change under the
// process. It opens, locks and checks the file, sets a damaged one aside, and opens it
// again after a write that failed. It knows pages and transactions, and nothing of what
// is in them: its Owner does.
package boltfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// Options say how a file is opened.
type Options struct {
	ReadOnly       bool
	LockTimeout    time.Duration // also of memory and file descriptors
	MaxBytes       int           // of the file; 0: no bound
	AllowNetworkFS bool
	Logger         logr.Logger
	// Marker begins the name of the format. It is in every file of ours.
	Marker string
	// HoldsEntries reports whether a bucket holds entries, which are checked when they
	// are read.
	HoldsEntries func(depth int, name []byte) bool
}

// Thoroughness says which parts of a file are checked.
type Thoroughness int

const (
	// Leading checks everything that leads to the entries.
	Leading Thoroughness = iota
	// Everything checks the entries, too.
	Everything
)

// Owner knows what is in the file.
type Owner interface {
	// Check checks the content. isOurs is false if the file has no content of ours.
	Check(tx *bbolt.Tx, how Thoroughness) (isOurs bool, err error)
	// Create writes the first content of an empty file.
	Create(tx *bbolt.Tx) error
	// TakeOver drops what cannot be used of a file that another program has written.
	TakeOver(tx *bbolt.Tx) error
	// Lost tells that all content is lost. No reader and no writer runs.
	Lost(cause error)
	// Reopened is called with the write lock after a write has failed and the file was
	// opened again.
	Reopened() error
}

// File is an open file, or one that cannot be used: see Suspend. It is safe for
// concurrent use.
type File struct {
	path     string // as the caller passed it
	absolute string // path made absolute, independent of the current directory
	opts     Options
	owner    Owner

	// handleMu protects handle. Readers hold it for reading during a transaction; a
	// writer holds it for writing while it reopens the file.
	handleMu sync.RWMutex
	handle   *bbolt.DB   // nil after Close; read-only after readOn
	info     fs.FileInfo // of the file that was opened last
	working  fs.FileInfo // of the file of the last working handle
	pageSize int         // of that, in bytes

	// beginMu is held while bbolt begins a transaction. If that panics, because the file
	// was truncated while it was open, bbolt's locks stay locked: the handle is poisoned
	// and must not be used again, not even to close it.
	beginMu  sync.Mutex
	poisoned bool
	lock     *os.File // the file of handle, to release its lock without handle
	found    uint64   // bbolt's number of the last transaction when the file was opened
	// written is the number of the last transaction that this process wrote, and tried
	// that of the last one that it tried to write: a commit that returned an error may be
	// in the file. They change under writeMu.
	written, tried uint64

	beside *os.File // the lock file, whose lock is held until Close; nil if there is none

	// writeMu is held by every writer. bbolt has such a lock too, but writeMu is also
	// held while the file is reopened.
	writeMu writeLock
	// damaged counts the consecutive writes of one kind that have failed because of
	// damage: another kind may succeed, because it needs other pages. writeMu protects
	// it.
	damaged map[string]int
	// lost is set while the content is lost and no fresh file could be begun. What is
	// held in memory since is not lost again. writeMu protects it.
	lost bool

	mu sync.Mutex // protects the fields below, up to suspended
	// setAside is where the last damaged file was moved, or "" if there was none.
	setAside string

	copies map[*io.PipeWriter]bool // those that go on
	noCopy error                   // why none may begin: see lockAlone
	ending bool                    // none begins any more: see EndCopies

	suspended   error        // set before the file is used
	closed      atomic.Bool  // by EndUse
	longestRead atomic.Int64 // nanoseconds of a read transaction
	rebuilds    atomic.Int64 // how often a damaged or lost file was replaced by a new one
}

// New returns a File that is not opened. Without a current directory, it returns one with
// a relative path beside the error.
func New(path string, opts Options, owner Owner) (*File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		absolute = path
	}
	return &File{
		path: path, absolute: absolute, opts: opts, owner: owner, writeMu: newWriteLock(),
		damaged: map[string]int{}, copies: map[*io.PipeWriter]bool{},
	}, err
}

// Path returns the absolute path of the file.
func (f *File) Path() string { return f.absolute }

// SetAside returns where the last damaged file was moved, or "" if there was none.
func (f *File) SetAside() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.setAside
}

// Rebuilds returns how often a damaged or lost file was replaced by a new one.
func (f *File) Rebuilds() int { return int(f.rebuilds.Load()) }

// LongestRead returns the longest duration of a read transaction.
func (f *File) LongestRead() time.Duration { return time.Duration(f.longestRead.Load()) }

// at returns the path of the file: as the caller passed it until the file has been
// opened, so that errors name it, and the absolute path afterwards.
func (f *File) at() string {
	if f.working == nil {
		return f.path
	}
	return f.absolute
}

// scarcePoll is the time between two attempts to open a file while the system has no
// memory or file descriptors.
const scarcePoll = 10 * time.Millisecond

// Open opens the file for writing, or creates it. A damaged one is set aside, and a fresh
// one takes its place. After an error the file is not locked.
func (f *File) Open() error {
	err := f.openForWriting()
	// Another process may be creating the same file: until that process has locked the
	// file, it is empty and looks damaged.
	for tries := 0; errors.Is(err, store.ErrCorrupt) && tries < 5; tries++ {
		if err = f.replaceDamaged(err); err == nil {
			err = f.openForWriting()
		}
	}
	if err != nil {
		f.unlockBeside()
	}
	return err
}

// OpenReadOnly opens an existing file for reading. After an error it is not locked.
func (f *File) OpenReadOnly() (err error) {
	if f.beside, err = pagefile.LockBeside(f.at(), true, f.opts.LockTimeout); err == nil {
		err = f.open(reading)
	}
	if err != nil {
		f.unlockBeside()
	}
	return err
}

// openForWriting tries again until Options.LockTimeout has passed while the system has no
// memory or file descriptors.
func (f *File) openForWriting() error {
	for deadline := time.Now().Add(f.opts.LockTimeout); ; time.Sleep(scarcePoll) {
		err := f.open(creating)
		isScarce := errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
		if !isScarce || time.Now().After(deadline) {
			return err
		}
	}
}

// Suspend makes reads and writes return cause. The file is not opened.
func (f *File) Suspend(cause error) { f.suspended = cause }

// Suspended returns the cause that was given to Suspend, else nil.
func (f *File) Suspended() error { return f.suspended }

// purpose is that for which a file is opened.
type purpose int

const (
	creating  purpose = iota // for writing: checks every entry, creates a missing file
	reopening                // for writing again after a failure
	reading                  // for reading
	readingOn                // for reading, until it can be opened for writing again
)

// open opens and checks the file and sets f.handle.
func (f *File) open(what purpose) error {
	flag := os.O_RDWR
	switch what {
	case reopening:
	case reading, readingOn:
		flag = os.O_RDONLY
	case creating:
		flag |= os.O_CREATE
		if err := f.holdLock(); err != nil {
			return err
		}
	}
	opened, created, err := pagefile.OpenLocked(f.at(), flag, f.opts.LockTimeout)
	if err != nil {
		return err
	}
	uncreate := func() { // the lock is held
		if created {
			_ = os.Remove(f.at())
		}
	}
	if f.info, err = opened.Stat(); err == nil && what != readingOn {
		if err = checkTrust(opened, f.path, f.info, &f.opts); err != nil && !created {
			// What is wrong with a file that is not ours is no matter.
			if notOurs := f.preflight(opened, Leading); errors.Is(notOurs, store.ErrNotOurs) {
				err = notOurs
			}
		}
	}
	how := Leading
	if what == creating {
		how = Everything
	}
	if err == nil && !created {
		err = f.preflight(opened, how)
	}
	if err == nil && flag != os.O_RDONLY {
		err = closeToOthers(opened, f.path, f.info)
	}
	if err != nil {
		uncreate()
		pagefile.Unlock(opened)
		return err
	}
	var handle *bbolt.DB
	err = pagefile.Guard(f.path, "opening", func() (err error) {
		handle, err = pagefile.Handle(f.path, opened, flag == os.O_RDONLY, f.opts.MaxBytes)
		return err
	})
	if err != nil {
		uncreate() // only a part of it may be written
		pagefile.Unlock(opened)
		return f.classify("opening", err)
	}
	found, err := f.lastWritten(handle)
	if err == nil {
		err = f.check(handle, opened, how)
	}
	var written uint64
	if err == nil {
		written, err = f.lastWritten(handle)
	}
	if err != nil {
		uncreate()
		if errors.Is(err, pagefile.ErrPanicked) {
			pagefile.Unlock(opened)
		} else {
			_ = pagefile.Guard(f.path, "closing", handle.Close)
		}
		return err
	}
	f.beginMu.Lock()
	defer f.beginMu.Unlock()
	f.handle, f.lock, f.poisoned, f.working, f.pageSize = handle, opened, false, f.info, handle.Info().PageSize
	f.found, f.written, f.tried = found, written, written
	return nil
}

// preflight checks the pages of a file.
func (f *File) preflight(opened io.ReaderAt, how Thoroughness) error {
	return Preflight(f.path, opened, f.info.Size(), &f.opts, how)
}

// Preflight checks the pages of a file of that size.
func Preflight(path string, file io.ReaderAt, size int64, opts *Options, how Thoroughness) error {
	check := pagefile.Check{Marker: opts.Marker}
	if how == Leading {
		check.Passes = opts.HoldsEntries
	}
	return pagefile.Preflight(path, file, size, check)
}

// lastWritten returns bbolt's number of the last transaction in the file.
func (f *File) lastWritten(handle *bbolt.DB) (number uint64, err error) {
	err = pagefile.Guard(f.path, "opening", func() error {
		return handle.View(func(tx *bbolt.Tx) error {
			number = uint64(tx.ID())
			return nil
		})
	})
	return number, err
}

// classify maps bbolt's errors to errors of the store.
func (f *File) classify(where string, err error) error {
	for _, damage := range []error{bbolterrors.ErrInvalid, bbolterrors.ErrChecksum, bbolterrors.ErrVersionMismatch} {
		if errors.Is(err, damage) {
			return f.corrupt(where, err)
		}
	}
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return fmt.Errorf("%s: %w", f.path, store.ErrLocked)
	}
	return err
}

// check has the owner check the content. It initializes an empty file.
func (f *File) check(handle *bbolt.DB, opened *os.File, how Thoroughness) error {
	var isOurs, isEmpty bool
	err := pagefile.Guard(f.path, "format", func() error {
		return handle.View(func(tx *bbolt.Tx) (err error) {
			first, _ := tx.Cursor().First()
			isEmpty = first == nil
			isOurs, err = f.owner.Check(tx, how)
			return err
		})
	})
	if err != nil || isOurs {
		return err
	}
	if ours, err := pagefile.HasMarker(opened, f.opts.Marker); err != nil || ours {
		return f.corrupt("root", errors.Join(errors.New("buckets are missing"), err))
	}
	if !isEmpty {
		return fmt.Errorf("%s: %w", f.path, store.ErrNotOurs)
	}
	if handle.IsReadOnly() {
		return nil
	}
	return pagefile.Guard(f.path, "creation", func() error { return handle.Update(f.owner.Create) })
}

// VerifyPages checks every page of a file that was opened read-only, and the freelist. It
// ends with ctx.
func (f *File) VerifyPages(ctx context.Context) error {
	f.handleMu.RLock()
	defer f.handleMu.RUnlock()
	if f.handle == nil {
		return f.noHandle()
	}
	return f.preflight(untilDone{ctx, f.lock}, Everything)
}

// CheckBucket checks the pages of one bucket of a file that was opened read-only.
func (f *File) CheckBucket(b *bbolt.Bucket) error {
	return pagefile.CheckBucket(f.lock, uint64(b.Root()))
}

// untilDone is a file whose reads fail after ctx has ended.
type untilDone struct {
	ctx context.Context
	*os.File
}

// ReadAt implements io.ReaderAt.
func (f untilDone) ReadAt(b []byte, off int64) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

// EndUse makes reads and writes return store.ErrClosed once Close is called.
func (f *File) EndUse() { f.closed.Store(true) }

// IsClosed reports whether EndUse was called.
func (f *File) IsClosed() bool { return f.closed.Load() }

// Close waits for the transactions that go on, and releases the file. Copies end then.
func (f *File) Close() (err error) {
	f.lockAlone(store.ErrClosed)
	handle := f.handle
	f.handle = nil
	f.handleMu.Unlock()
	if handle != nil {
		err = f.closeHandle(handle)
	}
	f.unlockBeside()
	return err
}

// closeHandle closes a handle. It does not close a poisoned handle but releases its lock.
func (f *File) closeHandle(handle *bbolt.DB) error {
	f.beginMu.Lock()
	poisoned := f.poisoned
	f.beginMu.Unlock()
	if poisoned {
		pagefile.Unlock(f.lock)
		return nil
	}
	return pagefile.Guard(f.path, "closing", handle.Close)
}

// holdLock creates the directory and locks the lock file, unless the lock is held already
// and the lock file still has its name.
func (f *File) holdLock() error {
	dir := filepath.Dir(f.absolute)
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if missing != nil {
		f.opts.Logger.Info("Made the directory of the cache file", "directory", dir)
	}
	if f.beside != nil && pagefile.IsNamed(f.beside, f.absolute) {
		return nil
	}
	beside, err := pagefile.LockBeside(f.at(), false, f.opts.LockTimeout)
	if err != nil {
		return err
	}
	pagefile.UnlockBeside(f.beside, f.absolute, false)
	f.beside = beside
	return nil
}

func (f *File) unlockBeside() {
	pagefile.UnlockBeside(f.beside, f.absolute, f.opts.ReadOnly)
	f.beside = nil
}

func (f *File) corrupt(where string, err error) error {
	return &store.CorruptionError{Path: f.path, Where: where, Err: err}
}

// Handle returns the handle of bbolt. It is for the holder of the lock, and for the tests
// of packages that use this one. It must not be closed, and is replaced by Reopen.
func (f *File) Handle() *bbolt.DB { return f.handle }

// Locked returns the open file, whose lock keeps other processes from writing to it.
func (f *File) Locked() *os.File { return f.lock }

// Detach makes the file as after a Reopen that has failed, until attach is called. It is
// for the tests of packages that use this one. The caller must hold the lock.
func (f *File) Detach() (attach func()) {
	handle := f.handle
	f.handle = nil
	return func() { f.handle = handle }
}
