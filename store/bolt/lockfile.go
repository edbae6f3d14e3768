package bolt

import (
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
