package delivery

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

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

func (f feed) Mark() (place store.Place, fence uint64, ok bool) {
	h := f.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.r.removed || f.r.stage != live || f.r.resumed.Everything() || f.r.resumed.IsUnwritten() || h.keys.untold {
		return store.Place{}, 0, false
	}
	// A change is appended to the queue when it is applied, so before it is in the log,
	// where a loaded list is, too.
	fence, ok = f.r.fences.Fence()
	if !ok {
		return store.Place{}, 0, false
	}
	last := h.last
	if h.phase != ended {
		last = f.Last()
	}
	return last, fence, !last.IsZero()
}

func (f feed) Passed(fence uint64) bool {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.r.fences.Passed(fence)
}

func (f feed) Departed() uint64 {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.r.hub.departures.Last()
}

func (f feed) Confirm(number uint64) {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	f.r.departed.Confirmed = max(f.r.departed.Confirmed, number)
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

func (f feed) Live() bool {
	f.r.hub.mu.Lock()
	defer f.r.hub.mu.Unlock()
	return f.isLiveLocked()
}

func (f feed) isLiveLocked() bool {
	return f.r.stage == live && !f.r.resumed.Everything() && !f.r.removed && f.r.hub.isToldLocked()
}

func (f feed) Sweep(after string, limit int) (last string, more bool, err error) {
	r, h := f.r, f.r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.cond.Broadcast()
	if !f.isLiveLocked() {
		return after, true, nil
	}
	entries, err := h.store.Select(store.Query{After: after, Limit: limit, Encoded: r.waiting.IsLong()})
	for _, e := range entries {
		after = e.Key
		r.queueLocked(queue.Notification{Kind: queue.Added, Key: e.Key, New: e, Initial: true})
	}
	return after, len(entries) == limit || err != nil, err
}
