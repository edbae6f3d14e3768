package objcache

import (
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// front has a few objects of a budget that were read before. It makes reading one again
// cheaper: the budget hashes owner and key, and notes each use.
//
// Whoever changes an object in the budget closes the slot of its key before and leaves it
// empty after. A reader notes the slot before it reads the budget, and fills it only if
// it is still the same and was not closed. Therefore a slot has what the budget has, and
// a reader that has found a state in one of them never finds an older one in the other.
type front struct {
	mu    sync.Mutex // held while objects change
	slots [frontSlots]atomic.Pointer[slot]
}

// slot is immutable. An empty one has no owner.
type slot struct {
	ownedKey
	value Value
}

// closed is the slot of a key whose object is being changed.
var closed = &slot{}

const (
	frontSlots = 1024
	// noteOneIn is how many reads of the front the budget counts as one use, because it
	// keeps what is used often, and how many other objects are read until one takes a
	// slot that is taken.
	noteOneIn = 8
)

func (f *front) at(k ownedKey) *atomic.Pointer[slot] {
	return &f.slots[(maphash.String(groupSeed, k.key)+k.owner.salt)%frontSlots]
}

// read returns an object from the front, or what the budget has.
func (b *budget) read(k ownedKey) (v Value, ok bool) {
	at := b.front.at(k)
	was := at.Load()
	isThere := was != nil && was.owner == k.owner && was.key == k.key
	often := rand.Uint32()%noteOneIn != 0
	if isThere && often {
		return was.value, true
	}
	v, ok = b.GetIfPresent(k)
	isTaken := was != nil && was.owner != nil
	if !ok || isThere || was == closed || isTaken && often {
		return v, ok
	}
	if now := (&slot{k, v}); at.CompareAndSwap(was, now) {
		// The budget empties the slot before it drops the object. If it does so just now,
		// the slot keeps the object until another one takes it.
		if _, stays := b.GetEntryQuietly(k); !stays {
			at.CompareAndSwap(now, &slot{})
		}
	}
	return v, ok
}

// change runs do, which changes the object of a key in the budget.
func (f *front) change(k ownedKey, do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.at(k)
	at.Store(closed)
	do()
	at.Store(&slot{})
}

// clear empties all slots.
func (f *front) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	empty := &slot{}
	for i := range f.slots {
		f.slots[i].Store(empty)
	}
}

// evicted empties the slot of an object that the budget has dropped, so that nothing
// keeps it.
func (f *front) evicted(k ownedKey) {
	at := f.at(k)
	if was := at.Load(); was != nil && was.owner == k.owner && was.key == k.key {
		at.CompareAndSwap(was, &slot{})
	}
}
