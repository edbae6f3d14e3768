package pagefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/informctl/informctl/store"
)

// lockPoll is how often a locked file is asked again, as in bbolt.
const lockPoll = 50 * time.Millisecond

// OpenLocked opens the file, or creates it where flag says so, and takes its lock,
// shared for a reader. The lock is taken here, before anything is read, and bbolt takes
// it again for nothing. created says that nobody had made the file before.
func OpenLocked(path string, flag int, timeout time.Duration) (f *os.File, created bool, err error) {
	for deadline := time.Now().Add(timeout); ; {
		f, err := openRegular(path, flag&^os.O_CREATE)
		created := false
		if errors.Is(err, fs.ErrNotExist) && flag&os.O_CREATE != 0 {
			f, err = openRegular(path, flag|os.O_EXCL)
			if errors.Is(err, fs.ErrExist) {
				continue // another process was faster
			}
			created = true
		}
		if err != nil {
			return nil, false, err
		}
		if err := lock(f, path, flag == os.O_RDONLY, deadline); err != nil {
			_ = f.Close()
			return nil, false, err
		}
		// Who had the lock may have set the file aside meanwhile.
		mine, err := f.Stat()
		if err != nil {
			Unlock(f)
			return nil, false, err
		}
		if named, err := os.Lstat(path); err == nil && os.SameFile(mine, named) {
			return f, created, nil
		}
		Unlock(f)
	}
}

// Unlock closes the file and releases its lock, which a mapping that bbolt left
// behind when it panicked would otherwise keep.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

func openRegular(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600) // or a named pipe is waited for
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			return nil, fmt.Errorf("%s is a symbolic link; name the file itself", path)
		}
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		_ = f.Close()
		if err == nil {
			err = fmt.Errorf("%s: %w", path, store.ErrNotOurs)
		}
		return nil, err
	}
	return f, nil
}

func lock(f *os.File, path string, readOnly bool, deadline time.Time) error {
	how := unix.LOCK_EX
	if readOnly {
		how = unix.LOCK_SH
	}
	for ; ; time.Sleep(lockPoll) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: %w", path, store.ErrLocked)
		}
	}
}

// lockSuffix is behind a database's name in that of its lock file.
const lockSuffix = ".lock"

// A process holds the lock of a file beside the database for as long as it has that
// open. The lock of the database itself is given up each time the file is opened again,
// after a write that failed, and would be anybody's then. Close removes the lock file;
// who has waited for its lock then looks whether the file still has its name.

// LockBeside takes that lock, shared for a reader, which makes no file. It returns nil
// where there is none and none can be made, as on a full disk: then the lock of the
// database is all there is. Errors: store.ErrLocked, and a lock file that is not one.
func LockBeside(path string, readOnly bool, timeout time.Duration) (*os.File, error) {
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
		if IsNamed(f, path) {
			return f, nil
		}
		Unlock(f)
	}
}

// IsNamed reports whether f is still the lock file of the database at path.
func IsNamed(f *os.File, path string) bool {
	mine, err := f.Stat()
	named, namedErr := os.Lstat(path + lockSuffix)
	return err == nil && namedErr == nil && os.SameFile(mine, named)
}

// UnlockBeside gives the lock up, and removes its file if that was made by who writes. f
// may be nil.
func UnlockBeside(f *os.File, path string, readOnly bool) {
	if f == nil {
		return
	}
	if !readOnly && IsNamed(f, path) {
		_ = os.Remove(path + lockSuffix)
	}
	Unlock(f)
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
