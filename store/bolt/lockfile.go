package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// lockSuffix is behind a database's name in that of its lock file.
const lockSuffix = ".lock"

// A process holds the lock of a file beside the database for as long as it has that
// open. The lock of the database itself is given up each time the file is opened again,
// after a write that failed, and would be anybody's then. Close removes the lock file;
// who has waited for its lock then looks whether the file still has its name.

// lockBeside takes that lock, shared for a reader, which makes no file. It returns nil
// where there is none and none can be made, as on a full disk: then the lock of the
// database is all there is. Errors: store.ErrLocked, and a lock file that is not one.
func lockBeside(path string, readOnly bool, timeout time.Duration) (*os.File, error) {
	flag := os.O_RDWR | os.O_CREATE
	if readOnly {
		flag = os.O_RDONLY
	}
	for deadline := time.Now().Add(timeout); ; {
		f, err := openRegular(path+lockSuffix, flag)
		switch {
		case errors.Is(err, fs.ErrNotExist) && readOnly, cannotBeMade(err):
			return nil, nil
		case err != nil:
			return nil, err
		}
		if err := lock(f, path, readOnly, deadline); err != nil {
			_ = f.Close()
			return nil, err
		}
		if isNamed(f, path+lockSuffix) {
			return f, nil
		}
		unlock(f)
	}
}

// isNamed reports whether a file still has that name.
func isNamed(f *os.File, path string) bool {
	mine, err := f.Stat()
	named, namedErr := os.Lstat(path)
	return err == nil && namedErr == nil && os.SameFile(mine, named)
}

// unlockBeside gives the lock up, and removes its file if that was made by who writes. f
// may be nil.
func unlockBeside(f *os.File, path string, readOnly bool) {
	if f == nil {
		return
	}
	if !readOnly && isNamed(f, path+lockSuffix) {
		_ = os.Remove(path + lockSuffix)
	}
	unlock(f)
}

// Lock takes the lock of the database at path, as Open does, for a program that replaces
// the file. It waits for timeout; then, and where a process has the database open, the
// error is store.ErrLocked. release may be called once.
func Lock(path string, timeout time.Duration) (release func(), err error) {
	f, err := lockBeside(path, false, timeout)
	if err != nil {
		return nil, err
	}
	return func() { unlockBeside(f, path, false) }, nil
}

// holdLock makes the database's directory and takes the lock beside it, unless it is held
// and its file still has that name.
func (d *DB) holdLock() error {
	if err := os.MkdirAll(filepath.Dir(d.absolute), 0o700); err != nil {
		return err
	}
	if d.beside != nil && isNamed(d.beside, d.absolute+lockSuffix) {
		return nil
	}
	f, err := lockBeside(d.at(), false, d.opts.LockTimeout)
	if err != nil {
		return err
	}
	unlockBeside(d.beside, d.absolute, false)
	d.beside = f
	return nil
}

// cannotBeMade reports whether a file could not be made where others can be read.
func cannotBeMade(err error) bool {
	for _, no := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
