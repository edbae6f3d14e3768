package bolt

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file that is damaged repeatedly shows that its disk cannot be trusted, and each
// rebuild costs a full list. After maxRebuilds rebuilds within rebuildWindow the database
// is not rebuilt again: its scopes cannot be opened and informers run in memory until the
// window has passed. The text file next to a file that was set aside contains the times.
var maxRebuilds = 3

const (
	rebuildWindow = 10 * time.Minute
	reasonSuffix  = ".reason"
)

// recentRebuilds returns the times at which the file was rebuilt within the window.
func recentRebuilds(path string, now time.Time) (times []time.Time) {
	reasons, err := filepath.Glob(globEscape(path) + corruptSuffix + "*" + reasonSuffix)
	if err != nil || len(reasons) == 0 {
		return nil
	}
	b, err := os.ReadFile(slices.Max(reasons))
	if err != nil {
		return nil // the times are not known
	}
	for line := range strings.Lines(string(b)) {
		at, err := time.Parse(time.RFC3339, strings.TrimSpace(line))
		if err == nil && now.Sub(at) < rebuildWindow && !at.After(now) {
			times = append(times, at)
		}
	}
	return times
}

// reason returns the text that is stored next to a file that is set aside.
func reason(cause error, rebuilds []time.Time) string {
	var b strings.Builder
	b.WriteString(cause.Error() + "\nbegun again at\n")
	for _, at := range rebuilds {
		b.WriteString(at.UTC().Format(time.RFC3339) + "\n")
	}
	return b.String()
}

// corruptSuffix separates a database's name from the time at which the file was set
// aside.
const corruptSuffix = ".corrupt-"

// setAside renames a damaged file, removes files that were set aside earlier, and writes
// the reason next to it. The caller holds the lock.
func setAside(path string, cause error) (string, error) {
	now := time.Now()
	rebuilds := append(recentRebuilds(path, now), now)
	earlier, err := filepath.Glob(globEscape(path) + corruptSuffix + "*")
	if err != nil {
		return "", fmt.Errorf("find earlier damaged files: %w", err)
	}
	aside := path + corruptSuffix + now.UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("set damaged file aside: %w", err)
	}
	for _, old := range earlier {
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return aside, fmt.Errorf("remove earlier damaged file: %w", err)
		}
	}
	// The reason is optional: a full disk must not keep the cache from starting.
	_ = os.WriteFile(aside+reasonSuffix, []byte(reason(cause, rebuilds)), 0o600)
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
