package delivery

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
)

// room makes the informer wait for the files of slow handlers. It has the lock of its
// Hub, which protects the fields below the first four.
type room struct {
	mu      *sync.Mutex
	cond    *sync.Cond
	limits  *Limits
	mayWait func() bool // whether the informer may wait now

	files        queue.Files   // of all queues
	blocked      time.Duration // time spent in Room; see totalLocked
	blockedSince time.Time     // start of the current wait; zero if there is none
	urgent       int           // calls of Urge that have not ended
}

// Room blocks while the files of queues exceed their limit. It does not block before
// HasSynced, nor between Urge and the end of what it began: a slow handler may wait for
// either.
func (m *room) Room(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.isFullLocked(ctx) {
		return
	}
	klog.FromContext(ctx).Info("Waiting for a slow handler", "waitingBytes", m.files.Waiting())
	m.blockedSince = time.Now()
	stop := context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.cond.Broadcast()
	})
	defer stop()
	for m.isFullLocked(ctx) {
		m.cond.Wait()
	}
	m.blocked, m.blockedSince = m.totalLocked(), time.Time{}
}

func (m *room) isFullLocked(ctx context.Context) bool {
	return m.files.Waiting() >= m.limits.Files && m.mayWait() && m.urgent == 0 && ctx.Err() == nil
}

// Urge keeps Room from blocking until the returned function is called: somebody waits for
// the changes that come next.
func (m *room) Urge() (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.urgent++
	m.cond.Broadcast()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.urgent--
	}
}

// Blocked returns the total time that Room has blocked.
func (m *room) Blocked() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.totalLocked()
}

// totalLocked returns the time spent in Room, including a wait in progress.
func (m *room) totalLocked() time.Duration {
	if m.blockedSince.IsZero() {
		return m.blocked
	}
	return m.blocked + time.Since(m.blockedSince)
}

// InFiles returns the bytes of the files of all queues, and of what should be in files
// and could not be written.
func (m *room) InFiles() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files.Bytes
}
