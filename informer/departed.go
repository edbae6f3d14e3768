package informer

import (
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// Departed objects were stored when the process began, or one before it that had not
// told of them, and are deleted since. Of several that had one key the last is told of,
// and none where another object had the key when the process began. controller-runtime
// adds its handlers after HasSynced, those of a leader when it leads, and the store shows
// nothing of these objects then: so the store keeps their last states beside the others,
// in the file, and a handler is told of each first, whenever it comes: an initial add
// with the last known state, then the deletion (promise 4).
//
// They are settled, for the next process, while all handlers that there are have synced
// and have been told of every deletion.

// departedChunk is how many departed objects a handler reads at a time.
const departedChunk = 64

// depart marks the changes of a batch by which an object goes that was stored at the
// start; stored are their UIDs. Only the goroutine that applies batches calls it.
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

// noteSupersededLocked looks for what departed before the process began and has a
// successor, stored or departed. It returns whether anything has departed.
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
			return true // a handler meets it, too
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

// loadDepartedLocked reads the next departed objects. When there are no more, the stored
// ones follow; what departs later is told of as any deletion. false: the store could not
// be read now.
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
				continue // its deletion would be of what nobody has heard of
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

// settleLocked has the store note that all handlers were told of all that departed.
func (inf *Informer) settleLocked() {
	departer, ok := inf.store.(store.Departer)
	if !ok {
		return
	}
	told := false
	for h := range inf.handlers {
		if _, ok := h.handler.(*feed); ok {
			continue // a client's, who may come again
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
