package ingest

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/fifo"
	"github.com/informctl/informctl/informer/internal/heal"
	"github.com/informctl/informctl/store"
)

// replays finds the changes that an earlier process has stored and the watch brings
// again. Only the goroutine that applies the changes of the watch uses it.
type replays struct {
	state *heal.State
	// resumedAt is the resource version that the store was complete up to at the start.
	resumedAt string
	// caught contains the keys of the objects that have changed while the informer
	// catches up.
	caught sets.Set[string]
}

// arePossible reports whether the watch may still bring replays.
func (r *replays) arePossible() bool { return r.resumedAt != "" && !r.state.Life().IsCaughtUp() }

// mark marks the changes that an earlier process has stored. That process had an
// object that it could not store, which froze its RV, so the watch resumes before changes
// that are stored already. If these were applied, an object would go back in time, even
// to an earlier incarnation, and forward again. Such an object is stored at an RV above
// the one that the watch resumes at, and was not changed since the start, by the watch or
// through the indexer. Changes after catch-up are no replays.
func (r *replays) mark(stream []fifo.Keyed, told []change, held map[string]store.Held) {
	if !r.arePossible() {
		r.caught = nil
		return
	}
	for i, d := range stream {
		if !r.caught.Has(d.Key) && !r.state.IsAhead(d.Key) && isReplayOf(d, held[d.Key].RV, r.resumedAt) {
			told[i].fate = isReplay
			continue
		}
		if r.caught == nil {
			r.caught = sets.Set[string]{}
		}
		r.caught.Insert(d.Key)
	}
}

// accept ends the rejection of objects whose stored state, or one before it, has
// come again: the watch has brought the malformed states before that again, too.
func (r *replays) accept(told []change) {
	for _, c := range told {
		if c.fate == isReplay {
			r.state.Accept(c.Key)
		}
	}
}

// isReplayOf reports whether a change has led to a state that is stored at held, or came
// before it. resumedAt is the resource version that the watch has resumed at.
func isReplayOf(d fifo.Keyed, held, resumedAt string) bool {
	obj := d.Object
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	if order, err := resourceversion.CompareResourceVersion(held, resumedAt); err != nil || order <= 0 {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(accessor.GetResourceVersion(), held)
	// A deleted object may have the resource version of its last state, which is held.
	return err == nil && (order < 0 || order == 0 && d.Type != cache.Deleted)
}
