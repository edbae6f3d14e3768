package delivery

import (
	"context"
	"fmt"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/resume"
	"github.com/informctl/informctl/store"
)

const (
	// CursorChunk is the number of stored objects that a cursor reads at a time.
	CursorChunk = 256
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
	attaching              // a resume.Handler: it has not decided where it begins
	passive                // it waits, and counts as synced
	resuming               // it receives what the log has
)

// Registration is one registered event handler with its queue.
//
// # Initial adds
//
// A cursor walks the stored objects in key order and appends their adds. If an object
// changes whose key the cursor has not reached, the add of its previous state is appended
// first, then the change, and the key is marked as early, so that the cursor skips it.
// Both steps hold the Hub's lock. The handler receives each chunk of the cursor before
// all entries that are appended later, and the entries that are queued at that time
// belong to other objects. So a handler receives exactly one add per object and then the
// changes of the object in order (promise 4), after a cold start, after a warm start and
// when it is added late, and no other goroutine waits for it.
type Registration struct {
	hub     *Hub
	handler cache.ResourceEventHandler
	client  bool // see Options.Client
	fromNow bool // see Options.FromNow; it was added before Open
	logger  *klog.Logger
	done    chan struct{}   // closed when the goroutine ends, or will never start
	over    context.Context // ends when the handler is removed or the informer ends
	end     context.CancelFunc
	told    chan struct{} // closed when the handler has synced

	// hub.mu protects the fields below.
	waiting   *queue.Queue
	walked    []queue.Notification // chunk of the cursor, delivered before waiting
	streamed  int                  // notifications taken from waiting since that chunk
	stage     stage
	departed  uint64              // departed objects up to this number are appended
	deletions int                 // deletions queued and not yet delivered
	confirmed uint64              // the last departed object that is not needed any more
	cursor    string              // keys up to this one are appended
	early     map[string]struct{} // keys after the cursor that are already appended
	resync    resync
	resumed   resumption
	running   bool
	removed   bool
}

func newRegistration(h *Hub, handler cache.ResourceEventHandler, opts Options) *Registration {
	logger := opts.Logger
	if logger == nil {
		background := klog.Background()
		logger = &background
	}
	r := &Registration{
		hub: h, handler: handler, client: opts.Client, logger: logger,
		done: make(chan struct{}), told: make(chan struct{}), early: map[string]struct{}{},
		waiting: queue.New(&h.Limits, &h.files),
	}
	r.over, r.end = context.WithCancel(context.Background())
	if resumed, ok := handler.(resume.Handler); ok {
		r.resumed.handler, r.stage = resumed, attaching
	}
	return r
}

// changedLocked appends a change. was is the state that was stored before.
func (r *Registration) changedLocked(n queue.Notification, was store.Entry, slim Slim) {
	switch r.stage {
	case attaching, passive:
		return // the cursor, the departed objects or the log will have it
	case departing:
		// The same, but the handler knows objects of another process, and without a log
		// nothing else has the deletion of one that is younger than this process.
		if r.resumed.newer == "" || !n.Kind.IsDeletion() {
			return
		}
	case walking, live, resuming:
	}
	if !r.resumed.from.IsZero() {
		n.Initial = false // it is new to a handler that goes on
	}
	if r.waiting.IsLong() {
		was, n.Old, n.New = slim.entry(was), slim.entry(n.Old), slim.entry(n.New)
	}
	if r.client && n.Kind == queue.Deleted {
		n.New = was
	}
	if r.stage == walking && n.Key > r.cursor {
		if _, early := r.early[n.Key]; !early {
			r.early[n.Key] = struct{}{}
			switch {
			case isReadable(was):
				r.queueLocked(r.addLocked(was))
			case was.Key == "": // not stored before: n is the add
			case n.Kind == queue.Updated: // the first readable state becomes the add
				n = r.addLocked(n.New)
			default:
				return // deleted before the handler received it
			}
		}
	}
	if n.Kind.IsDeletion() {
		r.deletions++
	}
	r.queueLocked(n)
}

// isReadable reports whether an entry has an object. The entry of a damaged object has
// only a key.
func isReadable(e store.Entry) bool { return e.Object != nil || e.Raw != nil }

// markSyncedLocked appends the notification that marks the handler as synced, if the
// informer has synced and the cursor has finished.
func (r *Registration) markSyncedLocked() {
	if r.hub.isSynced() && (r.stage == live && !r.resumed.everything || r.stage == passive) {
		r.queueLocked(queue.Notification{Kind: queue.Synced})
	}
}

