package delivery

import (
	"errors"
	"time"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/informer/internal/delivery/replay"
	"github.com/informctl/informctl/store"
)

// retryPause is the pause before a handler that cannot go on from the log tries again.
const retryPause = time.Second

// attach lets the handler decide where it begins.
func (r *Registration) attach() {
	if r.goesOn == nil {
		return
	}
	r.goesOn.Opened(feed{r})
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if r.stage == attaching {
		r.stage = passive
		r.markSyncedLocked()
	}
}

// beginLocked makes the handler receive what was changed after a place, and everything,
// with what has departed:
//
//	departing  resuming  live  walking  live
//
// Each of them may be left out.
func (r *Registration) beginLocked(from store.Place, everything bool) {
	r.resumed.Begin(from, everything)
	r.departed = replay.Receipt{}
	r.restartLocked()
	if r.stage = departing; !everything {
		r.stage = resuming
	}
}

// restartLocked drops what waits for the handler, which begins anew.
func (r *Registration) restartLocked() {
	r.dropWaitingLocked()
	r.cursor.drop()
	r.cursor.begin()
	r.fences.Drop()
	r.resync.running, r.resync.due = false, time.Now().Add(r.resync.every)
}

// departedLocked ends departing.
func (r *Registration) departedLocked() {
	if r.stage = resuming; r.resumed.From().IsZero() {
		r.walkAfterLogLocked()
	}
}

// walkAfterLogLocked begins the cursor of a handler that has received what the log had
// and what was queued meanwhile. An add may come before older changes that wait, which
// the cursors of other handlers avoid: here the queue may never be empty.
func (r *Registration) walkAfterLogLocked() {
	r.stage = walking
	r.resumed.Walk()
	r.cursor.begin()
}

// replay brings what the log has after the place of Begin. What is applied meanwhile
// waits in the queue.
func (r *Registration) replay() {
	h := r.hub
	h.mu.Lock()
	from, unwritten := r.resumed.From(), r.resumed.IsUnwritten()
	h.mu.Unlock()
	log := replay.Log{Store: h.store, Synced: h.Synced(), Limit: takeAtOnce, Unwritten: unwritten, Deliver: r.handOver}
	log.Lags = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		r.resumed.Lag()
	}
	log.Note = func(key string, s replay.State) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return r.resumed.Note(key, s)
	}
	err := log.Follow(r.over, from)
	isLost := errors.Is(err, store.ErrTrimmed) || errors.Is(err, store.ErrLineage)
	var oldest store.Place // of the log, if it does not lead on from where the handler is
	switch {
	case err == nil, errors.Is(err, replay.ErrOver), r.over.Err() != nil:
	case isLost:
		r.goesOn.Lost(feed{r}, err)
		oldest = feed{r}.First()
	default:
		if errors.Is(err, store.ErrCorrupt) {
			h.env.Failed(err)
		}
		feed{r}.Logger().Error(err, "A handler cannot go on yet, trying again", "handler", r.Name())
		h.pause(r, retryPause)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case r.removed || h.phase == ended || r.stage != resuming:
	case err == nil:
		r.stage = live
		fence, _ := r.fences.Fence()
		r.resumed.EndLog(fence)
		r.markSyncedLocked()
	case isLost:
		// It begins where the log begins. What was deleted since has departed, if the
		// handler has not received it before, or is in the log. Then the cursor brings
		// what is newer than the resource version of the place or, if there is none or
		// it may be of another history, everything.
		if oldest == from {
			oldest = store.Place{} // it has been tried
		}
		if errors.Is(err, store.ErrLineage) {
			r.resumed.Begin(oldest, true)
		} else {
			r.resumed.BeginAgain(oldest)
		}
		r.beginAgainLocked()
	case errors.Is(err, replay.ErrUnwritten) && r.resumed.BeginUnwritten():
		r.beginAgainLocked()
	}
}

// beginAgainLocked makes the handler begin again with what has departed since.
func (r *Registration) beginAgainLocked() {
	r.departed = replay.Receipt{After: r.departed.After}
	r.restartLocked()
	r.stage = departing
}

// handOver delivers a batch of the log.
func (r *Registration) handOver(batch []queue.Notification) error {
	r.calls.decode(batch, r.hub.store)
	for _, n := range batch {
		if r.isOver() {
			return replay.ErrOver
		}
		r.deliverOne(n)
	}
	return nil
}

// isReplayed reports whether the handler has received this state, or a later one, from
// the log or in an earlier process. n is the notification at i of the batch that is in
// work; its objects are decoded.
func (r *Registration) isReplayed(n queue.Notification, i int) bool {
	if r.goesOn == nil {
		return false
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return !r.resumed.IsOther(n, &r.fences, i) && r.resumed.Has(n, r.resumed.IsBehind(&r.fences, i))
}

// handle records that the handler has returned from what was taken.
func (r *Registration) handle() {
	if r.goesOn == nil {
		return
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.fences.Return()
	if !r.resumed.IsBehind(&r.fences, 0) && r.stage == live {
		r.resumed.Forget()
	}
}
