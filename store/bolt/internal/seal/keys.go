package seal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// patience bounds a call of the key provider.
const patience = 15 * time.Second

// ErrOtherKey indicates that none of the user's keys opens the stored keys.
var ErrOtherKey = fmt.Errorf("%w that opens it: it was encrypted with another one", store.ErrNoKey)

// ErrMissing indicates damage: the file contains an encrypted scope but not its keys.
var ErrMissing = errors.New("the keys of what is encrypted are missing")

// Keys asks a provider for the user's keys, and has the keyring of a file that they open.
type Keys struct {
	Provider codec.KeyProvider // nil: nothing can be encrypted
	// Budget is how often a data key may seal; 0 means a safe default. It is set before
	// the first Load.
	Budget uint64

	// mu protects ring. It is held during a call of the provider and of read,
	// so it is taken before the locks of the file.
	mu   sync.Mutex
	ring *Keyring // nil until a scope needs it

	// dirty is ring if it was wrapped anew and is not written. The committer, which must
	// not wait for a provider, takes it, and gives it back if it cannot be written.
	dirty atomic.Pointer[Keyring]

	// Wrapped is called when the ring was wrapped anew: see Dirty. It must not wait.
	Wrapped func()
}

// User calls the provider. The error wraps store.ErrNoKey.
func (k *Keys) User(ctx context.Context) ([]codec.Key, error) {
	if k.Provider == nil {
		return nil, fmt.Errorf("%w was given", store.ErrNoKey)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	keys, err := k.Provider.Keys(ctx)
	if err == nil && len(keys) == 0 {
		err = errors.New("the provider has none")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrNoKey, err)
	}
	return keys, nil
}

// Load returns the keyring of the file, whose stored keys read returns; nil if there are
// none. A keyring that another of the user's keys has opened is wrapped with the first
// one: see Dirty. If none opens it, or there is none, Load returns ErrOtherKey or
// ErrMissing; with begin set it returns a new keyring instead, which replaces the stored
// one when it first seals.
func (k *Keys) Load(read func() (*Stored, error), begin bool) (*Keyring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ring != nil {
		return k.ring, nil
	}
	user, err := k.User(context.Background())
	if err != nil {
		return nil, err
	}
	stored, err := read()
	if err != nil {
		return nil, err
	}
	budget := k.Budget
	if budget == 0 {
		budget = DefaultBudget
	}
	var found *Keyring
	if stored != nil {
		found = Open(stored, user, budget)
	}
	switch {
	case found != nil:
		if found.Wrap(user[0], false) {
			k.dirty.Store(found)
			k.Wrapped()
		}
	case !begin && stored == nil:
		return nil, ErrMissing
	case !begin:
		return nil, ErrOtherKey
	default:
		found = New(user[0], budget)
	}
	k.ring = found
	return found, nil
}

// Loaded returns the keyring, nil if no scope has needed it.
func (k *Keys) Loaded() *Keyring {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ring
}

// Dirty returns the keyring if it was wrapped anew and has to be written, else nil. It is
// dirty once: a keyring that seals is written, too.
func (k *Keys) Dirty() *Keyring { return k.dirty.Swap(nil) }

// Again takes back a keyring that Dirty has returned and that could not be written.
func (k *Keys) Again(ring *Keyring) { k.dirty.CompareAndSwap(nil, ring) }

// Forget drops the data keys, because the file contains nothing sealed with them.
func (k *Keys) Forget() {
	if ring := k.Loaded(); ring != nil {
		ring.Forget()
	}
}
