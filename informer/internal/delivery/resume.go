package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

const (
	// flushPatience is how long a handler that goes on from the log waits until what was
	// applied before is written. After that it tries again: without it, changes would be
	// passed over.
	flushPatience = 30 * time.Second
	// retryPause is the pause before it does.
	retryPause = time.Second
)

// resumption is what a Registration of a resume.Handler has beside the others. Hub.mu
// protects the fields but handler.
type resumption struct {
	handler resume.Handler // nil: it is no such handler
	from    store.Place    // zero: nothing comes from the log
	// everything means that a cursor walks the stored objects, too, when the handler has
	// received what came from the log and was queued meanwhile.
	everything bool
	// newer is the resource version of a place that has nothing else: states up to it are
	// left out. "" leaves none out.
	newer string
	// replayed contains the last states that came from the log, by key. Changes that were
	// queued meanwhile, which are those up to behind, may be among them.
	replayed map[string]replayed
	behind   uint64
	queued   uint64 // notifications since the handler was added, but those of the log
	handled  uint64 // those from which the handler has returned, or that were dropped
	inWork   uint64 // those that its goroutine has taken
	failed   bool   // it has not received one of them, or has panicked
}

// replayed is a state that came from the log.
type replayed struct {
	rv      string
	deleted bool
}

// attach lets the handler decide where it begins.
func (r *Registration) attach() {
	if r.resumed.handler == nil {
		return
	}
	r.resumed.handler.Opened(feed{r})
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if r.stage == attaching {
		r.stage = passive
		r.markSyncedLocked()
	}
}

// feed implements resume.Feed.
type feed struct{ r *Registration }

var (
	_ resume.Confirmer = feed{}
	_ resume.Logged    = feed{}
)

func (f feed) Logger() klog.Logger {
	if f.r.hub.env.Logger == nil {
		return klog.Background()
	}
	return f.r.hub.env.Logger()
}

func (f feed) Scope() (store.Scope, bool) { return f.r.hub.env.Scope() }

func (f feed) Begin(from store.Place, everything bool) {
	h := f.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	f.r.beginLocked(from, everything)
	h.settleLocked()
	h.cond.Broadcast()
}

func (f feed) First() store.Place { return f.history().Oldest }

func (f feed) Last() store.Place { return f.history().Last }

func (f feed) history() store.LogState {
	state, err := f.r.hub.store.History()
	if err != nil {
		return store.LogState{} // what reads the log next says why
	}
	return state
}

// beginLocked makes the handler receive what was changed after a place, and everything,
// with what has departed:
//
//	departing  resuming  live  walking  live
//
// Each of them may be left out.
func (r *Registration) beginLocked(from store.Place, everything bool) {
	r.dropWaitingLocked()
	r.walked, r.cursor, r.early, r.departed, r.deletions, r.confirmed = nil, "", map[string]struct{}{}, 0, 0, 0
	r.resumed.handled, r.resumed.inWork, r.resumed.replayed = r.resumed.queued, 0, map[string]replayed{}
	r.resumed.from, r.resumed.everything, r.resumed.newer = from, everything, ""
	if !from.Exact() && !everything {
		r.resumed.newer = from.RV
	}
	if r.stage = departing; !everything {
		r.stage = resuming
	}
	r.resync.running, r.resync.due = false, time.Now().Add(r.resync.every)
}

// departedLocked ends departing.
func (r *Registration) departedLocked() {
	if r.stage = resuming; r.resumed.from.IsZero() {
		r.walkAfterLogLocked()
	}
}

// walkAfterLogLocked begins the cursor of a handler that has received what the log had
// and what was queued meanwhile. An add may come before older changes that wait, which
// the cursors of other handlers avoid: here the queue may never be empty.
func (r *Registration) walkAfterLogLocked() {
	r.stage, r.resumed.everything = walking, false
	r.cursor, r.early = "", map[string]struct{}{}
}

func (f feed) Mark() (place store.Place, fence uint64, ok bool) {
	h := f.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.r.removed || f.r.stage != live || f.r.resumed.everything || f.r.resumed.failed || h.keys.untold {
		return store.Place{}, 0, false
	}
	// A change is appended to the queue when it is applied, so before it is in the log,
	// where a loaded list is, too.
	state, err := h.store.History()
	return state.Last, f.r.resumed.queued, err == nil && !state.Last.IsZero()
}

