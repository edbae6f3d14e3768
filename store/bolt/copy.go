package bolt

import (
	"fmt"
	"io"

	bbolt "go.etcd.io/bbolt"
)

// CopyTo writes the file as it is after the last commit and returns the bytes
// written. The copy is a database that Open takes. One read transaction is open
// meanwhile, in which the file grows with each commit, so w is to be something
// fast: a local file. Safe for concurrent use; writers and readers go on.
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
