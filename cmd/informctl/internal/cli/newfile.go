package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// newFile creates the file at path whole or not at all. fill writes the content to
// another name, in a temporary directory next to path. It is an error if path exists.
func newFile(path string, fill func(temporary string) error) (err error) {
	taken := fmt.Errorf("%s exists already; name another file, or remove it", path)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return inDirectory(path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	temporary := filepath.Join(dir, filepath.Base(path))
	if err := fill(temporary); err != nil {
		return err
	}
	// Unlike a rename, a link does not replace a file that was created in the meantime.
	if err := os.Link(temporary, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return taken
		}
		return err
	}
	return syncDir(filepath.Dir(path))
}

// inDirectory describes why no file could be created in the directory of path.
func inDirectory(path string, err error) error {
	if reason := syscall.Errno(0); errors.As(err, &reason) {
		return fmt.Errorf("no file can be made in directory %s: %w", filepath.Dir(path), reason)
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
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
