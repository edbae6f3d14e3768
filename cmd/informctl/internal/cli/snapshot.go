package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/internal/space"
	"github.com/informctl/informctl/store"
)

func newSnapshotCommand(e cmdutil.Env) *cobra.Command {
	var file databaseFlag
	cmd := &cobra.Command{
		Use:   "snapshot OUT",
		Short: "Copy a file, checked",
		Long: cmdutil.Describe(`Copy a file, checked.

OUT appears when the copy is whole and on the disk; a file of that name is not
replaced. A file that no process holds is checked before. One that a live process holds
is copied by it as of its last commit, while it goes on, and the copy is checked. A
tenth of a volume, 256 MiB at most, stays free for those who write to it: a copy that
does not fit is not begun, and one that gets in their way is not finished.`),
		Example: `  informctl snapshot backup.db --db informers.db
  informctl snapshot /tmp/informers-$(date +%s%N).db --db informers.db`,
		Args: cmdutil.OneArgument("OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return runSnapshot(ctx, e, file, args[0])
		},
	}
	file.add(e, cmd)
	return cmd
}

func runSnapshot(ctx context.Context, e cmdutil.Env, file databaseFlag, out string) error {
	db, err := file.open(ctx, true) // its lock keeps writers out until the end
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if l := db.process(); l != nil {
		return newFile(out, func(temporary string) error {
			if err := l.copyTo(e, temporary); err != nil {
				return err
			}
			if _, err := checked(ctx, e, temporary, file.keys); err != nil {
				return &cmdutil.CopyError{Err: err, Copy: temporary, Path: file.path}
			}
			return nil
		})
	}
	return newFile(out, func(temporary string) error {
		if err := db.whole(ctx, e); err != nil {
			return err
		}
		f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		w := &space.Writer{Writer: f, Path: temporary}
		err = guard(db.path, func() error { return copyPages(ctx, e, db.path, w) })
		if err == nil {
			err = f.Sync()
		}
		closeErr := f.Close()
		if ctx.Err() != nil { // bbolt does not wrap a writer's error
			return cmdutil.ErrInterrupted
		}
		if w.Short != nil {
			err = w.Short
		}
		if err = errors.Join(err, closeErr); err != nil {
			return fmt.Errorf("write %s: %w", out, err)
		}
		return nil
	})
}

// copyTo writes the copy of the file that the process sends to a new file, and syncs it
// to disk.
func (l *live) copyTo(e cmdutil.Env, path string) error {
	// The process copies its file before it begins to answer.
	l.Transport.(*http.Transport).ResponseHeaderTimeout = 0
	body, err := l.ask("/v1/snapshot", nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if info, err := os.Stat(l.path); err == nil {
		if err := space.Check(filepath.Dir(path), info.Size()); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	m := e.NewMeter("copying", cmdutil.BytesUnit, 0)
	defer m.Stop()
	w := &space.Writer{Writer: f, Path: filepath.Dir(path)}
	_, err = io.Copy(&checkedWriter{Writer: w, ctx: l.ctx, meter: m}, body)
	var onDisk *fs.PathError
	if err != nil && !errors.Is(err, cmdutil.ErrInterrupted) && !errors.As(err, &onDisk) && w.Short == nil {
		err = l.failed(err)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// openWhole opens the file itself for reading, or a copy that the process that holds it
// has made, which has no name any more and is gone however the command ends. The caller
// must close it.
func (f *databaseFlag) openWhole(ctx context.Context, e cmdutil.Env, showSecrets bool) (*database, error) {
	ctx, stop := cmdutil.Interruptible(ctx)
	defer stop()
	db, err := f.open(ctx, showSecrets)
	if err != nil {
		return nil, err
	}
	l := db.process()
	if l == nil {
		return db, nil
	}
	defer func() { _ = l.Close() }()
	dir, err := os.MkdirTemp("", "informctl-*")
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "copy.db")
	err = l.copyTo(e, copied)
	var whole *database
	if err == nil {
		if whole, err = openDatabase(copied, f.keys, showSecrets); err != nil {
			err = &cmdutil.CopyError{Err: err, Copy: copied, Path: f.path}
		}
	}
	if removeErr := os.RemoveAll(dir); removeErr != nil && whole != nil {
		err = errors.Join(removeErr, whole.Close())
	}
	if err != nil {
		return nil, err
	}
	whole.path, whole.origin = f.path, copyOrigin{whole.origin}
	return whole, nil
}

// named replaces the name of a copy in a read error with the name of the file that the
// user knows.
func (d *database) named(err error) error {
	if _, ok := d.origin.(copyOrigin); ok && err != nil {
		return &cmdutil.CopyError{Err: err, Copy: d.file.Path(), Path: d.path}
	}
	return err
}

// copyOrigin is a copy.
type copyOrigin struct{ origin }

// copyPages writes the pages of the file as one read transaction sees them.
func copyPages(ctx context.Context, e cmdutil.Env, path string, to *space.Writer) error {
	src, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	return src.View(func(tx *bbolt.Tx) error {
		m := e.NewMeter("copying", cmdutil.BytesUnit, int(tx.Size()))
		defer m.Stop()
		if to.Short = space.Check(to.Path, tx.Size()); to.Short != nil {
			return to.Short
		}
		_, err := tx.WriteTo(&checkedWriter{Writer: to, ctx: ctx, meter: m})
		return err
	})
}

// guard returns an error if bbolt panics or faults on damaged pages.
func guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptionError{Path: path, Where: "pages", Err: fmt.Errorf("bbolt: %v", r)}
		}
	}()
	return fn()
}
