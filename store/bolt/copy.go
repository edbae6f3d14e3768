package bolt

import (
	"fmt"
	"io"
)

// CopyTo writes the file as of the last commit to w and returns the number of bytes
// written. The copy is a database that Open accepts. One read transaction stays open
// meanwhile, and each commit makes the file grow, so w should be fast, for example a
// local file: when the file outgrows the memory that it is mapped to, the first 1 GiB or
// the next one, writes and new reads wait for the end of the copy. Otherwise CopyTo
// blocks neither. It is safe for concurrent use. If a write fails meanwhile, so that the
// file has to be opened again, it returns an error, and store.ErrClosed if the database
// is closed.
func (d *DB) CopyTo(w io.Writer) (n int64, err error) {
	if n, err = d.file.CopyTo(w); err != nil {
		return n, fmt.Errorf("copy %s: %w", d.path, err)
	}
	return n, nil
}
