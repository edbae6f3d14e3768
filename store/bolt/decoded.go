package bolt

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/maypok86/otter/v2"
	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// defaultDecoded is the budget for the decoded objects of all scopes that have none of
// their own, in bytes of heap.
const defaultDecoded = 64 << 20

// sized is an object with the size of its encoding, in bytes, and the hash of its
// content; hash is nil if it is not known. An object that nobody has needed yet is in the
// cell, as raw; those of a cache without a budget are decoded.
type sized struct {
	object  runtime.Object
	raw     []byte
	cell    *store.Cell
	encoded int
	hash    []byte
}

// entry returns the object as an entry.
func (v sized) entry(name string) store.Entry {
	if obj, ok := v.decoded(); ok {
		return store.Entry{Key: name, Object: obj}
	}
	return store.Entry{Key: name, Raw: v.raw, Cell: v.cell}
}

// decoded returns the object if it is decoded.
func (v sized) decoded() (runtime.Object, bool) {
	if v.cell == nil {
		return v.object, true
	}
	return v.cell.Object()
}

// decodedWeight estimates the heap of a decoded object, in bytes: a pod of 9.6 KB takes
// 21 KB.
func decodedWeight(key string, v sized) uint32 {
	return uint32(len(key) + 3*v.encoded + 256)
}

// decodedCache has a budget for the decoded objects of one scope, or of all scopes that
// share it.
type decodedCache struct {
	*otter.Cache[ownedKey, sized]
	budget int64 // in bytes
}

type ownedKey struct {
	owner *decodedObjects
	key   string
}

func newDecodedCache(budget int64) (*decodedCache, error) {
	c, err := otter.New(&otter.Options[ownedKey, sized]{
		Executor:      func(fn func()) { fn() },
		MaximumWeight: uint64(budget),
		Weigher:       func(k ownedKey, v sized) uint32 { return decodedWeight(k.key, v) },
		OnAtomicDeletion: func(e otter.DeletionEvent[ownedKey, sized]) {
			e.Key.owner.weight.Add(-int64(decodedWeight(e.Key.key, e.Value)))
		},
	})
	return &decodedCache{c, budget}, err
}

// sharing is which scopes share a cache: see store.Options.DecodedGroup.
type sharing struct {
	group  any
	budget int64
}

// sharedCaches are the caches of this process that scopes share. One is collected with
// the last scope that has it.
var sharedCaches struct {
	mu sync.Mutex // protects all
	by map[sharing]weak.Pointer[decodedCache]
}

func sharedCache(of sharing) (*decodedCache, error) {
	sharedCaches.mu.Lock()
	defer sharedCaches.mu.Unlock()
	if c := sharedCaches.by[of].Value(); c != nil {
		return c, nil
	}
	c, err := newDecodedCache(of.budget)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(sharedCaches.by, func(_ sharing, p weak.Pointer[decodedCache]) bool { return p.Value() == nil })
	if sharedCaches.by == nil {
		sharedCaches.by = map[sharing]weak.Pointer[decodedCache]{}
	}
	sharedCaches.by[of] = weak.Make(c)
	return c, nil
}

// cached are a scope's decoded objects.
type cached struct {
	generations  [256]uint64
	decoded      *decodedObjects // written under scopeStore.mu
	hits, misses atomic.Uint64   // of Object
}

// applied takes the decoded object from an entry: pending holds encoded ones only.
func (c *cached) applied(e *entry) {
	obj, encoded := e.object, e.encoded
	e.object, e.encoded = nil, store.Entry{}
	c.generations[group(e.key)]++
	switch {
	case obj != nil:
		c.decoded.set(e.key, sized{object: obj, encoded: int(e.head.Size), hash: e.head.Hash})
	case encoded.Cell != nil:
		c.decoded.set(e.key, sized{raw: encoded.Raw, cell: encoded.Cell, encoded: int(e.head.Size), hash: e.head.Hash})
	default:
		c.decoded.drop(e.key)
	}
}

func (c *cached) forget() {
	for i := range c.generations {
		c.generations[i]++
	}
	c.decoded.clear()
}

func (c *cached) lost(loss) { c.forget() }

// decodedObjects caches the decoded objects of one scope: as many as fit into a budget,
// or all, in a map that List can copy. A caller that changes it must hold scopeStore.mu.
type decodedObjects struct {
	bounded *decodedCache // nil without a budget; may be shared
	weight  atomic.Int64  // of the scope's objects, in bytes
	lent    lentObjects

	// mu is held to change the fields below, and to read them without scopeStore.mu.
	mu      sync.RWMutex
	all     map[string]sized
	ordered *btree.Map[string, runtime.Object] // the objects of all, by key
}

// newDecodedObjects takes the budget of the options; see store.Options.DecodedBytes.
func newDecodedObjects(opts store.Options) (d *decodedObjects, err error) {
	d = &decodedObjects{}
	switch {
	case opts.DecodedBytes < 0:
		d.all, d.ordered = map[string]sized{}, &btree.Map[string, runtime.Object]{}
	case opts.DecodedBytes == 0:
		d.bounded, err = sharedCache(sharing{budget: defaultDecoded})
	case opts.DecodedGroup != nil:
		d.bounded, err = sharedCache(sharing{opts.DecodedGroup, opts.DecodedBytes})
	default:
		d.bounded, err = newDecodedCache(opts.DecodedBytes)
	}
	return d, err
}

