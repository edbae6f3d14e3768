package objcache

import (
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/maypok86/otter/v2"
	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// defaultBudget is the budget for the decoded objects of all scopes that have none of
// their own, in bytes of heap.
const defaultBudget = 64 << 20

// Value is an object. One that nobody has needed yet is in the cell, as Raw; those of a
// cache that holds all are decoded.
type Value struct {
	Object  runtime.Object
	Raw     []byte
	Cell    *store.Cell
	Encoded int    // the size of its encoding, in bytes
	Hash    []byte // of its content; nil if it is not known
}

// Entry returns the object as an entry.
func (v Value) Entry(name string) store.Entry {
	if obj, ok := v.Decoded(); ok {
		return store.Entry{Key: name, Object: obj}
	}
	return store.Entry{Key: name, Raw: v.Raw, Cell: v.Cell}
}

// Decoded returns the object if it is decoded.
func (v Value) Decoded() (runtime.Object, bool) {
	if v.Cell == nil {
		return v.Object, true
	}
	return v.Cell.Object()
}

// weight estimates the heap of a decoded object, in bytes: a pod of 9.6 KB takes 21 KB.
func weight(key string, encoded int) uint32 { return uint32(len(key) + 3*encoded + 256) }

// budget bounds the decoded objects of one scope, or of all scopes that share it.
type budget struct {
	*otter.Cache[ownedKey, Value]
	front front
	bytes int64
}

type ownedKey struct {
	owner *Cache
	key   string
}

func newBudget(bytes int64) (b *budget, err error) {
	b = &budget{bytes: bytes}
	b.Cache, err = otter.New(&otter.Options[ownedKey, Value]{
		Executor:      func(fn func()) { fn() },
		MaximumWeight: uint64(bytes),
		Weigher:       func(k ownedKey, v Value) uint32 { return weight(k.key, v.Encoded) },
		OnAtomicDeletion: func(e otter.DeletionEvent[ownedKey, Value]) {
			e.Key.owner.weight.Add(-int64(weight(e.Key.key, e.Value.Encoded)))
			b.front.evicted(e.Key)
		},
	})
	return b, err
}

// sharing is which scopes share a budget: see store.Options.DecodedGroup.
type sharing struct {
	group any
	bytes int64
}

// shared are the budgets of this process that scopes share. One is collected with the
// last scope that has it.
var shared struct {
	mu sync.Mutex // protects by
	by map[sharing]weak.Pointer[budget]
}

func sharedBudget(of sharing) (*budget, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if b := shared.by[of].Value(); b != nil {
		return b, nil
	}
	b, err := newBudget(of.bytes)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(shared.by, func(_ sharing, p weak.Pointer[budget]) bool { return p.Value() == nil })
	if shared.by == nil {
		shared.by = map[sharing]weak.Pointer[budget]{}
	}
	shared.by[of] = weak.Make(b)
	return b, nil
}

// groups is the number of groups of keys. Tickets are void for a whole group: that costs
// an object that is not kept now and then, but no memory per key.
const groups = 256

// Cache has the decoded objects of one scope: as many as fit into a budget, or all. What
// changes it, and what gives tickets, is called under a lock of the caller.
type Cache struct {
	bounded *budget      // nil if all are kept; may be shared
	salt    uint64       // of the slots in the budget's front
	weight  atomic.Int64 // of the scope's objects, in bytes
	lent    lentObjects
	changes [groups]uint64 // of each group

	// mu is held to change the fields below, and to read them without the caller's lock.
	mu      sync.RWMutex
	all     map[string]Value
	ordered *btree.Map[string, runtime.Object] // the objects of all, by key
}

// New returns an empty cache with the budget of the options: see
// store.Options.DecodedBytes.
func New(opts store.Options) (c *Cache, err error) {
	c = &Cache{salt: rand.Uint64()}
	switch {
	case opts.DecodedBytes < 0:
		c.all, c.ordered = map[string]Value{}, &btree.Map[string, runtime.Object]{}
	case opts.DecodedBytes == 0:
		c.bounded, err = sharedBudget(sharing{bytes: defaultBudget})
	case opts.DecodedGroup != nil:
		c.bounded, err = sharedBudget(sharing{opts.DecodedGroup, opts.DecodedBytes})
	default:
		c.bounded, err = newBudget(opts.DecodedBytes)
	}
	return c, err
}

// HoldsAll reports whether all objects are kept.
func (c *Cache) HoldsAll() bool { return c.bounded == nil }

// Bytes estimates the heap of the objects that are kept.
func (c *Cache) Bytes() int64 { return c.weight.Load() }

// Get returns an object. It needs no lock: what it returns has been the object's state at
// some time since the last Forget.
func (c *Cache) Get(key string) (Value, bool) {
	if c.bounded != nil {
		return c.bounded.read(ownedKey{c, key})
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	v, ok := c.all[key]
	return v, ok
}

// Peek is like Get but does not count as a use. It is for callers that read many objects.
func (c *Cache) Peek(key string) (Value, bool) {
	if c.bounded != nil {
		e, ok := c.bounded.GetEntryQuietly(ownedKey{c, key})
		return e.Value, ok
	}
	return c.Get(key)
}

// Set keeps the new state of an object.
func (c *Cache) Set(key string, v Value) {
	c.changes[group(key)]++
	c.keep(key, v)
}

// Drop forgets an object that has changed or is deleted.
func (c *Cache) Drop(key string) {
	c.changes[group(key)]++
	if c.bounded != nil {
		k := ownedKey{c, key}
		c.bounded.front.change(k, func() { c.bounded.Invalidate(k) })
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(key)
	c.ordered.Delete(key)
}

// Ticket says when a reader began to read.
type Ticket struct{ changes uint64 }

// Ticket returns a ticket for one object.
func (c *Cache) Ticket(key string) Ticket { return Ticket{c.changes[group(key)]} }

// Tickets are tickets for all objects.
type Tickets [groups]uint64

// Of returns that for one object.
func (t *Tickets) Of(key string) Ticket { return Ticket{t[group(key)]} }

// Tickets returns tickets for all objects.
func (c *Cache) Tickets() *Tickets {
	t := Tickets(c.changes)
	return &t
}

// Offer keeps an object that was read with a ticket, unless it may have changed since.
func (c *Cache) Offer(key string, v Value, t Ticket) {
	if c.changes[group(key)] == t.changes {
		c.keep(key, v)
	}
}

func (c *Cache) keep(key string, v Value) {
	c.weight.Add(int64(weight(key, v.Encoded)))
	if c.bounded != nil {
		k := ownedKey{c, key}
		c.bounded.front.change(k, func() { c.bounded.Set(k, v) })
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(key)
	c.all[key] = v
	c.ordered.Set(key, v.Object)
}

func (c *Cache) forgetLocked(key string) {
	if was, ok := c.all[key]; ok {
		c.weight.Add(-int64(weight(key, was.Encoded)))
		delete(c.all, key)
	}
}

// Forget drops all objects, and leaves the budget to other scopes. Tickets are void.
func (c *Cache) Forget() {
	for i := range c.changes {
		c.changes[i]++
	}
	c.lent.clear()
	if c.bounded != nil {
		for k := range c.bounded.Keys() {
			if k.owner == c {
				c.bounded.front.change(k, func() { c.bounded.Invalidate(k) })
			}
		}
		c.bounded.front.clear()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.all)
	c.ordered.Clear()
	c.weight.Store(0)
}

// All returns all objects by key as of this moment, if the cache holds all n of the
// scope. The result is the caller's, the objects are not.
func (c *Cache) All(n int) (all *btree.Map[string, runtime.Object], ok bool) {
	if c.bounded != nil || len(c.all) != n {
		return nil, false
	}
	return c.ordered.Copy(), true
}

// Fits reports whether the entries fit into the budget when they are decoded.
func (c *Cache) Fits(entries []store.Entry) bool {
	if c.bounded == nil {
		return true
	}
	left := c.bounded.bytes
	for _, e := range entries {
		if e.Object == nil {
			left -= int64(weight(e.Key, record.RawSize(e.Raw)))
		}
	}
	return left >= 0
}

// Held returns the object with a content, if a reader still holds it, and the size of its
// encoding.
func (c *Cache) Held(key string, hash []byte) (obj runtime.Object, size int, ok bool) {
	return c.lent.object(key, hash)
}

// Lend lets the readers of the entries that are not decoded yet share them, so that each
// is decoded once. hashes are those of the contents; nil for an entry that the cache has.
// Entries that are small are only shared if another reader has begun that.
func (c *Cache) Lend(entries []store.Entry, hashes [][]byte) {
	size := 0
	for _, e := range entries {
		if e.Object == nil && e.Cell == nil {
			size += len(e.Raw)
		}
	}
	c.lent.share(entries, hashes, size >= lendAbove)
}

// Lent returns the number of objects of which the cache knows that readers have held
// them.
func (c *Cache) Lent() int {
	c.lent.mu.Lock()
	defer c.lent.mu.Unlock()
	return len(c.lent.states)
}

var groupSeed = maphash.MakeSeed()

func group(key string) int { return int(maphash.String(groupSeed, key) % groups) }
