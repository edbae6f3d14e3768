package delivery

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// room is the time for which the informer has waited for the files of slow handlers.
// Hub.mu protects the fields.
type room struct {
	blocked      time.Duration // time spent in Room; see total
	blockedSince time.Time     // start of the current wait; zero if there is none
	urgent       int           // calls of Urge that have not ended
}

// total returns the time spent in Room, including a wait in progress.
func (r *room) total() time.Duration {
	if r.blockedSince.IsZero() {
		return r.blocked
	}
	return r.blocked + time.Since(r.blockedSince)
}

// Room blocks while the files of backlogs exceed their limit. It does not block before
// HasSynced, nor between Urge and the end of what it began: a slow handler may wait for
// either.
func (h *Hub) Room(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isFullLocked(ctx) {
		return
	}
	klog.FromContext(ctx).Info("Waiting for a slow handler", "waitingBytes", h.files.Bytes)
	h.room.blockedSince = time.Now()
	stop := context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.cond.Broadcast()
	})
	defer stop()
	for h.isFullLocked(ctx) {
		h.cond.Wait()
	}
	h.room.blocked, h.room.blockedSince = h.room.total(), time.Time{}
}

func (h *Hub) isFullLocked(ctx context.Context) bool {
	// What cannot be told yet is told with the next changes: Room must not block them.
	return h.files.Bytes >= h.Limits.Files && h.isSynced() && h.isToldLocked() && h.room.urgent == 0 && ctx.Err() == nil
}

// Urge keeps Room from blocking until the returned function is called: somebody waits for
// the changes that come next.
func (h *Hub) Urge() (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.room.urgent++
	h.cond.Broadcast()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.room.urgent--
	}
}

// Blocked returns the total time that Room has blocked.
func (h *Hub) Blocked() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.room.total()
}

// InFiles returns the bytes of all files of backlogs, and of what should be in files and
// could not be written.
func (h *Hub) InFiles() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.files.Bytes
}
