package bolt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sync/semaphore"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// view runs fn in a read transaction. fn must copy what it needs and must not call user
// code, because the file grows while a transaction is open.
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

// endRead ends a read transaction and records its duration since began.
func (d *DB) endRead(tx *bbolt.Tx, began time.Time) {
	_ = tx.Rollback()
	took := int64(time.Since(began))
	for longest := d.longestRead.Load(); took > longest && !d.longestRead.CompareAndSwap(longest, took); {
		longest = d.longestRead.Load()
	}
}

// begin begins a transaction. The caller must hold handleMu.
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

// update runs fn in a write transaction; readers continue meanwhile. After an error it
// reopens the file, because the state of the file is unknown.
func (d *DB) update(where string, fn func(*bbolt.Tx) error) error {
	return d.updateFor(context.Background(), where, fn)
}

// updateFor is like update, and returns the error of ctx if that ends before fn can run.
func (d *DB) updateFor(ctx context.Context, where string, fn func(*bbolt.Tx) error) error {
	if d.readOnly {
		return store.ErrReadOnly
	}
	if d.suspended != nil {
		return d.suspended
	}
	if err := d.writeMu.LockFor(ctx); err != nil {
		return err
	}
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

// isNext reports whether a transaction with that number follows what this process has
// written: the last transaction, or one more whose commit returned an error but may be in
// the file.
func (d *DB) isNext(number uint64) bool { return number == d.written+1 || number == d.written+2 }

// noHandle returns why there is no handle: the database was closed or suspended, or the
// file could not be reopened after a failed write.
func (d *DB) noHandle() error {
	if d.isClosed() {
		return store.ErrClosed
	}
	if d.suspended != nil {
		return d.suspended
	}
	return d.corrupt("file", errNoHandle)
}
