package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
)

// WithoutFile returns a database that works without a file, because of cause: see
// DB.Suspended. It is for a program that must start although Open has returned an error.
// path is the one that was passed to Open.
func WithoutFile(path string, cause error, opts Options) *DB {
	opts.applyDefaults()
	d, _ := newDB(path, opts, false)
	d.suspend(cause)
	return d
}

// Suspended returns why the database works without a file, or nil if it has one. Without
// a file, opening a scope returns that error, and informers hold their objects in memory:
// they list at each start, and report themselves as degraded. Ledgers are empty and
// cannot be written. Nothing looks for the file again before the next Open.
func (d *DB) Suspended() error { return d.file.Suspended() }

// suspend makes the database work without a file.
func (d *DB) suspend(cause error) {
	d.file.Suspend(cause)
	d.opts.Logger.Error(cause, "Cache file cannot be used, going on without", "path", d.path)
	d.stop = func() {}
	close(d.committer.done)
}

// isCallers reports whether Open returns err: path is not that of a cache, or another
// process uses the file. Nothing else may keep a program from starting.
func isCallers(path string, err error) bool {
	var network *NetworkFSError
	var format *formatError
	if errors.Is(err, store.ErrLocked) || errors.Is(err, store.ErrNotOurs) || errors.As(err, &network) || errors.As(err, &format) {
		return true
	}
	info, statErr := os.Lstat(path)
	if statErr != nil {
		return false
	}
	var opened *fs.PathError
	isClosedToUs := errors.As(err, &opened) && opened.Op == "open" && errors.Is(opened, fs.ErrPermission)
	return isClosedToUs || !info.Mode().IsRegular()
}

// formatError reports a file of another format version.
type formatError struct{ path, format string }

func (e *formatError) Error() string {
	return fmt.Sprintf("%s has %s; this program reads %s", e.path, e.format, layout.Format)
}
