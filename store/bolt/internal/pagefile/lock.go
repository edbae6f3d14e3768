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

// lockPoll is the time between two attempts to lock a file, as in bbolt.
const lockPoll = 50 * time.Millisecond

// OpenLocked opens the file, or creates it if flag contains os.O_CREATE, and takes its
// lock, for a reader a shared one. It takes the lock before anything is read; bbolt then
// takes the same lock again without effect. created reports whether this call created the
// file.
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
		// The previous holder of the lock may have set the file aside meanwhile.
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

// Unlock closes the file and releases its lock. Without the release, a mapping that bbolt
// has left behind after a panic would keep the lock.
func Unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	_ = f.Close()
}

func openRegular(path string, flag int) (*os.File, error) {
	// O_NONBLOCK: opening a named pipe would block.
	f, err := os.OpenFile(path, flag|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
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

// lockSuffix is appended to the path of a database to name its lock file.
const lockSuffix = ".lock"

// A process holds the lock of a file next to the database while it has the database open.
// The lock of the database itself is released each time the file is reopened after a
// failed write, and another process could take it then. Close removes the lock file. A
// process that was waiting for its lock then checks whether the file still has its name.

// LockBeside takes the lock of the lock file. A reader takes a shared lock and does not
// create the file. LockBeside returns nil if there is no lock file and none can be
// created, for example on a full disk: then only the lock of the database protects it.
// Errors: store.ErrLocked, and a lock file that is not a regular file.
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

// UnlockBeside releases the lock, and removes the lock file unless the caller is a
// reader. f may be nil.
func UnlockBeside(f *os.File, path string, readOnly bool) {
	if f == nil {
		return
	}
	if !readOnly && IsNamed(f, path) {
		_ = os.Remove(path + lockSuffix)
	}
	Unlock(f)
}

// cannotBeMade reports whether an error allows reading files but not creating one.
func cannotBeMade(err error) bool {
	for _, no := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EACCES, syscall.EPERM} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}
