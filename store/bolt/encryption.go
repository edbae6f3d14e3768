package bolt

import (
	"context"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// sealOf returns the seal for opening a scope. It depends on the stored manifest and on
// the options. It keeps Secrets off the disk: without a key, a scope of them is not
// opened for writing, and the error is store.ErrNoKey. isDamaged means that the manifest
// may be unreadable, and does not matter then.
func (d *DB) sealOf(scope store.Scope, isDamaged bool) (*seal.Seal, error) {
	stored, err := d.manifestOf(scope, isDamaged)
	if err != nil {
		return nil, err
	}
	if d.readOnly {
		return d.readersSeal(stored)
	}
	if d.opts.Keys == nil {
		if scope.IsSecret() {
			return nil, fmt.Errorf("%s: a Secret is not written to disk without a key: %w was given", scope, store.ErrNoKey)
		}
		return nil, nil
	}
	if stored.Keys == "" && !d.opts.EncryptAll && !scope.IsSecret() {
		return nil, nil
	}
	keys, err := d.loadKeys(true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", scope, err)
	}
	return seal.For(keys, scope.ID())
}

// manifestOf returns the stored manifest of a scope; that of an empty one if there is
// none, or if it is unreadable and isDamaged is set.
func (d *DB) manifestOf(scope store.Scope, isDamaged bool) (*record.Manifest, error) {
	stored := record.NewManifest(scope)
	id := scope.ID()
	err := d.view("manifest", func(tx *bbolt.Tx) error {
		b := layout.Scope(tx, id)
		if b == nil {
			return nil
		}
		m, err := layout.ReadManifest(id, b)
		switch {
		case err == nil:
			stored = m
		case !isDamaged:
			return d.corrupt("scope "+scope.String(), err)
		}
		return nil
	})
	return stored, err
}

// readersSeal returns the seal for reading a scope. Without the right key it returns a
// seal whose err is set: keys and counts can be read, but no content.
func (d *DB) readersSeal(m *record.Manifest) (*seal.Seal, error) {
	id := m.SealedWith()
	if id == "" {
		return nil, nil
	}
	keys, err := d.loadKeys(false)
	if err == nil && keys.ID() != id {
		err = seal.ErrOtherKey
	}
	if err != nil {
		return seal.Unreadable(fmt.Errorf("%s is encrypted: %w", m.Scope(), err)), nil
	}
	return seal.For(keys, m.Scope().ID())
}

// unreadable returns the error of a failed read: a missing key is not damage.
func (d *DB) unreadable(where string, err error) error {
	if errors.Is(err, store.ErrNoKey) {
		return err
	}
	return d.corrupt(where, err)
}

// storedKeys returns the keys in the file, nil if there are none.
func (d *DB) storedKeys() (stored *seal.Stored, err error) {
	err = d.view("keys", func(tx *bbolt.Tx) error {
		if stored, err = seal.Read(tx); err != nil {
			return d.corrupt("meta", err)
		}
		return nil
	})
	return stored, err
}

// loadKeys returns the file's keys: see seal.Keys.Load.
func (d *DB) loadKeys(begin bool) (*seal.Keyring, error) {
	ring, err := d.keys.Load(d.storedKeys, begin)
	if errors.Is(err, seal.ErrMissing) {
		err = d.corrupt("meta", err)
	}
	return ring, err
}

// Rekey wraps the data keys with the first of Options.Keys and adds a new data key. It
// blocks until both are written, which takes one small transaction. Stored content stays
// under the data keys that sealed it; new content is sealed with the new data key. The
// user's earlier key is no longer needed then. With that key and a copy of the file from
// before the call, the copy can still be read; if a key is known to others, delete the
// file. Opening the file does the first half if the provider has another first key. Rekey
// changes nothing if neither the file nor this database has data keys. A database that
// has opened the data keys before needs no earlier key: the first one of the provider is
// the key from then on. Errors: store.ErrNoKey if none of the user's keys opens the data
// keys, store.ErrReadOnly, and errors of writing.
func (d *DB) Rekey(ctx context.Context) error {
	if d.readOnly {
		return store.ErrReadOnly
	}
	d.openMu.RLock()
	defer d.openMu.RUnlock()
	stored, err := d.storedKeys()
	if err != nil || stored == nil && d.keys.Loaded() == nil {
		return err // after Wipe(nil) there may be keys in memory alone
	}
	user, err := d.keys.User(ctx)
	if err != nil {
		return err
	}
	ring, err := d.loadKeys(false)
	if err != nil {
		return err
	}
	ring.Wrap(user[0], true)
	return d.update("keys", ring.Persist)
}

// writeRewrapped writes the keys that loadKeys has wrapped with another key. The
// committer calls it, because opening a scope must not wait for a write.
func (d *DB) writeRewrapped() {
	ring := d.keys.Dirty()
	if ring == nil {
		return
	}
	if err := d.update("keys", ring.Persist); err != nil { // the next commit retries
		d.keys.Again(ring)
		d.opts.Logger.Error(err, "Could not wrap the data keys with the present key", "path", d.path)
	}
}
