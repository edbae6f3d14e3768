package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// OpenFile opens the file itself for reading. It waits for its lock for that long, 0 is
// the default of the store. The caller must close it.
func OpenFile(path string, keys codec.KeyProvider, patience time.Duration) (*bolt.DB, error) {
	// Decoded objects become garbage at once and little is kept. Collecting garbage less
	// often saves a fifth of the time for about ten megabytes of memory.
	setGCPercent(400)
	if err := RefuseSpecial(path); err != nil {
		return nil, err
	}
	return bolt.OpenReadOnly(path, bolt.Options{LockTimeout: patience, Keys: keys, Logger: noLogger})
}

// CollectOften undoes what OpenFile does for commands that end soon. A command that lasts
// calls it after it has opened its file.
func CollectOften() { setGCPercent(100) }

// setGCPercent sets GOGC, unless the user has.
func setGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}

// OpenDatabase opens the file itself for reading. The caller must close it.
func OpenDatabase(path string, keys codec.KeyProvider, showSecrets bool) (*Database, error) {
	file, err := OpenFile(path, keys, 0)
	return databaseOf(path, showSecrets, file, err)
}

func databaseOf(path string, showSecrets bool, file *bolt.DB, err error) (*Database, error) {
	if err != nil {
		return nil, OpenError(path, err)
	}
	scopes, err := file.Scopes()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return &Database{Path: path, File: file, Stored: scopes, Scopes: scopes, ShowSecrets: showSecrets}, nil
}

// RefuseSpecial refuses a path that is neither a file nor a directory before it is
// opened: opening a named pipe would block until another process opens it for writing.
func RefuseSpecial(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return nil // opening the file reports the error
	}
	for mode, what := range map[fs.FileMode]string{
		fs.ModeNamedPipe: "a named pipe", fs.ModeDevice: "a device", fs.ModeSocket: "a socket",
	} {
		if info.Mode()&mode != 0 {
			return fmt.Errorf("%s is %s; an informctl cache is a regular file", path, what)
		}
	}
	return nil
}

// noLogger is for commands that print the errors themselves.
var noLogger = funcr.New(func(string, string) {}, funcr.Options{})

// OpenToWrite opens the file for writing, and makes one that is missing. The caller must
// close it.
func OpenToWrite(path string, keys codec.KeyProvider) (*bolt.DB, error) {
	db, err := bolt.Open(path, bolt.Options{Keys: keys, Logger: noLogger})
	if err == nil && db.Suspended() != nil {
		return nil, errors.Join(db.Suspended(), db.Close())
	}
	return db, err
}

// OpenError describes to a user why a file cannot be opened.
func OpenError(path string, err error) error {
	var damage *store.CorruptionError
	var file *fs.PathError
	var network *bolt.NetworkFSError
	switch {
	case errors.As(err, &network):
		return fmt.Errorf("%s is on %s, where locks and mapped memory cannot be trusted; --db must name a file on a local disk", path, network.FileSystem)
	case errors.As(err, &damage):
		return damage
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such file; informctl run RESOURCE --db %s makes one", path, path)
	case errors.Is(err, store.ErrLocked):
		return lockedError{path, holder(path)}
	case errors.Is(err, store.ErrNotOurs) && isDirectory(path):
		return fmt.Errorf("%s is a directory; an informctl cache is a regular file", path)
	case errors.Is(err, store.ErrNotOurs):
		return fmt.Errorf("%s is not an informctl cache; it was not changed", path)
	case errors.As(err, &file):
		return fmt.Errorf("%s: %w", path, file.Err)
	}
	return err
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// lockedError is the error of a file that another process holds.
type lockedError struct{ path, holder string }

func (e lockedError) Error() string {
	return fmt.Sprintf("%s is in use by %s; try again when that has ended", e.path, e.holder)
}

func (lockedError) Is(target error) bool { return target == store.ErrLocked }

// silentError is the error of one that another process holds, which does not answer.
type silentError struct{ path, holder string }

func (e silentError) Error() string {
	return fmt.Sprintf("%s is in use by %s, which does not answer at %s; inspect.Serve in it makes it answer, or try again when that has ended",
		e.path, e.holder, inspect.SocketPath(e.path))
}

func (silentError) Is(target error) bool { return target == ErrNobody }

// Unanswered returns err, which says that nobody answers for a file, or a better reason.
func Unanswered(path string, err error) error {
	if _, statErr := os.Stat(path); statErr != nil {
		return OpenError(path, statErr)
	}
	file, openErr := OpenFile(path, nil, time.Nanosecond)
	if errors.Is(openErr, store.ErrLocked) {
		return silentError{path, holder(path)}
	}
	if openErr == nil {
		_ = file.Close()
	}
	return err
}

// InUse adds what to do if another process holds the file; or is another way.
func InUse(path string, err error, or string) error {
	if !errors.Is(err, store.ErrLocked) {
		return err
	}
	return fmt.Errorf("%s is in use by %s; end that first%s", path, holder(path), or)
}

// Open opens the file for reading, or queries the process that holds it, until ctx ends.
// The caller must close the database.
func (f *FileFlags) Open(ctx context.Context, showSecrets bool) (*Database, error) {
	// A single attempt: the process that holds the file may answer queries.
	file, err := OpenFile(f.Path, f.Keys, time.Nanosecond)
	if errors.Is(err, store.ErrLocked) {
		db, askErr := OpenProcess(ctx, f.Path, showSecrets)
		if askErr == nil {
			return db.of(f.Cluster)
		}
		if !errors.Is(askErr, ErrNobody) {
			return nil, askErr
		}
		// Other commands hold a file for a moment and do not serve queries.
		if file, err = OpenFile(f.Path, f.Keys, 0); errors.Is(err, store.ErrLocked) {
			return nil, silentError{f.Path, holder(f.Path)}
		}
	}
	db, err := databaseOf(f.Path, showSecrets, file, err)
	if err != nil {
		return nil, err
	}
	return db.of(f.Cluster)
}

// of returns the database with what is of one cluster, or closes it.
func (d *Database) of(cluster string) (*Database, error) {
	if err := d.OfCluster(cluster); err != nil {
		_ = d.Close()
		return nil, err
	}
	return d, nil
}