// run calls the handler until it is removed or the informer ends. Like client-go, it then
// drops the remaining notifications.
func (r *Registration) run() {
	defer close(r.done)
	defer func() {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		r.walked = nil
		r.dropWaitingLocked()
	}()
	r.attach()
	for {
		batch, ok := r.take()
		if !ok {
			return
		}
		if len(batch) == 0 {
			r.replay()
			continue
		}
		r.decode(batch)
		for i, n := range batch {
			if r.isOver() {
				return
			}
			batch[i] = queue.Notification{} // the queue still references the array
			if !r.isReplayed(n, i) {
				r.deliverOne(n)
			}
			if n.Kind.IsDeletion() || n.Kind == queue.Synced {
				r.settle(n.Kind)
			}
		}
		r.handle()
	}
}

// deliverOne makes one call, and pauses after a panic.
func (r *Registration) deliverOne(n queue.Notification) {
	panicked := r.deliver(n)
	unreadable := n.New.Object == nil && !n.Kind.IsDeletion() && n.Kind != queue.Synced || n.Old.Object == nil && n.Old.Raw != nil
	if panicked || unreadable {
		r.fail()
	}
	if panicked {
		r.pause(panicPause)
	}
}

// settle records that the handler has received a deletion or the synced mark.
func (r *Registration) settle(k queue.Kind) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if k.IsDeletion() && r.resumed.inWork > 0 { // else Begin has dropped it
		r.deletions--
	}
	r.hub.settleLocked()
}

// pause waits for d, or until the handler is removed or the informer ends.
func (r *Registration) pause(d time.Duration) {
	over := false
	t := time.AfterFunc(d, func() {
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		over = true
		r.hub.cond.Broadcast()
	})
	defer t.Stop()
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	for !over && !r.removed && r.hub.phase != ended {
		r.hub.cond.Wait()
	}
}

func (r *Registration) isOver() bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.removed || r.hub.phase == ended
}

// take blocks until there are notifications to deliver, or, if it returns none, until the
// log is to be replayed. It returns false when the handler is removed or the informer has
// ended.
func (r *Registration) take() (batch []queue.Notification, ok bool) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	defer func() { r.resumed.inWork = uint64(len(batch)) }()
	for {
		switch {
		case r.removed || h.phase == ended:
			return nil, false
		case len(r.walked) > 0:
			n := min(takeAtOnce, len(r.walked))
			batch := r.walked[:n:n]
			if r.walked = r.walked[n:]; len(r.walked) == 0 {
				r.walked = nil // releases the array
			}
			return batch, true
		case r.stage == resuming && h.phase == ready:
			return nil, true
		case r.stage == resuming:
			h.cond.Wait()
		case r.stage == live && r.resumed.everything && r.resumed.handled >= r.resumed.behind:
			r.walkAfterLogLocked()
		case r.stage == departing && (h.phase != loading || !h.keys.compared) && r.loadDepartedLocked():
		case r.isCursorsTurnLocked() && r.loadLocked():
		case !r.waiting.IsEmpty():
			if batch := r.waiting.Take(takeAtOnce); len(batch) > 0 {
				r.streamed += len(batch)
				return batch, true
			}
			if !r.loadChunkLocked() {
				h.cond.Wait()
			}
		case r.stage == live && r.resync.running && h.isToldLocked() && r.loadResyncLocked():
		default:
			h.cond.Wait()
		}
	}
}

// isToldLocked reports whether what the store holds has been appended to the queues, so
// that it may be read for a handler. Of a loaded list that is not so until TellLoaded has
// ended: else a cursor would pass objects that are gone, and the handler would receive
// their deletion without an add; a resync would bring objects before their add.
func (h *Hub) isToldLocked() bool { return h.phase == ready && !h.keys.untold }

// isCursorsTurnLocked reports whether the cursor goes on.
func (r *Registration) isCursorsTurnLocked() bool {
	return r.stage == walking && r.hub.isToldLocked() && (r.waiting.IsEmpty() || r.streamed >= cursorEvery)
}

// loadLocked reads the next chunk of initial adds. It returns false if the store cannot
// be read now.
func (r *Registration) loadLocked() bool {
	entries, err := r.hub.store.Select(store.Query{After: r.cursor, Limit: CursorChunk})
	if err != nil {
		r.hub.env.Failed(err)
		return false
	}
	r.streamed = 0
	for _, e := range entries {
		r.cursor = e.Key
		if _, early := r.early[e.Key]; early {
			delete(r.early, e.Key)
			continue
		}
		r.walkLocked(r.addLocked(e))
	}
	if len(entries) < CursorChunk {
		r.stage, r.early = live, nil
		r.markSyncedLocked()
	}
	return true
}

