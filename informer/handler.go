package informer

import (
	"context"
	"fmt"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

// kind is the type of a notification.
type kind uint8

const (
	added kind = iota
	updated
	deleted
	vanished // deleted, with the last known state only: from a list or the queue
	resynced // an update with the same pointer as old and new
	synced   // the handler has received everything up to HasSynced
)

// notification is one call of a handler. Its objects are decoded shortly before the call.
type notification struct {
	kind     kind
	initial  bool
	key      string
	old, new store.Entry
}

const (
	// scanChunk is the number of stored objects that a cursor reads at a time.
	scanChunk = 256
	// takeAtOnce is the number of notifications that a handler's goroutine takes and
	// decodes in parallel at a time.
	takeAtOnce = 64
	// cursorEvery is the maximum number of queued changes that a handler receives before
	// the cursor's next chunk, so that a handler that is slower than the watch still
	// receives its initial adds.
	cursorEvery = takeAtOnce
	// panicPause is the pause after a handler panicked, the same as client-go's.
	panicPause = time.Second
)

// stage is the progress of a handler.
type stage uint8

const (
	departing stage = iota // it receives departed objects and no changes yet
	walking                // its cursor walks the stored objects
	live                   // it receives only changes
)

// handler is one registered event handler with its queue.
//
// # Initial adds
//
// A cursor walks the stored objects in key order and appends their adds. If an object
// changes whose key the cursor has not reached, the add of its previous state is appended
// first, then the change, and the key is marked as early, so that the cursor skips it.
// Both steps hold the informer's mu. The handler receives each chunk of the cursor before
// all entries that are appended later, and the entries that are queued at that time
// belong to other objects. So a handler receives exactly one add per object and then the
// changes of the object in order (promise 4), after a cold start, after a warm start and
// when it is added late, and no other goroutine waits for it.
type handler struct {
	inf     *Informer
	handler cache.ResourceEventHandler
	logger  *klog.Logger
	done    chan struct{} // closed when the goroutine ends, or will never start
	told    chan struct{} // closed when the handler has synced

	// inf.mu protects the fields below.
	waiting      backlog
	walked       []notification // chunk of the cursor, delivered before waiting
	streamed     int            // notifications taken from waiting since that chunk
	stage        stage
	departed     uint64              // departed objects up to this number are appended
	deletions    int                 // deletions queued and not yet delivered
	cursor       string              // keys up to this one are appended
	early        map[string]struct{} // keys after the cursor that are already appended
	resyncWanted time.Duration       // the requested period
	resyncEvery  time.Duration       // the effective period; 0 means never
	resyncDue    time.Time
	resyncing    bool   // a resync is in progress
	resyncAfter  string // the last key that the resync has appended
	running      bool
	removed      bool
}

// newHandler returns a handler that has not started. A nil logger means klog.Background.
func (inf *Informer) newHandler(eh cache.ResourceEventHandler, logger *klog.Logger) *handler {
	if logger == nil {
		background := klog.Background()
		logger = &background
	}
	return &handler{
		inf: inf, handler: eh, logger: logger,
		done: make(chan struct{}), told: make(chan struct{}), early: map[string]struct{}{},
		waiting: backlog{limits: &inf.limits},
	}
}

// changedLocked appends a change. was is the state that was stored before.
func (h *handler) changedLocked(n notification, was store.Entry, slim slimmer) {
	if h.stage == departing {
		return // the cursor will find the object, or it is among the departed
	}
	if h.waiting.isLong() {
		was, n.old, n.new = slim.entry(was), slim.entry(n.old), slim.entry(n.new)
	}
	if h.stage == walking && n.key > h.cursor {
		if _, early := h.early[n.key]; !early {
			h.early[n.key] = struct{}{}
			switch {
			case isReadable(was):
				h.waiting.add(notification{kind: added, key: n.key, new: was, initial: true})
			case was.Key == "": // not stored before: n is the add
			case n.kind == updated: // the first readable state becomes the add
				n = notification{kind: added, key: n.key, new: n.new, initial: true}
			default:
				return // deleted before the handler received it
			}
		}
	}
	if n.kind.isDeletion() {
		h.deletions++
	}
	h.waiting.add(n)
}

func (k kind) isDeletion() bool { return k == deleted || k == vanished }

// isReadable reports whether an entry has an object. The entry of a damaged object has
// only a key.
func isReadable(e store.Entry) bool { return e.Object != nil || e.Raw != nil }

// markSyncedLocked appends the notification that marks the handler as synced, if the
// informer has synced and the cursor has finished.
func (h *handler) markSyncedLocked() {
	if h.inf.isSynced && h.stage == live {
		h.waiting.add(notification{kind: synced})
	}
}

func (inf *Informer) startLocked(h *handler) {
	h.running = true
	inf.running.Go(h.run)
}

// run calls the handler until it is removed or the informer ends. Like client-go, it then
// drops the remaining notifications.
func (h *handler) run() {
	defer close(h.done)
	defer func() {
		h.inf.mu.Lock()
		defer h.inf.mu.Unlock()
		h.walked = nil
		h.dropWaitingLocked()
	}()
	for {
		batch, ok := h.take()
		if !ok {
			return
		}
		h.decode(batch)
		for i, n := range batch {
			if h.isOver() {
				return
			}
			batch[i] = notification{} // the backlog still references the array
			if panicked := h.deliver(n); panicked {
				h.pause(panicPause)
			}
			if n.kind.isDeletion() || n.kind == synced {
				h.settle(n.kind)
			}
		}
	}
}

// settle records that the handler has received a deletion or the synced mark.
func (h *handler) settle(k kind) {
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	if k.isDeletion() {
		h.deletions--
	}
	h.inf.settleLocked()
}

// pause waits for d, or until the handler is removed or the informer ends.
func (h *handler) pause(d time.Duration) {
	over := false
	t := time.AfterFunc(d, func() {
		h.inf.mu.Lock()
		defer h.inf.mu.Unlock()
		over = true
		h.inf.cond.Broadcast()
	})
	defer t.Stop()
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	for !over && !h.removed && h.inf.phase != ended {
		h.inf.cond.Wait()
	}
}

func (h *handler) isOver() bool {
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	return h.removed || h.inf.phase == ended
}

// take blocks until there are notifications to deliver. It returns false when the handler
// is removed or the informer has ended.
func (h *handler) take() ([]notification, bool) {
	inf := h.inf
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for {
		switch {
		case h.removed || inf.phase == ended:
			return nil, false
		case len(h.walked) > 0:
			n := min(takeAtOnce, len(h.walked))
			batch := h.walked[:n:n]
			if h.walked = h.walked[n:]; len(h.walked) == 0 {
				h.walked = nil // releases the array
			}
			return batch, true
		case h.stage == departing && h.loadDepartedLocked():
		case h.isCursorsTurnLocked() && h.loadLocked():
		case !h.waiting.isEmpty():
			if batch := h.waiting.take(takeAtOnce); len(batch) > 0 {
				h.streamed += len(batch)
				return batch, true
			}
			if !h.loadChunkLocked() {
				inf.cond.Wait()
			}
		case h.stage == live && h.resyncing && h.loadResyncLocked():
		default:
			inf.cond.Wait()
		}
	}
}

func (h *handler) isCursorsTurnLocked() bool {
	return h.stage == walking && h.inf.hasListLocked() && (h.waiting.isEmpty() || h.streamed >= cursorEvery)
}

// loadLocked reads the next chunk of initial adds. It returns false if the store cannot
// be read now.
func (h *handler) loadLocked() bool {
	entries, err := h.inf.store.Scan(h.cursor, scanChunk)
	if err != nil {
		h.inf.loseLocked(h.inf.ctx, err)
		return false
	}
	h.streamed = 0
	for _, e := range entries {
		h.cursor = e.Key
		if _, early := h.early[e.Key]; early {
			delete(h.early, e.Key)
			continue
		}
		h.walked = append(h.walked, notification{kind: added, key: e.Key, new: e, initial: true})
	}
	if len(entries) < scanChunk {
		h.stage, h.early = live, nil
		h.markSyncedLocked()
	}
	return true
}

// loadResyncLocked appends the next chunk of a resync. It is called when the queue is
// empty, so no queued change is newer than the entries. It returns false if the store
// cannot be read now.
func (h *handler) loadResyncLocked() bool {
	entries, err := h.inf.store.Scan(h.resyncAfter, scanChunk)
	if err != nil {
		h.inf.loseLocked(h.inf.ctx, err)
		h.resyncing = false
		return false
	}
	for _, e := range entries {
		h.resyncAfter = e.Key
		h.waiting.add(notification{kind: resynced, key: e.Key, new: e})
	}
	if len(entries) < scanChunk {
		h.resyncing = false
	}
	return true
}

// decode decodes the encoded objects of a batch in parallel. It adds the objects that the
// handler will receive to the mutation detector.
func (h *handler) decode(batch []notification) {
	var waiting []*store.Entry
	for i := range batch {
		for _, e := range []*store.Entry{&batch[i].old, &batch[i].new} {
			if e.Object == nil && e.Raw != nil {
				waiting = append(waiting, e)
			}
		}
	}
	_ = parallel.Do(len(waiting), func(i int) error {
		obj, err := h.inf.store.Decode(*waiting[i])
		if err != nil {
			h.inf.lose(h.inf.ctx, err) // logs the error and requests a list
			return nil
		}
		waiting[i].Object, waiting[i].Raw = obj, nil
		return nil
	})
	for _, n := range batch {
		if n.new.Object != nil {
			h.inf.mutations.AddObject(n.new.Object)
		}
	}
}

// deliver makes one call. A panic is handled as in client-go: the handler's logger logs
// it and the process ends, or, with utilruntime.ReallyCrash off, the notification is
// skipped.
func (h *handler) deliver(n notification) (panicked bool) {
	panicked = true
	defer utilruntime.HandleCrashWithLogger(*h.logger)
	switch n.kind {
	case added:
		if n.new.Object != nil {
			h.handler.OnAdd(n.new.Object, n.initial)
		}
	case updated:
		if n.old.Object == nil {
			n.old.Object = n.new.Object
		}
		if n.new.Object != nil {
			h.handler.OnUpdate(n.old.Object, n.new.Object)
		}
	case resynced:
		if n.new.Object != nil {
			h.handler.OnUpdate(n.new.Object, n.new.Object)
		}
	case deleted:
		h.handler.OnDelete(h.lastState(n))
	case vanished:
		h.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: n.key, Obj: h.lastState(n)})
	case synced:
		close(h.told)
	}
	return false
}

