package bolt

import (
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pack"
)

// VerifyLog checks the log of the scope with an ID: each block, each state in it, and
// that they add up. Open does not check it, since the objects do not depend on it. The
// error is a *store.CorruptionError, or store.ErrNotFound. No key is needed.
func (d *DB) VerifyLog(id string) error {
	return d.view("log", func(tx *bbolt.Tx) error {
		b := layout.Scope(tx, id)
		if b == nil {
			return fmt.Errorf("%s: %w", id, store.ErrNotFound)
		}
		return d.verifyLogOf(id, b)
	})
}

func (d *DB) verifyLogOf(id string, b *bbolt.Bucket) error {
	m, err := layout.ReadManifest(id, b)
	if err != nil {
		return d.corrupt("scope "+id, err)
	}
	ids, err := pack.Verify(m, b)
	if err == nil {
		err = changelog.Verify(m, b, ids)
	}
	if err != nil {
		return d.corrupt("log of "+m.Scope().String(), err)
	}
	return nil
}
