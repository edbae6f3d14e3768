package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/informctl/informctl/store/bolt/internal/pagefile"
)

const (
	// corruptSuffix separates a database's name from the time at which the file was set
	// aside.
	corruptSuffix = ".corrupt-"
	// reasonSuffix ends the name of the text file beside it.
	reasonSuffix = ".reason"
)

// setAside renames a damaged file, removes files that were set aside earlier, and writes
// the reason next to it. It returns the new name also if the directory could not be
// synced. The caller holds the lock.
func setAside(path string, cause error, logger logr.Logger) (string, error) {
	earlier, err := filepath.Glob(globEscape(path) + corruptSuffix + "*")
	if err != nil {
		return "", fmt.Errorf("find earlier damaged files: %w", err)
	}
	aside := path + corruptSuffix + time.Now().UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set damaged file aside: %w", err)
	}
	for _, old := range earlier {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			logger.Error(err, "An earlier damaged cache file cannot be removed, it stays", "path", old)
		}
	}
	// The reason is optional: a full disk must not keep the cache from starting.
	_ = os.WriteFile(aside+reasonSuffix, []byte(cause.Error()+"\n"), 0o600)
	return aside, syncDir(filepath.Dir(path))
}

func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return d.Sync()
}

// replaceDamaged sets the file aside while it holds the file's lock.
func (f *File) replaceDamaged(cause error) error {
	damaged, _, err := pagefile.OpenLocked(f.at(), os.O_RDWR, f.opts.LockTimeout)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another process has set it aside already
	}
	if err != nil {
		return err
	}
	defer pagefile.Unlock(damaged)
	if now, err := damaged.Stat(); err != nil || !os.SameFile(now, f.info) {
		return err // nil: another process has replaced it
	}
	if err := closeToOthers(damaged, f.path, f.info); err != nil {
		f.opts.Logger.Error(err, "The damaged cache file stays readable by everybody", "path", f.path)
	}
	aside, err := setAside(f.at(), cause, f.opts.Logger)
	if aside == "" {
		return err
	}
	f.mu.Lock()
	f.setAside = aside
	f.mu.Unlock()
	f.rebuilds.Add(1)
	f.opts.Logger.Error(cause, "Cache file is damaged, starting with a fresh one", "path", f.path, "setAside", aside)
	return err
}
