package bolt

import (
	"strings"
	"sync/atomic"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/objcache"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// cached are a scope's decoded objects.
type cached struct {
	objects      *objcache.Cache
	hits, misses atomic.Uint64 // of Object
}

// applied takes the decoded object from an entry: pending holds encoded ones only.
func (c *cached) applied(e *overlay.Entry) {
	obj, encoded := e.Object, e.Encoded
	e.Object, e.Encoded = nil, store.Entry{}
	switch {
	case obj != nil:
		c.objects.Set(e.Key, objcache.Value{Object: obj, Encoded: int(e.Head.Size), Hash: e.Head.Hash})
	case encoded.Cell != nil:
		c.objects.Set(e.Key, objcache.Value{Raw: encoded.Raw, Cell: encoded.Cell, Encoded: int(e.Head.Size), Hash: e.Head.Hash})
	default:
		c.objects.Drop(e.Key)
	}
}

func (c *cached) Lost(error) { c.objects.Forget() }

// offer puts an object into the cache, unless its key may have changed since it got the
// ticket.
func (s *scopeStore) offer(key string, v objcache.Value, t objcache.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Load() == nil && !s.db.isClosed() {
		s.objects.Offer(key, v, t)
	}
}

// memory answers queries from the decoded objects, without the file.
type memory struct{ *scopeStore }

// all returns all objects as of one moment, if every object is cached. A list then
// does not need the file. The caller must not change the result.
func (m memory) all() (all *btree.Map[string, runtime.Object], ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isWellLocked() || m.miscounted {
		return nil, false
	}
	return m.objects.All(m.length)
}

// entries answers a query without an index and without a selector from the cache,
// if every object is cached.
func (m memory) entries(q store.Query) ([]store.Entry, bool) {
	if !q.At.IsZero() || q.Keys != nil || q.Encoded {
		return nil, false
	}
	if !m.objects.HoldsAll() || q.Index != "" || !q.Selector.Empty() {
		return nil, false
	}
	all, ok := m.all()
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

// list answers a query without a selector from the cache, if all objects that
// it selects are cached. Those of an index are in no order.
func (m memory) list(q store.Query) ([]runtime.Object, bool) {
	if !q.At.IsZero() || q.Keys != nil {
		return nil, false
	}
	switch {
	case !q.Selector.Empty() || q.Namespace != "" || q.After != "" || q.Limit > 0:
		return nil, false
	case q.Index != "":
		return m.byIndex(q.Index, q.Values)
	}
	all, ok := m.all()
	if !ok {
		return nil, false
	}
	return all.Values(), true
}

// byIndex returns the objects with some values of an index, if they are cached.
func (m memory) byIndex(name string, of []string) ([]runtime.Object, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	values := m.inMemory[name]
	if values == nil || !m.isWellLocked() {
		return nil, false
	}
	keys := values.Find(of)
	out := make([]runtime.Object, len(keys))
	for i, key := range keys {
		v, ok := m.objects.Get(key)
		if ok {
			out[i], ok = v.Decoded()
		}
		if !ok {
			return nil, false
		}
	}
	return out, true
}

// isWellLocked reports whether reads may be answered from memory without the file.
func (m memory) isWellLocked() bool {
	return (m.phase == phaseEmpty || m.phase == phaseReady) && !m.db.readOnly && !m.db.isClosed()
}
