package seal

import (
	"bytes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// MetaKey is the key of the wrapped keys in bucketMeta.
var MetaKey = []byte("keys")

// bucketMeta is the bucket of what belongs to the whole file.
var bucketMeta = []byte("meta")

const (
	// DefaultBudget is how often one data key seals before a new one is used. With random
	// nonces the limit is 2^32 (NIST SP 800-38D, 8.3). Writing an object seals twice.
	DefaultBudget = 1 << 28
	// sealStep is the number of seals that are announced in the file in advance. After a
	// start, announced seals count as done.
	sealStep = 1 << 16
)

// Keyring contains the keys of one file. They are random. The root key never changes: the
// HMAC keys for index values and payload hashes are derived from it. The last data key
// encrypts new content; the others only decrypt what they have sealed. One value of the
// file contains all keys, wrapped with the user's key.
type Keyring struct {
	id     string // the manifests of encrypted scopes contain it
	root   codec.Key
	budget uint64

	// mu protects the fields below.
	mu        sync.Mutex
	user      codec.Key // wraps the other keys
	data      []dataKey // the index is the id minus one
	wiped     []dataKey // the data keys before Forget, for those who still read
	seals     uint64    // number of seals with the last data key
	announced uint64    // number of seals according to the file
	wrapped   []byte    // root and data as in the file; nil if they have changed
}

// dataKey seals records and headers. Its id is its position, starting at 1.
type dataKey struct {
	key  codec.Key
	aead cipher.AEAD
}

// Stored is the value of MetaKey.
type Stored struct {
	ID      string `msgpack:"id"`
	Seals   uint64 `msgpack:"seals"`
	Wrapped []byte `msgpack:"keys"` // secretKeys, sealed with the user's key
}

type secretKeys struct {
	Root codec.Key   `msgpack:"root"`
	Data []codec.Key `msgpack:"data"`
}

func (s *Stored) bound() []byte { return []byte("informctl keys " + s.ID) }

// New returns a keyring with new keys, which user wraps. A data key seals budget times.
func New(user codec.Key, budget uint64) *Keyring {
	r := &Keyring{id: rand.Text(), root: codec.NewKey(), user: user, budget: budget}
	r.extendLocked()
	return r
}

// Open returns nil if none of the user's keys has wrapped the stored keys.
func Open(stored *Stored, user []codec.Key, budget uint64) *Keyring {
	for _, k := range user {
		plain, err := k.AEAD().Open(nil, nil, stored.Wrapped, stored.bound())
		if err != nil {
			continue
		}
		var keys secretKeys
		if err := msgpack.Unmarshal(plain, &keys); err != nil || len(keys.Data) == 0 {
			continue
		}
		r := &Keyring{
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

// ID returns the id that the manifests of encrypted scopes contain.
func (r *Keyring) ID() string { return r.id }

// Seals returns the number of the last data key and how often it has sealed, as far as is
// known.
func (r *Keyring) Seals() (dataKey int, seals uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.data), r.seals
}

// extendLocked adds a new data key.
func (r *Keyring) extendLocked() {
	k := codec.NewKey()
	r.data = append(r.data, dataKey{k, k.AEAD()})
	r.seals, r.announced, r.wrapped = 0, 0, nil
}

// Forget replaces all data keys by a new one. Content that they have sealed may remain
// only on free pages, and with readers that have begun before: for them, the keys stay in
// memory until the next Forget.
func (r *Keyring) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data, r.wiped = nil, r.data
	r.extendLocked()
}

// take returns the data key to use for n seals.
func (r *Keyring) take(n int) (id uint64, aead cipher.AEAD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seals > 0 && r.seals+uint64(n) > r.budget {
		r.extendLocked()
	}
	r.seals += uint64(n)
	return uint64(len(r.data)), r.data[len(r.data)-1].aead
}

// openers returns the data key with an id, and the one that had it before Forget. Either
// is nil if there is none.
func (r *Keyring) openers(id uint64) (now, wiped cipher.AEAD) {
	r.mu.Lock()
	defer r.mu.Unlock()
	find := func(keys []dataKey) cipher.AEAD {
		if id == 0 || id > uint64(len(keys)) {
			return nil
		}
		return keys[id-1].aead
	}
	return find(r.data), find(r.wiped)
}

// Wrap makes user the key that wraps the others, and reports whether the stored keys
// change. If another is set, it also adds a data key.
func (r *Keyring) Wrap(user codec.Key, another bool) bool {
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

// Persist writes the keys, if they differ from those in the file. It is called in the
// transaction that writes what the keys seal. It may be called again after a failed
// transaction, or for a new file.
func (r *Keyring) Persist(tx *bbolt.Tx) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	stored := &Stored{ID: r.id}
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
	if bytes.Equal(meta.Get(MetaKey), value) {
		return nil
	}
	return meta.Put(MetaKey, value)
}

// Read returns nil if the file contains no keys.
func Read(tx *bbolt.Tx) (*Stored, error) {
	value := tx.Bucket(bucketMeta).Get(MetaKey)
	if value == nil {
		return nil, nil
	}
	stored := &Stored{}
	if err := record.Unmarshal(value, stored); err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	return stored, nil
}
