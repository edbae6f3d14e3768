package replay

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// Resumption is where a handler goes on, and what it has received from the log.
type Resumption struct {
	from       store.Place
	everything bool
	// newer is the resource version of a place that has nothing else: states up to it are
	// left out. "" leaves none out.
	newer string
	// replayed contains the last states that came from the log, by key. Changes that were
	// queued meanwhile, which are those before the fence behind, may be among them.
	replayed map[string]state
	behind   uint64
}

// state is a state that came from the log.
type state struct {
	rv      string
	deleted bool
}

// Begin says that the handler receives what was changed after a place, and then
// everything that is stored, if that is set.
func (r *Resumption) Begin(from store.Place, everything bool) {
	*r = Resumption{from: from, everything: everything, replayed: map[string]state{}, behind: r.behind}
	if !from.Exact() && !everything {
		r.newer = from.RV
	}
}

// BeginAgain says that the handler receives what was changed after a place, and then all
// that is newer than the place of Begin, because the log does not lead on from there.
func (r *Resumption) BeginAgain(from store.Place) {
	newer := r.newer
	r.Begin(from, true)
	r.newer = newer
}

// From returns the place in the log after which the handler receives what was changed; it
// is zero if nothing comes from the log.
func (r *Resumption) From() store.Place { return r.from }

// Everything reports whether a cursor is to walk the stored objects when the handler has
// received what came from the log and was queued meanwhile.
func (r *Resumption) Everything() bool { return r.everything }

// Walk says that this cursor walks.
func (r *Resumption) Walk() { r.everything = false }

// IsSelective reports whether states that are not newer than a place are left out.
func (r *Resumption) IsSelective() bool { return r.newer != "" }

// Add returns the notification of a stored object.
func (r *Resumption) Add(e store.Entry) queue.Notification {
	newer := r.IsSelective()
	return queue.Notification{Kind: queue.Added, Key: e.Key, New: e, Initial: !newer, Newer: newer}
}

// EndLog says that the log was delivered. What is before the fence was queued meanwhile.
func (r *Resumption) EndLog(fence uint64) { r.behind = fence }

// IsBehind reports whether the notification at i of those that were taken, or the next
// one, was queued while the log was delivered.
func (r *Resumption) IsBehind(f *Fences, i int) bool { return f.IsBefore(r.behind, i) }

// Forget forgets the states that came from the log.
func (r *Resumption) Forget() { r.replayed = nil }

// Note notes a state of the log that is about to be delivered. It returns false if the
// state is left out.
func (r *Resumption) Note(key, rv string, deleted bool) bool {
	if r.newer != "" {
		order, err := resourceversion.CompareResourceVersion(rv, r.newer)
		if err == nil && order <= 0 {
			return false
		}
	}
	r.replayed[key] = state{rv, deleted}
	return true
}

// Has reports whether the handler has received the state of a notification, or a later
// one, from the log or in an earlier process. waited says that it was queued while the
// log was delivered. Its objects are decoded.
func (r *Resumption) Has(n queue.Notification, waited bool) bool {
	last, ok := r.replayed[n.Key]
	// A deletion may be newer than the state that comes with it.
	if n.Newer || waited && !ok && n.Kind != queue.Deleted {
		last, ok = state{rv: r.newer}, r.newer != ""
	}
	if !ok || !waited && !n.Newer || n.Kind == queue.Vanished {
		return false
	}
	obj := n.New.Object
	if n.Kind == queue.Deleted {
		obj = n.Old.Object
	}
	if obj == nil {
		return false
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	// A deleted object may have the resource version of its last state.
	order, err := resourceversion.CompareResourceVersion(m.GetResourceVersion(), last.rv)
	return err == nil && (order < 0 || order == 0 && last.deleted == (n.Kind == queue.Deleted))
}
