package source

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

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/space"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// CopyTo writes the copy of the file that the process sends to a new file, and syncs it
// to disk.
func (p *Process) CopyTo(e cmdutil.Env, path string) error {
	// The process copies its file before it begins to answer.
	p.client.Transport.(*http.Transport).ResponseHeaderTimeout = 0
	body, err := p.Ask("/v1/snapshot", nil)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if info, err := os.Stat(p.Path); err == nil {
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
	_, err = io.Copy(&checkedWriter{Writer: w, ctx: p.Ctx, meter: m}, body)
	var onDisk *fs.PathError
	if err != nil && !errors.Is(err, cmdutil.ErrInterrupted) && !errors.As(err, &onDisk) && w.Short == nil {
		err = p.Failed(err)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// OpenWhole opens the file itself for reading, or a copy that the process that holds it
// has made, which has no name any more and is gone however the command ends. The caller
// must close it.
func (f *FileFlags) OpenWhole(ctx context.Context, e cmdutil.Env, showSecrets bool) (*Database, error) {
	ctx, stop := cmdutil.Interruptible(ctx)
	defer stop()
	db, err := f.Open(ctx, showSecrets)
	if err != nil {
		return nil, err
	}
	process := db.Process()
	if process == nil {
		return db, nil
	}
	defer func() { _ = process.Close() }()
	dir, err := os.MkdirTemp("", "informctl-*")
	if err != nil {
		return nil, err
	}
	copied := filepath.Join(dir, "copy.db")
	err = process.CopyTo(e, copied)
	var whole *Database
	if err == nil {
		if whole, err = openCopy(copied, f.Keys, showSecrets); err != nil {
			err = &cmdutil.CopyError{Err: err, Copy: copied, Path: f.Path}
		}
	}
	removeErr := os.RemoveAll(dir)
	if err != nil {
		return nil, err
	}
	whole.Path, whole.isCopy = f.Path, true
	if removeErr != nil {
		whole.leftover = dir
	}
	return whole.of(f.Cluster)
}

// openCopy opens a copy, which may be on NFS or FUSE: no other process has it.
func openCopy(path string, keys codec.KeyProvider, showSecrets bool) (*Database, error) {
	file, err := bolt.OpenReadOnly(path, bolt.Options{Keys: keys, Logger: noLogger, AllowNetworkFS: true})
	return databaseOf(path, showSecrets, file, err)
}

// CheckCopy reads a whole copy of the file that the process has sent.
func (f *FileFlags) CheckCopy(ctx context.Context, e cmdutil.Env, path string) error {
	db, err := openCopy(path, f.Keys, true)
	if err == nil {
		err = errors.Join(db.Whole(ctx, e), db.Close())
	}
	if err != nil {
		return &cmdutil.CopyError{Err: err, Copy: path, Path: f.Path}
	}
	return nil
}

// Named replaces the name of a copy in a read error with the name of the file that the
// user knows.
func (d *Database) Named(err error) error {
	if d.isCopy && err != nil {
		return &cmdutil.CopyError{Err: err, Copy: d.File.Path(), Path: d.Path}
	}
	return err
}

// CopyPages writes the pages of the file as one read transaction sees them. Damaged pages
// are an error. If there is no space for them, it also sets to.Short.
func CopyPages(ctx context.Context, e cmdutil.Env, path string, to *space.Writer) error {
	return Guard(path, func() error { return copyPages(ctx, e, path, to) })
}

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

// Guard returns an error if bbolt panics or faults on damaged pages.
func Guard(path string, fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = &store.CorruptionError{Path: path, Where: "pages", Err: fmt.Errorf("bbolt: %v", r)}
		}
	}()
	return fn()
}

// checkedWriter writes until its context ends, and shows the progress.
type checkedWriter struct {
	io.Writer
	ctx   context.Context
	done  int
	meter *cmdutil.Meter
}

func (w *checkedWriter) Write(p []byte) (int, error) {
	if w.ctx.Err() != nil {
		return 0, cmdutil.ErrInterrupted
	}
	n, err := w.Writer.Write(p)
	w.done += n
	w.meter.Set(w.done)
	return n, err
}
