package bolt

import (
	"os"
	"path/filepath"
	"time"

	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

// Lock takes the lock of the database at path, as Open does. It is for programs that
// replace the file. If another process still has the database open after timeout, Lock
// returns store.ErrLocked. release may be called once.
func Lock(path string, timeout time.Duration) (release func(), err error) {
	f, err := pagefile.LockBeside(path, false, timeout)
	if err != nil {
		return nil, err
	}
	return func() { pagefile.UnlockBeside(f, path, false) }, nil
}

// holdLock creates the database's directory and locks the lock file, unless the lock is
// held already and the lock file still has its name.
func (d *DB) holdLock() error {
	if err := os.MkdirAll(filepath.Dir(d.absolute), 0o700); err != nil {
		return err
	}
	if d.beside != nil && pagefile.IsNamed(d.beside, d.absolute) {
		return nil
	}
	f, err := pagefile.LockBeside(d.at(), false, d.opts.LockTimeout)
	if err != nil {
		return err
	}
	pagefile.UnlockBeside(d.beside, d.absolute, false)
	d.beside = f
	return nil
}
