package source

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// NewFile creates the file at path whole or not at all. fill writes the content to
// another name, in a temporary directory next to path. It is an error if path exists.
func NewFile(path string, fill func(temporary string) error) (err error) {
	taken := fmt.Errorf("%s exists already; name another file, or remove it", path)
	if _, err := os.Lstat(path); err == nil {
		return taken
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return InDirectory(path, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	temporary := filepath.Join(dir, filepath.Base(path))
	if err := fill(temporary); err != nil {
		return err
	}
	// Unlike a rename, a link does not replace a file that was created in the meantime.
	err = link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return taken
	}
	// There are file systems without links, as exFAT.
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) {
		if _, err := os.Lstat(path); err == nil {
			return taken
		}
		return errors.Join(os.Rename(temporary, path), SyncDir(filepath.Dir(path)))
	}
	if err != nil {
		return err
	}
	// A file with two names is not used. After a power cut it has both or one.
	return errors.Join(os.Remove(temporary), SyncDir(filepath.Dir(path)))
}

// link is os.Link. Only tests change it.
var link = os.Link

// InDirectory describes why no file could be created in the directory of path.
func InDirectory(path string, err error) error {
	if reason := syscall.Errno(0); errors.As(err, &reason) {
		return fmt.Errorf("no file can be made in directory %s: %w", filepath.Dir(path), reason)
	}
	return err
}

// SyncDir makes what was made and renamed in a directory outlive a power cut.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