func (f feed) Passed(fence uint64) bool {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.r.resumed.handled >= fence && !f.r.resumed.failed
}

func (f feed) Departed() uint64 {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.r.hub.lastDepartedLocked()
}

func (f feed) Confirm(number uint64) {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	f.r.confirmed = max(f.r.confirmed, number)
	f.r.hub.settleLocked()
}

func (f feed) Ended() bool {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.r.removed || f.r.hub.phase == ended
}

func (f feed) Flush(ctx context.Context) error { return f.r.hub.store.Flush(ctx) }

func (f feed) Len() int {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.r.hub.keys.known.Len()
}

func (f feed) Sweep(after string, limit int) (last string, more bool, err error) {
	r, h := f.r, f.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.cond.Broadcast()
	if r.stage != live || r.resumed.everything || r.removed || !h.isToldLocked() {
		return after, true, nil
	}
	entries, err := h.store.Select(store.Query{After: after, Limit: limit})
	for _, e := range entries {
		after = e.Key
		r.queueLocked(queue.Notification{Kind: queue.Added, Key: e.Key, New: e, Initial: true})
	}
	return after, len(entries) == limit || err != nil, err
}

// queueLocked appends a notification behind what waits.
func (r *Registration) queueLocked(n queue.Notification) {
	r.waiting.Add(n)
	r.resumed.queued++
}

// walkLocked appends notifications of the cursor, before what waits.
func (r *Registration) walkLocked(some ...queue.Notification) {
	r.walked = append(r.walked, some...)
	r.resumed.queued += uint64(len(some))
}

// replay brings what the log has after the place of Begin. What is applied meanwhile
// waits in the queue.
func (r *Registration) replay() {
	h := r.hub
	h.mu.Lock()
	from := r.resumed.from
	h.mu.Unlock()
	err := r.followLog(from)
	isLost := errors.Is(err, store.ErrTrimmed) || errors.Is(err, store.ErrLineage)
	var oldest store.Place // of the log, if it does not lead on from where the handler is
	switch {
	case err == nil, errors.Is(err, errOver), r.over.Err() != nil:
	case isLost:
		r.resumed.handler.Lost(feed{r}, err)
		oldest = feed{r}.First()
	default:
		feed{r}.Logger().Error(err, "A handler cannot go on yet, trying again", "handler", r.Name())
		r.pause(retryPause)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case r.removed || h.phase == ended || r.stage != resuming:
	case err == nil:
		r.stage, r.resumed.behind = live, r.resumed.queued
		r.markSyncedLocked()
	case isLost:
		r.beginAgainLocked(from, oldest)
	}
}

// beginAgainLocked begins where the log begins, because it does not lead from a place.
// What was deleted since has departed, if the handler has not received it before, or is
// in the log. Then the cursor brings what is newer than the resource version of the place
// or, if that is not all there is to say, everything.
func (r *Registration) beginAgainLocked(from, oldest store.Place) {
	newer, departed := r.resumed.newer, r.departed
	if oldest == from {
		oldest = store.Place{} // it has been tried
	}
	r.beginLocked(oldest, true)
	r.resumed.newer, r.departed = newer, departed
}

// addLocked returns the notification of a cursor.
func (r *Registration) addLocked(e store.Entry) queue.Notification {
	newer := r.resumed.newer != ""
	return queue.Notification{Kind: queue.Added, Key: e.Key, New: e, Initial: !newer, Newer: newer}
}

// errOver ends followLog when the handler is removed or the informer ends.
var errOver = errors.New("the handler receives nothing more")

// isAhead reports whether a place that has only a resource version is after another one.
func isAhead(p, last store.Place) bool {
	order, err := resourceversion.CompareResourceVersion(p.RV, last.RV)
	return !p.Exact() && err == nil && order > 0
}

// written returns the state of the log when what was applied before is in it.
func (r *Registration) written() (store.LogState, error) {
	ctx, cancel := context.WithTimeout(r.over, flushPatience)
	defer cancel()
	if err := r.hub.store.Flush(ctx); err != nil {
		return store.LogState{}, fmt.Errorf("what was applied before is not written: %w", err)
	}
	return r.hub.store.History()
}

