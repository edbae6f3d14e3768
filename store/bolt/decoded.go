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

// forgetDecoded leaves the budget to other scopes. Nothing is offered after it, because
// the database is closed, or this store is out of use.
func (s *scopeStore) forgetDecoded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects.Forget()
}

// allDecoded returns all objects as of one moment, if every object is cached. A list then
// does not need the file. The caller must not change the result.
func (s *scopeStore) allDecoded() (all *btree.Map[string, runtime.Object], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isWell() || s.miscounted {
		return nil, false
	}
	return s.objects.All(s.length)
}

// selectDecoded answers a query without an index and without a selector from the cache,
// if every object is cached.
func (s *scopeStore) selectDecoded(q store.Query) ([]store.Entry, bool) {
	if !q.At.IsZero() || q.Keys != nil {
		return nil, false
	}
	if !s.objects.HoldsAll() || q.Index != "" || !q.Selector.Empty() {
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
	keys := m.Find(values)
	out := make([]runtime.Object, len(keys))
	for i, key := range keys {
		v, ok := s.objects.Get(key)
		if ok {
			out[i], ok = v.Decoded()
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
