package bolt

import (
	"hash/maphash"
	"strings"
	"sync"

	"github.com/maypok86/otter/v2"
	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// defaultDecoded is the default budget for decoded objects, in bytes of heap.
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

// decodedObjects caches the decoded objects of one scope: as many as fit into a budget,
// or all, in a map that List can copy. A caller that changes it must hold scopeStore.mu.
type decodedObjects struct {
	bounded *otter.Cache[string, sized] // nil without a budget

	// mu is held to change the fields below, and to read them without scopeStore.mu.
	mu      sync.RWMutex
	all     map[string]sized
	ordered *btree.Map[string, runtime.Object] // the objects of all, by key
	weight  int64                              // of all, in bytes
}

// newDecodedObjects takes a budget in bytes: 0 means the default, a negative one no
// bound.
func newDecodedObjects(budget int64) (*decodedObjects, error) {
	if budget < 0 {
		return &decodedObjects{all: map[string]sized{}, ordered: &btree.Map[string, runtime.Object]{}}, nil
	}
	if budget == 0 {
		budget = defaultDecoded
	}
	bounded, err := otter.New(&otter.Options[string, sized]{
		Executor:      func(fn func()) { fn() },
		MaximumWeight: uint64(budget),
		Weigher:       decodedWeight,
	})
	return &decodedObjects{bounded: bounded}, err
}

func (d *decodedObjects) get(key string) (sized, bool) {
	if d.bounded != nil {
		return d.bounded.GetIfPresent(key)
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	v, ok := d.all[key]
	return v, ok
}

// peek is like get but does not count as a use. It is for callers that read many objects.
func (d *decodedObjects) peek(key string) (sized, bool) {
	if d.bounded != nil {
		e, ok := d.bounded.GetEntryQuietly(key)
		return e.Value, ok
	}
	return d.get(key)
}

// set stores an object. The caller must hold scopeStore.mu.
func (d *decodedObjects) set(key string, v sized) {
	if d.bounded != nil {
		d.bounded.Set(key, v)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(key)
	d.all[key] = v
	d.ordered.Set(key, v.object)
	d.weight += int64(decodedWeight(key, v))
}

// drop removes an object. The caller must hold scopeStore.mu.
func (d *decodedObjects) drop(key string) {
	if d.bounded != nil {
		d.bounded.Invalidate(key)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetLocked(key)
	d.ordered.Delete(key)
}

func (d *decodedObjects) forgetLocked(key string) {
	if was, ok := d.all[key]; ok {
		d.weight -= int64(decodedWeight(key, was))
		delete(d.all, key)
	}
}

// clear removes all objects. The caller must hold scopeStore.mu.
func (d *decodedObjects) clear() {
	if d.bounded != nil {
		d.bounded.InvalidateAll()
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.all)
	d.ordered.Clear()
	d.weight = 0
}

// bytes returns the estimated memory of the objects.
func (d *decodedObjects) bytes() int64 {
	if d.bounded != nil {
		return int64(d.bounded.WeightedSize())
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.weight
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
	if s.generations[group(key)] == generation {
		s.decoded.set(key, v)
	}
}

// allDecoded returns all objects as of one moment, if every object is cached. A list then
// does not need the file. The caller must not change the result.
func (s *scopeStore) allDecoded() (all *btree.Map[string, runtime.Object], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isWellLocked() || s.miscounted || !s.decoded.hasAll(s.length) {
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
	if m == nil || !s.isWellLocked() {
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

// isWellLocked reports whether reads may be answered from memory without the file.
func (s *scopeStore) isWellLocked() bool {
	return (s.phase == phaseEmpty || s.phase == phaseReady) && !s.db.readOnly && !s.db.isClosed()
}