// decode decodes the encoded objects of a batch in parallel. It adds the objects that the
// handler will receive to the mutation detector.
func (r *Registration) decode(batch []queue.Notification) {
	var waiting []*store.Entry
	for i := range batch {
		for _, e := range []*store.Entry{&batch[i].Old, &batch[i].New} {
			if e.Object == nil && e.Raw != nil {
				waiting = append(waiting, e)
			}
		}
	}
	_ = parallel.Do(len(waiting), func(i int) error {
		obj, err := r.hub.store.Decode(*waiting[i])
		if err != nil {
			r.hub.env.Failed(err) // logs the error and requests a list
			return nil
		}
		*waiting[i] = store.Entry{Key: waiting[i].Key, Object: obj}
		return nil
	})
	for _, n := range batch {
		if n.New.Object != nil {
			r.hub.env.Handed(n.New.Object)
		}
	}
}

// deliver makes one call. A panic is handled as in client-go: the handler's logger logs
// it and the process ends, or, with utilruntime.ReallyCrash off, the notification is
// skipped.
func (r *Registration) deliver(n queue.Notification) (panicked bool) {
	panicked = true
	defer utilruntime.HandleCrashWithLogger(*r.logger)
	if f, ok := r.handler.(Follower); ok && r.follow(f, n) {
		return false
	}
	switch n.Kind {
	case queue.Added:
		if n.New.Object != nil {
			r.handler.OnAdd(n.New.Object, n.Initial)
		}
	case queue.Updated:
		if n.Old.Object == nil {
			n.Old.Object = n.New.Object
		}
		if n.New.Object != nil {
			r.handler.OnUpdate(n.Old.Object, n.New.Object)
		}
	case queue.Resynced:
		if n.New.Object != nil {
			r.handler.OnUpdate(n.New.Object, n.New.Object)
		}
	case queue.Deleted:
		r.handler.OnDelete(r.lastState(n))
	case queue.Vanished:
		r.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: n.Key, Obj: r.lastState(n)})
	case queue.Synced:
		if !cache.IsDone(r) { // a handler that waited has synced before
			close(r.told)
		}
	}
	return false
}

// Follower is a handler that distinguishes states that are not known. It belongs to a
// client (Options.Client), receives these calls instead of OnUpdate and OnDelete, and no
// resyncs.
type Follower interface {
	cache.ResourceEventHandler
	// Updated receives a changed object. before is nil if the state before is not known.
	Updated(before, now kruntime.Object)
	// Deleted receives the last state of a deleted object, which has nothing but its name
	// if it is not known. before is the last state that handlers have received, nil if it
	// is not known; the last state is another one if that could not be stored.
	Deleted(before, last kruntime.Object)
}

// follow makes the call of a Follower. It returns false if the notification is for
// another method.
func (r *Registration) follow(f Follower, n queue.Notification) bool {
	switch n.Kind {
	case queue.Updated:
		if n.New.Object != nil {
			f.Updated(n.Old.Object, n.New.Object)
		}
	case queue.Deleted:
		f.Deleted(n.New.Object, r.lastState(n))
	case queue.Vanished:
		f.Deleted(n.Old.Object, r.lastState(n))
	case queue.Added, queue.Resynced, queue.Synced:
		return false
	}
	return true
}

// lastState returns the last state of a deleted object. It is never nil, because handlers
// assert its type. If the last state cannot be read, the object has only its name.
func (r *Registration) lastState(n queue.Notification) kruntime.Object {
	if n.Old.Object != nil {
		return n.Old.Object
	}
	return r.hub.env.Blank(n.Key)
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (r *Registration) HasSynced() bool { return cache.IsDone(r) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (r *Registration) HasSyncedChecker() cache.DoneChecker { return r }

// Name implements cache.DoneChecker.
func (r *Registration) Name() string {
	return fmt.Sprintf("handler %T of the %s", r.handler, r.hub.env.Name())
}

// Done implements cache.DoneChecker.
func (r *Registration) Done() <-chan struct{} { return r.told }

// ShutdownChan returns a channel that is closed when the handler receives no more
// notifications; see cache.ShutDownEventHandler.
func (r *Registration) ShutdownChan() <-chan struct{} { return r.done }
