package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	bbolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// Reopen replaces a handle whose state is unknown. It checks what bbolt needs but no
// entries, because Open has checked those.
//
// If the file is damaged or gone, a new file takes its place, and the owner is told that
// all content is lost. The owner is told the same if another program has written the file
// or put another one in its place; what is there is used if it is whole. again means that
// an earlier write has failed because of damage: then the file is replaced without a
// check, because a check that does not read every page may miss the damage. The caller
// must hold the lock.
func (f *File) Reopen(again bool, cause error) error {
	if err := f.replaceHandle(again, cause); err != nil {
		return err
	}
	if isOpen, _ := f.state(); !isOpen { // closed meanwhile
		return nil
	}
	return f.owner.Reopened() // also if the use ends now: the next process reads it
}

// Retry opens the file again if that has failed after a write, and it is not closed.
func (f *File) Retry() error {
	if f.opts.ReadOnly || f.suspended != nil {
		return nil
	}
	if _, writes := f.state(); writes {
		return nil
	}
	f.Lock()
	defer f.Unlock()
	if _, writes := f.state(); writes || f.IsClosed() {
		return nil
	}
	return f.Reopen(false, f.noHandle())
}

// replaceHandle reopens the file or starts a new one. Readers see the new file only after
// the owner knows of the loss and has taken the file over.
func (f *File) replaceHandle(again bool, cause error) (err error) {
	if !again || f.lost { // else the content is given up anyway
		if err := f.stillReadOnly(); err != nil {
			return err
		}
	}
	f.lockAlone(ErrReopened)
	defer f.handleMu.Unlock()
	if f.IsClosed() && f.handle == nil {
		return nil
	}
	if f.handle != nil {
		// The outcome does not depend on this error: openFile below reports every
		// problem.
		_ = f.closeHandle(f.handle)
		f.handle = nil
	}
	before, written, tried := f.working, f.written, f.tried
	if again && !f.lost {
		err = cause
	} else {
		err = f.open(reopening)
	}
	if err == nil {
		isSame := os.SameFile(before, f.working)
		if isSame && !f.lost && written <= f.found && f.found <= tried {
			return nil // the last transaction is in it, perhaps also one that failed
		}
		why := errors.New("another one has its name now")
		if isSame {
			why = errWritten
		}
		if !f.lost {
			f.lose(why)
		}
		if err = f.checkFound(); err == nil {
			if f.lost { // a damaged one costs nothing that is in memory since
				f.lose(why)
			}
			f.lost = false
			clear(f.damaged)
			return f.takeOver()
		}
		f.lost = true
		_ = f.closeHandle(f.handle) // as above
		f.handle = nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.loseOnce(errors.New("it is gone"))
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotOurs) && os.SameFile(before, f.info):
		f.loseOnce(err)
		if err := f.replaceDamaged(err); err != nil {
			return err
		}
	default:
		f.readOn(err, before, written, tried)
		return err
	}
	if err := f.open(creating); err != nil {
		return fmt.Errorf("begin a fresh file: %w", err)
	}
	f.lost = false
	clear(f.damaged)
	return nil
}

// readOn opens a file for reading that cannot be opened for writing because of cause, for
// example because its file system is read-only now. What was written and tried stays: a
// later write opens it again. The caller must hold handleMu for writing.
func (f *File) readOn(cause error, before fs.FileInfo, written, tried uint64) {
	if f.lost || errors.Is(cause, store.ErrLocked) {
		return
	}
	if err := f.open(readingOn); err != nil {
		if errors.Is(err, store.ErrCorrupt) {
			f.loseOnce(err)
		}
		return
	}
	if !os.SameFile(before, f.working) || f.found < written || f.found > tried {
		_ = f.closeHandle(f.handle)
		f.handle = nil
	}
	f.working, f.written, f.tried = before, written, tried
}

// canWrite reports whether a handle, which may be nil, can write.
func canWrite(handle *bbolt.DB) bool { return handle != nil && !handle.IsReadOnly() }

// state reports whether there is a handle, and whether it can write.
func (f *File) state() (isOpen, writes bool) {
	f.handleMu.RLock()
	defer f.handleMu.RUnlock()
	return f.handle != nil, canWrite(f.handle)
}

// stillReadOnly returns why a file that readOn has opened cannot be opened for writing
// yet, so that its readers need not be disturbed. The caller must hold the lock.
func (f *File) stillReadOnly() error {
	if isOpen, writes := f.state(); !isOpen || writes {
		return nil
	}
	opened, err := os.OpenFile(f.at(), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	return checkTrust(opened, f.path, info, &f.opts)
}

// lose tells the owner that all content is lost.
func (f *File) lose(cause error) {
	if !errors.Is(cause, store.ErrCorrupt) {
		cause = f.corrupt("file", cause)
	}
	f.opts.Logger.Error(cause, "Cache file is lost while it is used, its scopes are listed again", "path", f.path)
	f.owner.Lost(cause)
}

// loseOnce calls lose, unless everything is lost already and nothing could be written
// since.
func (f *File) loseOnce(cause error) {
	if !f.lost {
		f.lose(cause)
	}
	f.lost = true
}

// checkFound checks everything in a file that another program has written. The caller
// must hold handleMu for writing.
func (f *File) checkFound() error {
	if err := f.preflight(f.lock, Everything); err != nil {
		return err
	}
	return f.check(f.handle, f.lock, Everything)
}

// takeOver has the owner drop what it cannot use of what another program has put into the
// file. If that fails, the owner has to try again before its first write. The caller must
// hold handleMu for writing.
func (f *File) takeOver() error {
	f.tried = f.written + 1
	err := pagefile.Guard(f.path, "epoch", func() error { return f.handle.Update(f.owner.TakeOver) })
	if err == nil {
		f.written, err = f.lastWritten(f.handle)
	}
	return err
}
