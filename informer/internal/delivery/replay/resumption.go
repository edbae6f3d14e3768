package replay

import (
	"time"

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
	replayed map[string]State
	behind   uint64

	// lags means that the informer was behind the place when Begin was called: what was
	// queued since is not known to have been received.
	lags bool

	// rewound means that the server's history was, since Begin was called: what was
	// queued from the fence after on, and what is stored, is of another one than the
	// log.
	rewound bool
	after   uint64

	begun time.Time // when Begin was called
	// unwritten means that the log is delivered as far as it is written.
	unwritten bool
}

// State is a state that came from the log.
type State struct {
	RV      string
	Deleted bool
	// Found means that a list has found the deletion: RV is that of the last state.
	Found bool
}

// Begin says that the handler receives what was changed after a place, and then
// everything that is stored, if that is set.
func (r *Resumption) Begin(from store.Place, everything bool) {
	*r = Resumption{from: from, everything: everything, replayed: map[string]State{}, behind: r.behind, begun: time.Now()}
	if !from.Exact() && !everything {
		r.newer = from.RV
	}
}

// Lag says that the informer, which has synced, is behind the place of Begin. The handler
// may have been asked for an object whose last change before the place was not there yet.
func (r *Resumption) Lag() { r.lags = true }

// Rewind says that the server's history was rewound. What is queued from the fence on is
// of the other history.
func (r *Resumption) Rewind(fence uint64) {
	if !r.rewound {
		r.rewound, r.after = true, fence
	}
}

// IsOther reports whether a notification is of another history than what the handler has
// received, so that their resource versions cannot be compared. It is the one at i of
// those that were taken.
func (r *Resumption) IsOther(n queue.Notification, f *Fences, i int) bool {
	return r.rewound && (n.Newer || !f.IsBefore(r.after, i))
}

// BeginAgain says that the handler receives what was changed after a place, and then all
// that is newer than the place of Begin, because the log does not lead on from there.
func (r *Resumption) BeginAgain(from store.Place) {
	was := *r
	r.Begin(from, true)
	switch {
	case !was.rewound:
		r.newer = was.newer
	case was.from.Lineage == from.Lineage:
		r.newer, r.rewound, r.after = was.newer, true, was.after
	default: // it goes on in the other history, in which newer says nothing
	}
}

// BeginUnwritten says that the handler receives what the log has after the place of
// Begin, as far as that is written, and then everything, because what was applied before
// cannot be written. It returns false if it is too early to say that.
func (r *Resumption) BeginUnwritten() bool {
	if time.Since(r.begun) < flushPatience {
		return false
	}
	r.BeginAgain(r.from)
	r.unwritten = true
	return true
}

// IsUnwritten reports whether BeginUnwritten was called last. A deletion may be missing
// then that was applied before it and was not written, so the handler has no new place:
// the next process goes on from the one before.
func (r *Resumption) IsUnwritten() bool { return r.unwritten }

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
func (r *Resumption) Note(key string, s State) bool {
	if r.newer != "" && !s.Found {
		order, err := resourceversion.CompareResourceVersion(s.RV, r.newer)
		if err == nil && order <= 0 {
			return false
		}
	}
	if r.unwritten && s.Deleted && r.replayed[key].Deleted {
		return false // its other changes in the log came to the same
	}
	r.replayed[key] = s
	return true
}

// Has reports whether the handler has received the state of a notification, or a later
// one, from the log or in an earlier process. waited says that it was queued while the
// log was delivered. Its objects are decoded. It is called once for each notification, in
// their order.
func (r *Resumption) Has(n queue.Notification, waited bool) bool {
	has := r.has(n, waited)
	if waited && !has {
		// The log has no later one either, or the handler needs it again after this one.
		delete(r.replayed, n.Key)
	}
	return has
}

func (r *Resumption) has(n queue.Notification, waited bool) bool {
	last, ok := r.replayed[n.Key]
	// A deletion may be newer than the state that comes with it.
	if n.Newer || waited && !ok && !n.Kind.IsDeletion() && !r.lags {
		last, ok = State{RV: r.newer}, r.newer != ""
	}
	if !ok || !waited && !n.Newer {
		return false
	}
	obj := n.New.Object
	if n.Kind.IsDeletion() {
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
	order, err := resourceversion.CompareResourceVersion(m.GetResourceVersion(), last.RV)
	return err == nil && (order < 0 || order == 0 && last.Deleted == n.Kind.IsDeletion())
}
