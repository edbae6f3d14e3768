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
)

// defaultDecoded is the budget for decoded objects, in bytes of heap.
const defaultDecoded = 64 << 20

// sized is a decoded object and what it was decoded from: how many bytes, and
// their hash; nil where that is not known.
type sized struct {
	object  runtime.Object
	encoded int
	hash    []byte
}

// decodedWeight estimates an object's heap: a pod of 9.6 KB is 21 KB of it.
func decodedWeight(key string, v sized) uint32 {
	return uint32(len(key) + 3*v.encoded + 256)
}

// decodedObjects are the objects of one scope that are decoded: as many as fit a
// budget, or all, in a map that List can copy out. Writers hold Store.mu.
type decodedObjects struct {
	bounded *otter.Cache[string, sized] // nil without a budget

	// mu is held to write the fields below, and to read all without Store.mu.
	mu      sync.RWMutex
	all     map[string]sized
	ordered *btree.Map[string, runtime.Object] // the same by key
	weight  int64                              // of all
}

// newDecodedObjects takes a budget in bytes: 0 is the default, -1 none.
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

// peek is get for who reads many: it does not count as a use.
func (d *decodedObjects) peek(key string) (sized, bool) {
	if d.bounded != nil {
		e, ok := d.bounded.GetEntryQuietly(key)
		return e.Value, ok
	}
	return d.get(key)
}

// set needs Store.mu.
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

// drop needs Store.mu.
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

// clear needs Store.mu.
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

// bytes is the memory that they take, estimated.
func (d *decodedObjects) bytes() int64 {
	if d.bounded != nil {
		return int64(d.bounded.WeightedSize())
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.weight
}

// hasAll reports whether all of n objects are there. It needs Store.mu.
func (d *decodedObjects) hasAll(n int) bool { return d.bounded == nil && len(d.all) == n }

var groupSeed = maphash.MakeSeed()

func group(key string) int { return int(maphash.String(groupSeed, key) % 256) }

// offer puts an object into the cache, unless its key may have changed since the
// read that it is of began, at that generation.
func (s *Store) offer(key string, v sized, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.generations[group(key)] == generation {
		s.decoded.set(key, v)
	}
}

// allDecoded returns all objects as of one moment, where everything is decoded: lists
// need no file then. Nobody writes to what it returns.
func (s *Store) allDecoded() (all *btree.Map[string, runtime.Object], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isWellLocked() || s.miscounted || !s.decoded.hasAll(s.length) {
		return nil, false
	}
	return s.decoded.ordered.Copy(), true
}

// listDecoded answers List from them.
func (s *Store) listDecoded() ([]interface{}, bool) {
	all, ok := s.allDecoded()
	if !ok {
		return nil, false
	}
	out := make([]interface{}, 0, all.Len())
	all.Scan(func(_ string, obj runtime.Object) bool {
		out = append(out, obj)
		return true
	})
	return out, true
}

// selectDecoded answers a query that no index and no label narrows.
func (s *Store) selectDecoded(q store.Query) ([]store.Entry, bool) {
	if s.decoded.bounded != nil || q.Index != "" || !q.Selector.Empty() {
		return nil, false
	}
	all, ok := s.allDecoded()
	if !ok {
		return nil, false
	}
	after, prefix := q.Range()
	after = fileKey(after)
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
		if isHashed(key) {
			key, _ = cache.MetaNamespaceKeyFunc(obj) // which it was stored under
		}
		entries = append(entries, store.Entry{Key: key, Object: obj})
		return q.Limit <= 0 || len(entries) < q.Limit
	})
	return entries, true
}

// indexDecoded is the same for ByIndex; the objects of the values are enough.
func (s *Store) indexDecoded(name string, values []string) ([]interface{}, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.inMemory[name]
	if m == nil || !s.isWellLocked() {
		return nil, false
	}
	keys := m.find(values)
	out := make([]interface{}, len(keys))
	for i, key := range keys {
		v, ok := s.decoded.get(key)
		if !ok {
			return nil, false
		}
		out[i] = v.object
	}
	return out, true
}

// isWellLocked reports whether what is in memory may answer without the file.
func (s *Store) isWellLocked() bool {
	return !s.loading && s.lost == nil && s.readErr == nil && !s.db.readOnly && !s.db.isClosed()
}
