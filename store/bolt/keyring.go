package bolt

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// keyKeys, in bucketMeta, is the key of the keys that encrypt scopes, wrapped with the
// user's key.
var keyKeys = []byte("keys")

const (
	// defaultSealBudget is how often one data key seals before a new one is used. With
	// random nonces the limit is 2^32 (NIST SP 800-38D, 8.3). Writing an object seals
	// twice.
	defaultSealBudget = 1 << 28
	// sealStep is the number of seals that are announced in the file in advance. After a
	// start, announced seals count as done.
	sealStep = 1 << 16
	// keyInterval is how often a commit checks whether the user's key has changed.
	keyInterval = 5 * time.Minute
	// keyPatience bounds a call of the key provider.
	keyPatience = 15 * time.Second
)

// keyring contains the keys of one file. They are random. The root key never changes: the
// HMAC keys for index values and payload hashes are derived from it. The last data key
// encrypts new content; the others only decrypt what they have sealed. One value of the
// file contains all keys, wrapped with the user's key.
type keyring struct {
	id     string // the manifests of encrypted scopes contain it
	root   codec.Key
	budget uint64

	// mu protects the fields below.
	mu        sync.Mutex
	user      codec.Key // wraps the other keys
	data      []dataKey // the index is the id minus one
	seals     uint64    // number of seals with the last data key
	announced uint64    // number of seals according to the file
	wrapped   []byte    // root and data as in the file; nil if they have changed
}

// dataKey seals records and headers. Its id is its position, starting at 1.
type dataKey struct {
	key  codec.Key
	aead cipher.AEAD
}

// storedKeys is the value of keyKeys.
type storedKeys struct {
	ID      string `msgpack:"id"`
	Seals   uint64 `msgpack:"seals"`
	Wrapped []byte `msgpack:"keys"` // secretKeys, sealed with the user's key
}

type secretKeys struct {
	Root codec.Key   `msgpack:"root"`
	Data []codec.Key `msgpack:"data"`
}

func (s *storedKeys) bound() []byte { return []byte("informctl keys " + s.ID) }

func newKeyring(user codec.Key, budget uint64) *keyring {
	r := &keyring{id: rand.Text(), root: codec.NewKey(), user: user, budget: budget}
	r.extendLocked()
	return r
}

// openKeyring returns nil if none of the user's keys has wrapped the stored keys.
func openKeyring(stored *storedKeys, user []codec.Key, budget uint64) *keyring {
	for _, k := range user {
		plain, err := k.AEAD().Open(nil, nil, stored.Wrapped, stored.bound())
		if err != nil {
			continue
		}
		var keys secretKeys
		if err := msgpack.Unmarshal(plain, &keys); err != nil || len(keys.Data) == 0 {
			continue
		}
		r := &keyring{
			id: stored.ID, root: keys.Root, user: k, budget: budget,
			seals: stored.Seals, announced: stored.Seals, wrapped: stored.Wrapped,
		}
		for _, k := range keys.Data {
			r.data = append(r.data, dataKey{k, k.AEAD()})
		}
		return r
	}
	return nil
}

// extendLocked adds a new data key.
func (r *keyring) extendLocked() {
	k := codec.NewKey()
	r.data = append(r.data, dataKey{k, k.AEAD()})
	r.seals, r.announced, r.wrapped = 0, 0, nil
}

// forget replaces all data keys by a new one. Content that they have sealed may remain
// only on free pages.
func (r *keyring) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = nil
	r.extendLocked()
}

// take returns the data key to use for n seals.
func (r *keyring) take(n int) (id uint64, aead cipher.AEAD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seals > 0 && r.seals+uint64(n) > r.budget {
		r.extendLocked()
	}
	r.seals += uint64(n)
	return uint64(len(r.data)), r.data[len(r.data)-1].aead
}

// opener returns the data key with an id.
func (r *keyring) opener(id uint64) (cipher.AEAD, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id == 0 || id > uint64(len(r.data)) {
		return nil, fmt.Errorf("data key %d is missing", id)
	}
	return r.data[id-1].aead, nil
}

// wrap makes user the key that wraps the others, and reports whether the stored keys
// change. If another is set, it also adds a data key.
func (r *keyring) wrap(user codec.Key, another bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if another {
		r.extendLocked()
	}
	if r.user != user {
		r.user, r.wrapped = user, nil
	}
	return r.wrapped == nil
}

// persist writes the keys, if they differ from those in the file. It is called in the
// transaction that writes what the keys seal. It may be called again after a failed
// transaction, or for a new file.
func (r *keyring) persist(tx *bbolt.Tx) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored := &storedKeys{ID: r.id}
	if r.wrapped == nil {
		keys := secretKeys{Root: r.root}
		for _, k := range r.data {
			keys.Data = append(keys.Data, k.key)
		}
		plain, err := msgpack.Marshal(keys)
		if err != nil {
			return fmt.Errorf("encode keys: %w", err)
		}
		r.wrapped = r.user.AEAD().Seal(nil, nil, plain, stored.bound())
	}
	if r.announced < r.seals {
		r.announced = r.seals + min(sealStep, r.budget/4)
	}
	stored.Seals, stored.Wrapped = r.announced, r.wrapped
	value, err := record.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode keys: %w", err)
	}
	meta := tx.Bucket(bucketMeta)
	if bytes.Equal(meta.Get(keyKeys), value) {
		return nil
	}
	return meta.Put(keyKeys, value)
}