// lastState returns the last state of a deleted object. It is never nil, because handlers
// assert its type. If the last state cannot be read, the object has only its name.
func (h *handler) lastState(n notification) kruntime.Object {
	if n.old.Object != nil {
		return n.old.Object
	}
	return h.inf.placeholder(n.key)
}

// resyncLoop starts the resyncs that are due.
func (inf *Informer) resyncLoop(ctx context.Context) {
	for {
		wait := inf.startDueResyncs(time.Now())
		if wait == 0 {
			wait = time.Hour // resyncWake ends the wait
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		case <-inf.resyncWake:
		}
		t.Stop()
	}
}

// startDueResyncs starts the resyncs that are due. It returns the time until the next
// one, 0 if there is none.
func (inf *Informer) startDueResyncs(now time.Time) (next time.Duration) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for h := range inf.handlers {
		if h.resyncEvery <= 0 {
			continue
		}
		if !h.resyncDue.After(now) {
			h.resyncDue = now.Add(h.resyncEvery)
			if inf.isSynced && !h.resyncing {
				h.resyncing, h.resyncAfter = true, ""
			}
		}
		if left := h.resyncDue.Sub(now); next == 0 || left < next {
			next = left
		}
	}
	inf.cond.Broadcast()
	return next
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (h *handler) HasSynced() bool { return cache.IsDone(h) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (h *handler) HasSyncedChecker() cache.DoneChecker { return h }

// Name implements cache.DoneChecker.
func (h *handler) Name() string {
	return fmt.Sprintf("handler %T of the informer for %s", h.handler, h.inf.Scope())
}

// Done implements cache.DoneChecker.
func (h *handler) Done() <-chan struct{} { return h.told }

// ShutdownChan returns a channel that is closed when the handler receives no more
// notifications; see cache.ShutDownEventHandler.
func (h *handler) ShutdownChan() <-chan struct{} { return h.done }
