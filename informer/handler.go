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

// kind is what a notification tells.
type kind uint8

const (
	added kind = iota
	updated
	deleted
	vanished // deleted, as a new list or the queue tells: its last state is what was known
	resynced // an update with the same pointer as old and new
	synced   // everything before the informer's HasSynced has been told
)

// notification is one call of a handler. Objects are decoded when it is made.
type notification struct {
	kind     kind
	initial  bool
	key      string
	old, new store.Entry
}

const (
	// scanChunk is how many stored objects a cursor reads at a time.
	scanChunk = 256
	// takeAtOnce is how many notifications a handler's goroutine takes, and
	// decodes in parallel, at a time.
	takeAtOnce = 64
	// cursorEvery is how many notifications of the stream are told at most before the
	// cursor's next chunk: a handler that is slower than the stream gets its initial
	// adds all the same.
	cursorEvery = takeAtOnce
	// panicPause is client-go's, after a handler that panicked.
	panicPause = time.Second
)

// stage is how far a handler has come.
type stage uint8

const (
	departing stage = iota // it is told of what has departed; changes do not concern it yet
	walking                // its cursor walks the stored objects
	live                   // it is told of changes only
)

// handler is one registered event handler with its queue.
//
// # Initial adds
//
// A cursor walks the stored objects in key order and appends their adds. A
// change of a key that the cursor has not passed appends the add of the object
// as it was, then the change, and marks the key early, so that the cursor skips
// it. Both happen under the informer's mu. What the cursor has read is told before all
// that is appended later, and what waits then is of other objects: so a handler gets
// exactly one add per object and then its changes in order (promise 4), whether it was
// there at a cold start, at a warm one, or came late; and nobody waits for it.
type handler struct {
	inf     *Informer
	handler cache.ResourceEventHandler
	logger  *klog.Logger
	done    chan struct{} // closed when the goroutine has ended, or never began
	told    chan struct{} // closed when the handler has synced

	// The fields below are protected by inf.mu.
	waiting      backlog
	walked       []notification // a chunk of the cursor, told before what waits
	streamed     int            // notifications taken of what waits since that chunk
	stage        stage
	departed     uint64              // numbers up to it have been appended
	deletions    int                 // of what waits
	cursor       string              // keys up to it have been appended
	early        map[string]struct{} // keys after the cursor that have been appended
	resyncWanted time.Duration       // what was asked for
	resyncEvery  time.Duration       // what it is, by the informer's check; 0 is never
	resyncDue    time.Time
	resyncing    bool   // a resync cursor walks
	resyncAfter  string // where it is
	running      bool
	removed      bool
}

// newHandler takes nil for the logger that client-go uses, too.
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

// changedLocked appends a change; was is what was stored before.
func (h *handler) changedLocked(n notification, was store.Entry, slim slimmer) {
	if h.stage == departing {
		return // the cursor finds what is there, and the departed objects what is gone
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
			case was.Key == "": // not stored: this is its add
			case n.kind == updated: // its story begins with the first state that can be read
				n = notification{kind: added, key: n.key, new: n.new, initial: true}
			default:
				return // deleted, and never told of
			}
		}
	}
	if n.kind.isDeletion() {
		h.deletions++
	}
	h.waiting.add(n)
}

func (k kind) isDeletion() bool { return k == deleted || k == vanished }

// isReadable is false for an object that is stored, but damaged: its entry has a
// key only.
func isReadable(e store.Entry) bool { return e.Object != nil || e.Raw != nil }

// markSyncedLocked appends the mark behind which the handler has synced, once
// the informer has and the cursor is through.
func (h *handler) markSyncedLocked() {
	if h.inf.isSynced && h.stage == live {
		h.waiting.add(notification{kind: synced})
	}
}

func (inf *Informer) startLocked(h *handler) {
	h.running = true
	inf.running.Go(h.run)
}

// run calls the handler until it is removed or the informer ends. Notifications
// that wait then are dropped, as by client-go.
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
			batch[i] = notification{} // the array is the backlog's still
			if panicked := h.deliver(n); panicked {
				h.pause(panicPause)
			}
			if n.kind.isDeletion() || n.kind == synced {
				h.settle(n.kind)
			}
		}
	}
}

// settle notes that a deletion or the mark of having synced was told.
func (h *handler) settle(k kind) {
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	if k.isDeletion() {
		h.deletions--
	}
	h.inf.settleLocked()
}

// pause lets time pass, unless the handler is removed or the informer ends.
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
	for !over && !h.removed && !h.inf.ended {
		h.inf.cond.Wait()
	}
}

func (h *handler) isOver() bool {
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	return h.removed || h.inf.ended
}

// take blocks until there is something to tell.
func (h *handler) take() ([]notification, bool) {
	inf := h.inf
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for {
		switch {
		case h.removed || inf.ended:
			return nil, false
		case len(h.walked) > 0:
			n := min(takeAtOnce, len(h.walked))
			batch := h.walked[:n:n]
			if h.walked = h.walked[n:]; len(h.walked) == 0 {
				h.walked = nil // lets go of the array
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
	return h.stage == walking && h.inf.ready && (h.waiting.isEmpty() || h.streamed >= cursorEvery)
}

// loadLocked reads the next chunk of initial adds. false: the store could not
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

// loadResyncLocked appends the next chunk of a resync. It is called when nothing
// waits, so no key has a waiting change.
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

// decode decodes what is not, in parallel, and has what it hands out watched for
// mutations.
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
			h.inf.lose(h.inf.ctx, err) // which tells of it
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

// deliver makes one call. A panic is handled as client-go does: it is logged by the
// handler's logger and the process ends, or, with utilruntime.ReallyCrash off, the
// notification is skipped.
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

// lastState is never nil: users assert its type. An object whose last state
// cannot be read has its name at least.
func (h *handler) lastState(n notification) kruntime.Object {
	if n.old.Object != nil {
		return n.old.Object
	}
	return h.inf.placeholder(n.key)
}

// resyncLoop starts the resync cursors of the handlers that are due.
func (inf *Informer) resyncLoop(ctx context.Context) {
	for {
		wait := inf.startDueResyncs(time.Now())
		if wait == 0 {
			wait = time.Hour // resyncWake comes first
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

// startDueResyncs returns the time until the next one; 0 where there is none.
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

// ShutdownChan is closed when the handler gets no more notifications; see
// cache.ShutDownEventHandler.
func (h *handler) ShutdownChan() <-chan struct{} { return h.done }