// readKeys returns nil if the file contains no keys.
func readKeys(tx *bbolt.Tx) (*storedKeys, error) {
	value := tx.Bucket(bucketMeta).Get(keyKeys)
	if value == nil {
		return nil, nil
	}
	stored := &storedKeys{}
	if err := record.Unmarshal(value, stored); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return stored, nil
}

// userKeys calls the key provider.
func (d *DB) userKeys(ctx context.Context) ([]codec.Key, error) {
	if d.opts.Keys == nil {
		return nil, fmt.Errorf("%w was given", store.ErrNoKey)
	}
	ctx, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	keys, err := d.opts.Keys.Keys(ctx)
	if err == nil && len(keys) == 0 {
		err = errors.New("the provider has none")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNoKey, err)
	}
	return keys, nil
}

// errOtherKey indicates that none of the user's keys opens the stored keys.
var errOtherKey = fmt.Errorf("%w that opens it: it was encrypted with another one", store.ErrNoKey)

// errNoKeys indicates damage: the file contains an encrypted scope but not its keys.
var errNoKeys = errors.New("the keys of what is encrypted are missing")

// loadKeys returns the file's keys. If the file has none, or none of the user's keys
// opens them, loadKeys returns an error; with begin set it returns new keys instead,
// which replace the stored ones when they first encrypt a scope.
func (d *DB) loadKeys(begin bool) (*keyring, error) {
	d.keyMu.Lock()
	defer d.keyMu.Unlock()
	if d.keys != nil {
		return d.keys, nil
	}
	user, err := d.userKeys(context.Background())
	if err != nil {
		return nil, err
	}
	var stored *storedKeys
	err = d.view("keys", func(tx *bbolt.Tx) error {
		if stored, err = readKeys(tx); err != nil {
			return d.corrupt("meta", err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var found *keyring
	if stored != nil {
		found = openKeyring(stored, user, d.sealBudget)
	}
	switch {
	case found != nil:
		if !d.readOnly && found.wrap(user[0], false) {
			d.rewrapped = found
			d.tell(false)
		}
	case !begin && stored == nil:
		return nil, d.corrupt("meta", errNoKeys)
	case !begin:
		return nil, errOtherKey
	default:
		found = newKeyring(user[0], d.sealBudget)
	}
	d.keys, d.keysAsked = found, time.Now()
	return found, nil
}

// Rekey wraps the data keys with the first of Options.Keys and adds a new data key. It
// blocks until both are written, which takes one small transaction. Stored content stays
// under the data keys that sealed it; new content is sealed with the new data key. The
// user's earlier key is no longer needed then. With that key and a copy of the file from
// before the call, the copy can still be read; if a key is known to others, delete the
// file. A running database does the first half by itself some minutes after the provider
// has another first key. Rekey changes nothing if the file has no keys. Errors:
// store.ErrNoKey if none of the user's keys opens the data keys, store.ErrReadOnly, and
// errors of writing.
func (d *DB) Rekey(ctx context.Context) error {
	if d.readOnly {
		return store.ErrReadOnly
	}
	d.openMu.RLock()
	defer d.openMu.RUnlock()
	var stored *storedKeys
	err := d.view("keys", func(tx *bbolt.Tx) (err error) {
		stored, err = readKeys(tx)
		return err
	})
	if err != nil || stored == nil {
		return err
	}
	user, err := d.userKeys(ctx)
	if err != nil {
		return err
	}
	keys, err := d.loadKeys(false)
	if err != nil {
		return err
	}
	keys.wrap(user[0], true)
	return d.update("keys", keys.persist)
}

// writeRewrapped writes the keys that loadKeys has wrapped with another key. The
// committer calls it, because opening a scope must not wait for a write: nothing is
// written while a large file is checked.
func (d *DB) writeRewrapped() {
	d.keyMu.Lock()
	keys := d.rewrapped
	d.rewrapped = nil
	d.keyMu.Unlock()
	if keys == nil {
		return
	}
	if err := d.update("keys", keys.persist); err != nil { // the next write retries
		d.opts.Logger.Error(err, "Could not wrap the data keys with the present key", "path", d.path)
	}
}

// refreshKeys wraps the data keys with the user's new key, if the provider has one: the
// next process may only have the new key. The committer calls it.
func (d *DB) refreshKeys() {
	d.keyMu.Lock()
	keys := d.keys
	due := keys != nil && time.Since(d.keysAsked) >= keyInterval
	if due {
		d.keysAsked = time.Now()
	}
	d.keyMu.Unlock()
	if !due {
		return
	}
	user, err := d.userKeys(context.Background())
	if err == nil && keys.wrap(user[0], false) {
		d.opts.Logger.Info("There is another key, wrapping the data keys with it", "path", d.path)
		err = d.update("keys", keys.persist)
	}
	if err != nil {
		d.opts.Logger.Error(err, "Could not look whether there is another key", "path", d.path)
	}
}
