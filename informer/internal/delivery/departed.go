package delivery

import (
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

// Departed objects were stored when the process started, or departed in an earlier
// process whose handlers did not receive their deletion, and have been deleted since. If
// several of them had the same key, handlers receive only the last one; they receive none
// if another object had the key when the process started.
//
// controller-runtime adds its handlers after HasSynced, those of a leader when the
// process becomes the leader, and the store no longer shows these objects then. So the
// store keeps the last states of departed objects in the file, beside the other objects.
// Whenever a handler is added, it first receives each of them: an initial add with the
// last known state, then the deletion (promise 4).
//
// Departed objects are settled, so that the next process drops them, when all present
// handlers have confirmed them. A handler confirms by its return from every deletion,
// once it has synced. A resume.Handler confirms when it has written what it has received,
// so one that waits to begin confirms nothing. One that was removed keeps what it has not
// confirmed until another one is added, and so does one that its consumer will add when
// it is elected (resume.Owe).

// departedChunk is the number of departed objects that a handler reads at a time.
const departedChunk = 64

// noteSupersededLocked finds the objects that departed before this process started and
// whose key another object has taken since, stored or departed. It reports whether
// anything has departed, or may be found to have by the first list.
func (h *Hub) noteSupersededLocked() bool {
	departer, ok := h.store.(store.Departer)
	if !ok {
		return false
	}
	h.keys.superseded, h.keys.compared = map[uint64]bool{}, departer.Compares()
	numbers := map[string]uint64{}
	for after := uint64(0); ; {
		gone, err := departer.Departed(after, departedChunk)
		if err != nil {
			return true // a handler gets the same error
		}
		for _, d := range gone {
			after = d.Number
			if before, again := numbers[d.Before.Key]; again {
				h.keys.superseded[before] = true
			}
			numbers[d.Before.Key] = d.Number
			if h.keys.known.Contains(d.Before.Key) {
				h.keys.superseded[d.Number] = true
			}
		}
		if len(gone) < departedChunk {
			return len(numbers) > 0 || h.keys.compared
		}
	}
}

// loadDepartedLocked reads the next departed objects. After the last one, the handler
// goes on with the stored objects, and receives later departures like any deletion. It
// returns false if the store cannot be read now.
func (r *Registration) loadDepartedLocked() bool {
	var gone []store.Departed
	departer, ok := r.hub.store.(store.Departer)
	if ok {
		var err error
		if gone, err = departer.Departed(r.departed, departedChunk); err != nil {
			r.hub.env.Failed(err)
			return false
		}
	}
	for _, d := range gone {
		r.departed = d.Number
		if r.hub.keys.superseded[d.Number] {
			continue
		}
		if !isReadable(d.Before) {
			if d.Before = d.Last; !isReadable(d.Last) {
				continue // without a readable state there is no add
			}
		}
		last := queue.Notification{Kind: queue.Vanished, Key: d.Before.Key, Old: d.Before}
		if isReadable(d.Last) {
			last.Kind, last.Old = queue.Deleted, d.Last
		}
		r.walkLocked(queue.Notification{Kind: queue.Added, Key: d.Before.Key, New: d.Before, Initial: true}, last)
		r.deletions++
	}
	if len(gone) < departedChunk {
		r.departedLocked()
	}
	return true
}

// settleLocked tells the store which departed objects all handlers have confirmed.
func (h *Hub) settleLocked() {
	departer, ok := h.store.(store.Departer)
	if !ok || h.keys.owed > 0 || resume.IsOwed(h.scope) {
		return
	}
	last, present := h.lastDepartedLocked(), false
	upTo := last
	for r := range h.handlers {
		if r.client {
			continue // the client may come again
		}
		if r.resumed.handler == nil && r.deletions == 0 && cache.IsDone(r) && h.phase != ended {
			r.confirmed = last
		}
		upTo, present = min(upTo, r.confirmed), true
	}
	if !present {
		return
	}
	if s, ok := departer.(store.PartSettler); ok {
		s.SettleUpTo(upTo)
	} else if upTo == last {
		departer.Settle()
	} else {
		departer.Unsettle()
	}
}

// lastDepartedLocked returns the number of the last object that has departed. If the
// store does not say it, each deletion has a number.
func (h *Hub) lastDepartedLocked() uint64 {
	if s, ok := h.store.(store.PartSettler); ok {
		return s.LastDeparted()
	}
	return h.keys.deletions + 1 // above Registration.confirmed at first
}