func (d *decodedObjects) get(key string) (sized, bool) {
	if d.bounded != nil {
		return d.bounded.GetIfPresent(ownedKey{d, key})
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	v, ok := d.all[key]
	return v, ok
}

// peek is like get but does not count as a use. It is for callers that read many objects.
func (d *decodedObjects) peek(key string) (sized, bool) {
	if d.bounded != nil {
		e, ok := d.bounded.GetEntryQuietly(ownedKey{d, key})
		return e.Value, ok
	}
	return d.get(key)
}

// set stores an object. The caller must hold scopeStore.mu.
func (d *decodedObjects) set(key string, v sized) {
	d.weight.Add(int64(decodedWeight(key, v)))
	if d.bounded != nil {
		d.bounded.Set(ownedKey{d, key}, v)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(key)
	d.all[key] = v
	d.ordered.Set(key, v.object)
}

// drop removes an object. The caller must hold scopeStore.mu.
func (d *decodedObjects) drop(key string) {
	if d.bounded != nil {
		d.bounded.Invalidate(ownedKey{d, key})
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(key)
	d.ordered.Delete(key)
}

func (d *decodedObjects) forgetLocked(key string) {
	if was, ok := d.all[key]; ok {
		d.weight.Add(-int64(decodedWeight(key, was)))
		delete(d.all, key)
	}
}

// clear removes all objects. The caller must hold scopeStore.mu.
func (d *decodedObjects) clear() {
	d.lent.clear()
	if d.bounded != nil {
		for k := range d.bounded.Keys() {
			if k.owner == d {
				d.bounded.Invalidate(k)
			}
		}
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.all)
	d.ordered.Clear()
	d.weight.Store(0)
}

// hasAll reports whether all n objects of the scope are cached without a budget. The
// caller must hold scopeStore.mu.
func (d *decodedObjects) hasAll(n int) bool { return d.bounded == nil && len(d.all) == n }

var groupSeed = maphash.MakeSeed()

func group(key string) int { return int(maphash.String(groupSeed, key) % 256) }

// offer puts an object into the cache, unless its key may have changed since the read
// began. generation is the generation of the key's group at that time.
func (s *scopeStore) offer(key string, v sized, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generations[group(key)] == generation && s.next.Load() == nil && !s.db.isClosed() {
		s.decoded.set(key, v)
	}
}

// forgetDecoded leaves the budget to other scopes. Nothing is offered after it, because
// the database is closed, or this store is out of use.
func (s *scopeStore) forgetDecoded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decoded.clear()
}

// allDecoded returns all objects as of one moment, if every object is cached. A list then
// does not need the file. The caller must not change the result.
func (s *scopeStore) allDecoded() (all *btree.Map[string, runtime.Object], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isWell() || s.miscounted || !s.decoded.hasAll(s.length) {
		return nil, false
	}
	return s.decoded.ordered.Copy(), true
}

// selectDecoded answers a query without an index and without a selector from the cache,
// if every object is cached.
func (s *scopeStore) selectDecoded(q store.Query) ([]store.Entry, bool) {
	if !q.At.IsZero() || q.Keys != nil {
		return nil, false
	}
	if s.decoded.bounded != nil || q.Index != "" || !q.Selector.Empty() {
		return nil, false
	}
	all, ok := s.allDecoded()
	if !ok {
		return nil, false
	}
	after, prefix := q.Range()
	after = record.FileKey(after)
	var entries []store.Entry
	if q.Limit <= 0 && after == "" {
		entries = make([]store.Entry, 0, all.Len())
	}
	all.Ascend(after, func(key string, obj runtime.Object) bool {
		if key == after {
			return true
		}
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		if record.IsHashed(key) {
			key, _ = cache.MetaNamespaceKeyFunc(obj) // the object's own key
		}
		entries = append(entries, store.Entry{Key: key, Object: obj})
		return q.Limit <= 0 || len(entries) < q.Limit
	})
	return entries, true
}

// objectsDecoded answers a query without a selector from the cache, if all objects that
// it selects are cached. Those of an index are in no order.
func (s *scopeStore) objectsDecoded(q store.Query) ([]runtime.Object, bool) {
	if !q.At.IsZero() || q.Keys != nil {
		return nil, false
	}
	switch {
	case !q.Selector.Empty() || q.Namespace != "" || q.After != "" || q.Limit > 0:
		return nil, false
	case q.Index != "":
		return s.indexDecoded(q.Index, q.Values)
	}
	all, ok := s.allDecoded()
	if !ok {
		return nil, false
	}
	return all.Values(), true
}

// indexDecoded returns the objects with some values of an index, if they are cached.
func (s *scopeStore) indexDecoded(name string, values []string) ([]runtime.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.inMemory[name]
	if m == nil || !s.isWell() {
		return nil, false
	}
	keys := m.find(values)
	out := make([]runtime.Object, len(keys))
	for i, key := range keys {
		v, ok := s.decoded.get(key)
		if ok {
			out[i], ok = v.decoded()
		}
		if !ok {
			return nil, false
		}
	}
	return out, true
}

// isWell reports whether reads may be answered from memory without the file.
func (s *scopeStore) isWell() bool {
	return (s.phase == phaseEmpty || s.phase == phaseReady) && !s.db.readOnly && !s.db.isClosed()
}
