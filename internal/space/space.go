// Package space keeps copies of a database from filling the volume, which would keep the
// process that writes the database from writing.
package space

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// ErrShort indicates that a copy would leave too little space on a volume.
var ErrShort = errors.New("too little space")

// A tenth of a volume is left to those who write to it, within these bounds: it takes the
// commits of the time in which somebody makes room.
const (
	part     = 10
	minSpare = 4 << 20
	maxSpare = 256 << 20
)

// Free returns how many bytes the volume of path has for this process. It is not known of
// a volume that does not say how many it has.
func Free(path string) (bytes int64, known bool) {
	free, _, known := volume(path)
	return free, known
}

func volume(path string) (free, total int64, known bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil || stat.Blocks == 0 {
		return 0, 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), int64(stat.Blocks) * int64(stat.Bsize), true //nolint:unconvert // other types on other systems
}

// Check returns ErrShort if n more bytes would leave too little space on the volume of
// path, which names a file or a directory. A volume that does not say how much space it
// has is not checked.
func Check(path string, n int64) error {
	free, total, known := volume(path)
	if !known {
		return nil
	}
	return check(path, n, free, total)
}

func check(path string, n, free, total int64) error {
	spare := min(max(total/part, minSpare), maxSpare)
	if free-spare >= n {
		return nil
	}
	return fmt.Errorf("%w at %s: %d bytes are to be written, %d are free, and %d of these stay for those who write there", ErrShort, path, n, free, spare)
}

// Writer checks the space before each write.
type Writer struct {
	io.Writer
	Path  string // on the volume that is written to
	Short error  // of Check, for the write that was refused
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	if w.Short = Check(w.Path, int64(len(b))); w.Short != nil {
		return 0, w.Short
	}
	return w.Writer.Write(b)
}
