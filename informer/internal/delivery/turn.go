package delivery

import (
	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// Turn is the right to append changes: while a function that Do calls has it, no handler
// is added or removed and no chunk of the store is read.
type Turn struct{ h *Hub }

// Do calls f, which may apply a batch to the store and append its changes.
func (h *Hub) Do(f func(t Turn) error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.cond.Broadcast()
	err := f(Turn{h})
	long := false // for the next batch: whether encoded objects are needed
	for r := range h.handlers {
		long = long || r.waiting.IsLong()
	}
	h.backlogged.Store(long)
	return err
}

// Rewound says that the server's history was rewound: what is told from now on is of
// another history than what handlers receive from the log.
func (t Turn) Rewound() {
	for r := range t.h.handlers {
		if fence, _ := r.fences.Fence(); r.goesOn != nil {
			r.resumed.Rewind(fence)
		}
	}
}

// Change is a change of an object.
type Change struct {
	Key  string
	Is   store.Entry    // the new state; if its key is empty, the object was deleted
	Last runtime.Object // last state of a deleted object, if the watch sent it
}

// Tell appends a change to every queue. was is the state that was stored before: without
// a key if there was none, and with nothing but the key if it is not known. Slim contains
// the encoded forms for long queues.
func (t Turn) Tell(c Change, was store.Entry, slim Slim) {
	h := t.h
	if h.phase == unreadable {
		return // a list's: cursors find its objects
	}
	n := queue.Notification{Kind: queue.Added, Key: c.Key, Old: was, New: c.Is, Initial: !h.isSynced()}
	isKnown := h.keys.known.Contains(c.Key)
	if c.Is.Key == "" {
		h.keys.known.Delete(c.Key)
	} else {
		h.keys.add(c.Key)
	}
	switch {
	case c.Is.Key != "":
		if was.Key != "" {
			n.Kind, n.Initial = queue.Updated, false
		}
	case was.Key == "" && !isKnown:
		return // no handler knows it
	default:
		// If it is not stored, the program has removed it through the indexer. As in
		// client-go, handlers that were added after that receive the deletion, too.
		n.Kind = queue.Vanished
		if c.Last != nil {
			n.Kind, n.Old = queue.Deleted, store.Entry{Key: c.Key, Object: c.Last}
		}
	}
	if n.Kind.IsDeletion() {
		h.departures.Delete()
	}
	for r := range h.handlers {
		r.changedLocked(n, was, slim)
	}
}

// TellLoaded appends the differences between what handlers know and a list that the store
// has loaded with nothing to compare it with. A known object is updated, and one that is
// not in the list is deleted, both without the state before, because that is lost. An
// unknown object is added. At a cold start no object is known:
// cursors deliver the objects. The error has been passed to Failed.
func (t Turn) TellLoaded() error {
	h := t.h
	if h.phase != ready {
		return h.readKeysLocked()
	}
	h.keys.untold = true
	gone := h.keys.known.Copy()
	for after, more := "", true; more; {
		entries, err := h.store.Select(store.Query{After: after, Limit: CursorChunk})
		if err != nil {
			h.env.Failed(err)
			return err
		}
		for _, e := range entries {
			after = e.Key
			was := store.Entry{}
			if h.keys.known.Contains(e.Key) {
				was.Key = e.Key
			}
			gone.Delete(e.Key)
			t.Tell(Change{Key: e.Key, Is: e}, was, Slim{})
		}
		more = len(entries) == CursorChunk
	}
	h.keys.untold = false
	gone.Scan(func(key string) bool {
		t.Tell(Change{Key: key}, store.Entry{Key: key}, Slim{})
		return true
	})
	return nil
}

// Untold reports whether TellLoaded has failed. It then precedes every change: otherwise
// handlers would receive a change of an object whose add they have not received.
func (t Turn) Untold() bool { return t.h.keys.untold }

// MarkListed says that the store holds a whole list, so that cursors may walk it. The
// error, which Failed has received, says that its keys cannot be read: a handler may
// receive nothing before it is known what handlers know.
func (t Turn) MarkListed() error {
	h := t.h
	if h.phase == unreadable {
		if err := h.readKeysLocked(); err != nil {
			return err
		}
	}
	h.moveLocked(ready, loading)
	return nil
}

// Resync begins a resync of all handlers but those of clients, if the informer has
// synced.
func (t Turn) Resync() {
	for r := range t.h.handlers {
		r.resyncLocked()
	}
}

// Known returns the keys of the objects that handlers know. The caller may change it.
func (t Turn) Known() *btree.Set[string] { return t.h.keys.known.Copy() }
