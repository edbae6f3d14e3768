package boltfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	bbolt "go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sync/semaphore"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// View runs fn in a read transaction. fn must copy what it needs and must not call user
// code, because the file grows while a transaction is open.
func (f *File) View(where string, fn func(*bbolt.Tx) error) error {
	return f.Read(where, func(_ bool, begin func() error) error { return begin() }, fn)
}

// Read is like View, for what has to be of the same moment as the transaction: at locks
// that, calls begin, copies it and unlocks. It must not wait otherwise. isOpen says
// whether begin can begin a transaction. If at returns nil and has not called begin, fn
// gets no transaction.
func (f *File) Read(where string, at func(isOpen bool, begin func() error) error, fn func(*bbolt.Tx) error) error {
	f.handleMu.RLock()
	defer f.handleMu.RUnlock()
	var tx *bbolt.Tx
	err := at(f.handle != nil, func() (err error) {
		if f.handle == nil {
			return f.noHandle()
		}
		tx, err = f.begin(where, false)
		return err
	})
	if err != nil {
		if tx != nil {
			_ = tx.Rollback()
		}
		return err
	}
	if tx == nil {
		return fn(nil)
	}
	began := time.Now()
	return pagefile.Guard(f.path, where, func() error {
		defer f.endRead(tx, began)
		return fn(tx)
	})
}

// endRead ends a read transaction and records its duration since began.
func (f *File) endRead(tx *bbolt.Tx, began time.Time) {
	_ = tx.Rollback()
	took := int64(time.Since(began))
	for longest := f.longestRead.Load(); took > longest && !f.longestRead.CompareAndSwap(longest, took); {
		longest = f.longestRead.Load()
	}
}

// begin begins a transaction. The caller must hold handleMu.
func (f *File) begin(where string, write bool) (tx *bbolt.Tx, err error) {
	f.beginMu.Lock()
	defer f.beginMu.Unlock()
	if f.poisoned {
		return nil, f.corrupt(where, errors.New("the file was cut or overwritten"))
	}
	err = pagefile.Guard(f.path, where, func() (err error) {
		tx, err = f.handle.Begin(write)
		return err
	})
	f.poisoned = errors.Is(err, pagefile.ErrPanicked)
	return tx, err
}

// Update runs fn in a write transaction; readers continue meanwhile. After an error it
// reopens the file, because the state of the file is unknown, unless nothing was written
// and nothing is damaged. It returns the error of ctx if that ends before fn can run.
func (f *File) Update(ctx context.Context, where string, fn func(*bbolt.Tx) error) error {
	if f.opts.ReadOnly {
		return store.ErrReadOnly
	}
	if f.suspended != nil {
		return f.suspended
	}
	if err := f.writeMu.LockFor(ctx); err != nil {
		return err
	}
	defer f.writeMu.Unlock()
	err := f.Try(where, fn)
	if err == nil || errors.Is(err, store.ErrClosed) {
		delete(f.damaged, where)
		return err
	}
	if IsDamage(err) {
		f.damaged[where]++
	} else if errors.As(err, &undone{}) {
		return err
	}
	return errors.Join(err, f.Reopen(IsDamage(err) && f.damaged[where] > 1, err))
}

// undone is the error of a transaction that was rolled back before bbolt has written
// anything: the file and the handle are as before it.
type undone struct{ error }

// Unwrap returns why it was rolled back.
func (u undone) Unwrap() error { return u.error }

// Lock takes the lock that every writer holds.
func (f *File) Lock() { f.writeMu.Lock() }

// Unlock releases it.
func (f *File) Unlock() { f.writeMu.Unlock() }

// Try runs fn in a write transaction, unless the file was removed or replaced under its
// name. After an error the caller, who must hold the lock, has to call Reopen.
func (f *File) Try(where string, fn func(*bbolt.Tx) error) error {
	if err := f.isThere(); err != nil {
		return err
	}
	return f.try(where, fn)
}

// IsDamage reports whether an error says that the file is damaged, and not only that it
// could not be opened again.
func IsDamage(err error) bool {
	return errors.Is(err, store.ErrCorrupt) && !errors.Is(err, ErrNoHandle)
}

// errWritten indicates that a program which takes no locks has written to the file.
var errWritten = errors.New("another process has written to it")

// ErrNoHandle indicates that a file cannot be written until a write has opened it again,
// and cannot be read either, unless there is a handle for that: see readOn.
var ErrNoHandle = errors.New("could not be opened again after a write that failed")

// writeLock is a mutex that can be waited for as long as a context lasts.
type writeLock struct{ one *semaphore.Weighted }

func newWriteLock() writeLock { return writeLock{semaphore.NewWeighted(1)} }

// LockFor locks l, or returns the error of ctx.
func (l writeLock) LockFor(ctx context.Context) error {
	if err := ctx.Err(); err != nil || l.one.TryAcquire(1) {
		return err
	}
	return l.one.Acquire(ctx, 1)
}

// Lock implements sync.Locker.
func (l writeLock) Lock() { _ = l.LockFor(context.Background()) }

// Unlock implements sync.Locker.
func (l writeLock) Unlock() { l.one.Release(1) }

// isThere returns an error if the file was removed or replaced under its name. An open
// file does not show that.
func (f *File) isThere() error {
	f.handleMu.RLock()
	defer f.handleMu.RUnlock()
	if f.handle == nil {
		return nil
	}
	if named, err := os.Lstat(f.absolute); err != nil || !os.SameFile(named, f.working) {
		return fmt.Errorf("%s was removed or replaced", f.path)
	}
	return nil
}

func (f *File) try(where string, fn func(*bbolt.Tx) error) error {
	f.handleMu.RLock()
	defer f.handleMu.RUnlock()
	if !canWrite(f.handle) {
		return f.noHandle()
	}
	tx, err := f.begin(where, true)
	if err != nil {
		return err
	}
	err = pagefile.Guard(f.path, where, func() error {
		number := uint64(tx.ID())
		if !f.isNext(number) {
			return errors.Join(f.corrupt("file", errWritten), tx.Rollback())
		}
		if err := fn(tx); err != nil {
			if failed := tx.Rollback(); failed != nil {
				return errors.Join(err, failed)
			}
			return undone{err}
		}
		f.tried = number
		err := tx.Commit()
		switch {
		case err == nil:
			f.written = number
		case errors.Is(err, bbolterrors.ErrMaxSizeReached):
			return undone{err} // bbolt has its pages before it writes the first one
		}
		return err
	})
	if errors.Is(err, pagefile.ErrPanicked) {
		f.beginMu.Lock()
		f.poisoned = true
		f.beginMu.Unlock()
	}
	return err
}

// isNext reports whether a transaction with that number follows what this process has
// written or tried to write. Several commits in a row may have returned errors.
func (f *File) isNext(number uint64) bool { return f.written < number && number <= f.tried+1 }

// Usable returns an error if the file is closed or suspended.
func (f *File) Usable() error {
	if f.IsClosed() {
		return store.ErrClosed
	}
	return f.suspended
}

// noHandle returns why there is no handle: the file was closed or suspended, or the
// file could not be reopened after a failed write.
func (f *File) noHandle() error {
	if err := f.Usable(); err != nil {
		return err
	}
	return f.corrupt("file", ErrNoHandle)
}
