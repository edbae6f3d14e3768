package delivery

import (
	"context"
	"math"
	"time"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// minimumResync is client-go's minimum resync period.
const minimumResync = time.Second

// resync is the state of a handler's resyncs. Hub.mu protects the fields.
type resync struct {
	wanted  time.Duration // the requested period
	every   time.Duration // the effective period; 0 means never
	due     time.Time
	running bool
	// late means that the next one is due while this one waits for an empty queue: it
	// goes on behind what waits.
	late  bool
	after string // the last key that the running resync has appended
}

// RunResyncs starts the resyncs that are due, and calls notice for each value of lost,
// until the context ends. lost is nil, or says that the store has lost its content: a
// goroutine of its own would wait for that in each of hundreds of informers. notice may
// read the store, and resyncs wait for it.
func (h *Hub) RunResyncs(ctx context.Context, lost <-chan struct{}, notice func()) {
	for {
		h.mu.Lock()
		wait := h.resyncs.startLocked(h.handlers, time.Now())
		h.cond.Broadcast()
		h.mu.Unlock()
		if wait == 0 {
			wait = time.Hour // wake ends the wait
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-h.resyncs.wake:
		case <-lost:
			notice()
		}
		t.Stop()
	}
}

// resyncLocked begins a resync, if the informer has synced. A handler that has not begun
// has nothing to be told again, and a client wants changes only.
func (r *Registration) resyncLocked() {
	if r.hub.isSynced() && !r.client && r.stage != attaching && r.stage != passive {
		r.resync.running, r.resync.late, r.resync.after = true, false, ""
	}
}

// loadResyncLocked appends the next chunk of a resync behind what waits. No queued change
// is newer than the entries, because the lock is held since they were read. It returns
// false if the store cannot be read now.
func (r *Registration) loadResyncLocked() bool {
	limit := CursorChunk
	if r.resync.late {
		limit = takeAtOnce // what waits does not grow by it
	}
	entries, err := r.hub.store.Select(store.Query{After: r.resync.after, Limit: limit, Encoded: r.waiting.IsLong()})
	if err != nil {
		r.hub.env.Failed(err)
		r.resync.running, r.resync.late = false, false
		return false
	}
	for _, e := range entries {
		r.resync.after = e.Key
		r.queueLocked(queue.Notification{Kind: queue.Resynced, Key: e.Key, New: e})
	}
	if len(entries) < limit {
		r.resync.running, r.resync.late = false, false
	}
	return true
}

// resyncs are when the resyncs of a Hub are due. Hub.mu protects the fields but wake.
type resyncs struct {
	check time.Duration // how often they are checked
	fixed bool          // check is that of a running informer
	wake  chan struct{} // capacity 1: ends the wait for the next one
}

// setLocked sets the resync period of a handler that is added to others, after
// client-go's rules. If the informer has no period of its own, no handler has one. A
// period below the informer's makes the informer check more often, unless it runs
// already.
func (s *resyncs) setLocked(r *Registration, period time.Duration, others map[*Registration]struct{}) {
	if period > 0 && period < minimumResync {
		r.logger.Info("Resync period is raised to the minimum", "period", period, "minimum", minimumResync)
		period = minimumResync
	}
	if 0 < period && period < s.check {
		if s.fixed {
			r.logger.Info("Resync period is raised to the running informer's", "period", period, "informer", s.check)
			period = s.check
		} else {
			s.check = period
		}
	}
	r.resync.wanted = period
	for other := range others {
		every := s.period(other)
		other.resync.due = other.resync.due.Add(every - other.resync.every)
		other.resync.every = every
	}
	if r.resync.every = s.period(r); r.resync.every > 0 {
		r.resync.due = time.Now().Add(r.resync.every)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// period rounds the period of a handler up to a whole number of checks. A negative one is
// a single check, as in client-go.
func (s *resyncs) period(r *Registration) time.Duration {
	check := s.check
	if check <= 0 || r.resync.wanted == 0 {
		return 0
	}
	every := r.resync.wanted
	if rest := every % check; rest > 0 && every <= math.MaxInt64-check {
		every += check - rest
	}
	return max(check, every)
}

// startLocked starts the resyncs that are due. It returns the time until the next
// one, 0 if there is none.
func (s *resyncs) startLocked(handlers map[*Registration]struct{}, now time.Time) (next time.Duration) {
	for r := range handlers {
		if r.resync.every <= 0 {
			continue
		}
		if !r.resync.due.After(now) {
			r.resync.due = now.Add(r.resync.every)
			if r.resync.late = r.resync.running; !r.resync.running {
				r.resyncLocked()
			}
		}
		if left := r.resync.due.Sub(now); next == 0 || left < next {
			next = left
		}
	}
	return next
}
