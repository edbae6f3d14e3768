package informer

import (
	"k8s.io/client-go/tools/cache"

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
// handlers have synced and have received every deletion.

// departedChunk is the number of departed objects that a handler reads at a time.
const departedChunk = 64

// depart marks the changes of a batch that delete an object that was stored at the start.
// stored contains the UIDs of the deleted objects. Only the goroutine that applies
// batches calls it.
func (inf *Informer) depart(batch *store.Batch, changes []change, stored map[string]string) {
	gone := map[string]change{}
	inf.mu.Lock()
	for _, c := range changes {
		if _, twice := gone[c.key]; c.fate == toTell && c.is.Key == "" && !twice && inf.atStart.Contains(c.key) {
			gone[c.key] = c
		}
	}
	inf.mu.Unlock()
	for i := range batch.Changes {
		c := &batch.Changes[i]
		if first, ok := gone[c.Key]; ok {
			c.Departs = true
			if first.last != nil && !isOther(first.last, stored[c.Key]) {
				c.Last = first.last
			}
		}
	}
}

// noteSupersededLocked finds the objects that departed before this process started and
// whose key another object has taken since, stored or departed. It reports whether
// anything has departed.
func (inf *Informer) noteSupersededLocked() bool {
	departer, ok := inf.store.(store.Departer)
	if !ok {
		return false
	}
	inf.superseded = map[uint64]bool{}
	numbers := map[string]uint64{}
	for after := uint64(0); ; {
		gone, err := departer.Departed(after, departedChunk)
		if err != nil {
			return true // a handler gets the same error
		}
		for _, d := range gone {
			after = d.Number
			if before, again := numbers[d.Before.Key]; again {
				inf.superseded[before] = true
			}
			numbers[d.Before.Key] = d.Number
			if inf.atStart.Contains(d.Before.Key) {
				inf.superseded[d.Number] = true
			}
		}
		if len(gone) < departedChunk {
			return len(numbers) > 0
		}
	}
}

// loadDepartedLocked reads the next departed objects. After the last one, the handler
// goes on with the stored objects, and receives later departures like any deletion. It
// returns false if the store cannot be read now.
func (h *handler) loadDepartedLocked() bool {
	var gone []store.Departed
	departer, ok := h.inf.store.(store.Departer)
	if ok {
		var err error
		if gone, err = departer.Departed(h.departed, departedChunk); err != nil {
			h.inf.loseLocked(h.inf.ctx, err)
			return false
		}
	}
	for _, d := range gone {
		h.departed = d.Number
		if h.inf.superseded[d.Number] {
			continue
		}
		if !isReadable(d.Before) {
			if d.Before = d.Last; !isReadable(d.Last) {
				continue // without a readable state there is no add
			}
		}
		last := notification{kind: vanished, key: d.Before.Key, old: d.Before}
		if isReadable(d.Last) {
			last.kind, last.old = deleted, d.Last
		}
		h.walked = append(h.walked, notification{kind: added, key: d.Before.Key, new: d.Before, initial: true}, last)
		h.deletions++
	}
	if ok && h.deletions > 0 {
		departer.Unsettle()
	}
	if len(gone) < departedChunk {
		h.stage = walking
	}
	return true
}

// settleLocked tells the store that all handlers have received all departed objects, if
// they have.
func (inf *Informer) settleLocked() {
	departer, ok := inf.store.(store.Departer)
	if !ok {
		return
	}
	told := false
	for h := range inf.handlers {
		if _, ok := h.handler.(*feed); ok {
			continue // belongs to a client, which may reconnect
		}
		if h.deletions > 0 || !cache.IsDone(h) {
			return
		}
		told = true
	}
	if told {
		departer.Settle()
	}
}
