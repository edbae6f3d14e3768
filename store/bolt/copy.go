package bolt

import (
	"fmt"
	"io"

	bbolt "go.etcd.io/bbolt"
)

// CopyTo writes the file as of the last commit to w and returns the number of bytes
// written. The copy is a database that Open accepts. One read transaction stays open
// meanwhile, and each commit makes the file grow, so w should be fast, for example a
// local file. CopyTo is safe for concurrent use; it does not block writers or readers.
func (d *DB) CopyTo(w io.Writer) (n int64, err error) {
	err = d.view("copying", func(tx *bbolt.Tx) error {
		n, err = tx.WriteTo(w)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("copy %s: %w", d.path, err)
	}
	return n, nil
}
