package delivery

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// Spill writes queue entries that exceed the memory limit to files. It is called after
// Do, by one goroutine at a time.
func (h *Hub) Spill(ctx context.Context) {
	var cuts []*queue.Chunk
	h.mu.Lock()
	for r := range h.handlers {
		cuts = append(cuts, r.waiting.Cut()...)
	}
	h.mu.Unlock()
	for _, c := range cuts {
		w, err := c.Write(h.env.Dir())
		if err != nil {
			klog.FromContext(ctx).Error(err, "What waits for a slow handler could not be written to a file, it stays in memory")
		}
		h.mu.Lock()
		c.Replace(w, err)
		h.cond.Broadcast()
		h.mu.Unlock()
	}
}

// loadChunkLocked makes the spilled entries that come next available. It returns false if
// the caller has to wait: they are still being written.
func (r *Registration) loadChunkLocked() bool {
	loaded, err := r.waiting.Load(func(read func()) {
		r.hub.mu.Unlock()
		defer r.hub.mu.Lock()
		read()
	})
	if r.removed || r.hub.phase == ended {
		return true
	}
	if err != nil {
		r.logger.Error(err, "What waited for a slow handler could not be read, it is told of the present state instead")
		return r.catchUpLocked()
	}
	return loaded
}

// catchUpLocked replaces a queue that cannot be read: the handler receives the present
// state of every object in it, once. It returns false if a chunk is still being written
// or the store cannot be read now. Nothing but the chunks and what is behind them waits.
func (r *Registration) catchUpLocked() bool {
	if !r.hub.isToldLocked() {
		return false // what the list has brought comes once more
	}
	keys, ok := r.waiting.Keys()
	if !ok {
		return false
	}
	var now []queue.Notification
	told := map[string]struct{}{}
	for _, k := range keys {
		if _, twice := told[k.Key]; twice {
			continue
		}
		told[k.Key] = struct{}{}
		if k.Key == "" {
			continue
		}
		e, ok, err := r.hub.store.Entry(k.Key)
		switch {
		case err != nil:
			r.hub.env.Failed(err)
			return false
		case ok && k.Known:
			now = append(now, queue.Notification{Kind: queue.Updated, Key: k.Key, Old: store.Entry{Key: k.Key}, New: e})
		case ok:
			now = append(now, queue.Notification{Kind: queue.Added, Key: k.Key, New: e, Initial: k.Initial, Newer: k.Newer})
		case k.Known:
			now = append(now, queue.Notification{Kind: queue.Vanished, Key: k.Key})
		}
	}
	if _, marked := told[""]; marked {
		now = append(now, queue.Notification{Kind: queue.Synced})
	}
	r.dropWaitingLocked()
	// The states before are lost, so a handler that resumes must receive them once more
	// in the next process.
	r.fences.Lose(len(keys))
	for _, n := range now {
		if n.Kind.IsDeletion() {
			r.departed.Deletions++
		}
		r.queueLocked(n)
	}
	return true
}

// dropWaitingLocked drops the queued entries.
func (r *Registration) dropWaitingLocked() {
	r.waiting.Drop()
	r.departed.Deletions = 0
}