func (r *Registration) followLog(from store.Place) error {
	s := r.hub.store
	state, err := r.written()
	if err != nil {
		return err
	}
	if isAhead(from, state.Last) {
		// It is not where the informer has begun, or the server was restored to an
		// earlier state.
		select {
		case <-r.hub.Synced():
		case <-r.over.Done():
			return errOver
		}
		if state, err = r.written(); err != nil {
			return err
		}
		if isAhead(from, state.Last) {
			return store.ErrLineage
		}
	}
	if from.Lineage == state.Last.Lineage && from.Mark == state.Last.Mark && from.Random == state.Last.Random {
		return nil
	}
	if !from.Exact() && !state.Newer && from.RV == state.Last.RV {
		return nil // Follow would wait
	}
	var batch []queue.Notification
	for e, err := range s.Follow(r.over, from) {
		if err != nil {
			return err
		}
		if m := e.Mark; m != nil {
			switch {
			case m.Begins:
				return store.ErrTrimmed
			case m.Mark >= state.Last.Mark:
				return r.handOver(batch)
			}
			continue
		}
		n, ok, err := r.logged(e)
		if err != nil {
			return err
		}
		if ok {
			batch = append(batch, n)
		}
		if len(batch) == takeAtOnce {
			if err := r.handOver(batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	return errOver
}

// logged returns the notification of an event of the log. ok is false if there is
// nothing to say: a later event has the object.
func (r *Registration) logged(e store.Event) (n queue.Notification, ok bool, err error) {
	n = queue.Notification{Kind: queue.Updated, Key: e.Key}
	rv := e.RV
	if e.Old == nil {
		n.Kind = queue.Added
	} else {
		n.Old = e.Old.Entry
	}
	switch {
	case e.New == nil:
		if n.Kind = queue.Deleted; e.Old == nil || !e.Old.IsKnown() {
			n.Kind = queue.Vanished
		}
	case e.New.IsKnown():
		n.New, rv = e.New.Entry, e.New.Header.RV
	default:
		if n.New, ok, err = r.hub.store.Entry(e.Key); err != nil {
			return n, false, err
		}
		if !ok { // it is gone now
			n.Kind = queue.Deleted
			if e.Old == nil || !e.Old.IsKnown() {
				return n, false, nil // its deletion follows
			}
		}
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if r.resumed.newer != "" {
		order, err := resourceversion.CompareResourceVersion(rv, r.resumed.newer)
		if err == nil && order <= 0 {
			return n, false, nil
		}
	}
	r.resumed.replayed[e.Key] = replayed{rv, e.New == nil}
	return n, true, nil
}

// handOver delivers a batch of the log.
func (r *Registration) handOver(batch []queue.Notification) error {
	r.decode(batch)
	for _, n := range batch {
		if r.isOver() {
			return errOver
		}
		r.deliverOne(n)
	}
	return nil
}

// isReplayed reports whether the handler has received this state, or a later one, from
// the log or in an earlier process. n is the notification at i of the batch that is in
// work; its objects are decoded.
func (r *Registration) isReplayed(n queue.Notification, i int) bool {
	if r.resumed.handler == nil {
		return false
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	waited := r.resumed.handled+uint64(i) < r.resumed.behind
	last, ok := r.resumed.replayed[n.Key]
	// A deletion may be newer than the state that comes with it.
	if n.Newer || waited && !ok && n.Kind != queue.Deleted {
		last, ok = replayed{rv: r.resumed.newer}, r.resumed.newer != ""
	}
	if !ok || !waited && !n.Newer || n.Kind == queue.Vanished {
		return false
	}
	state := n.New.Object
	if n.Kind == queue.Deleted {
		state = n.Old.Object
	}
	if state == nil {
		return false
	}
	m, err := meta.Accessor(state)
	if err != nil {
		return false
	}
	// A deleted object may have the resource version of its last state.
	order, err := resourceversion.CompareResourceVersion(m.GetResourceVersion(), last.rv)
	return err == nil && (order < 0 || order == 0 && last.deleted == (n.Kind == queue.Deleted))
}

// handle records that the handler has returned from what was taken.
func (r *Registration) handle() {
	if r.resumed.handler == nil {
		return
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.resumed.handled, r.resumed.inWork = r.resumed.handled+r.resumed.inWork, 0
	if r.resumed.handled >= r.resumed.behind && r.stage == live {
		r.resumed.replayed = nil
	}
}

// fail keeps the place of the handler where it is.
func (r *Registration) fail() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.resumed.failed = true
}
