package delivery

import (
	"context"
	"fmt"
	"time"

	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/resume"
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
	kind    kind
	initial bool
	newer   bool // an add that is left out unless it is above resumption.newer
	key     string
	// old is the state before, without an object if it is not known; of the kind deleted
	// it is the last state that the watch has sent. new is the new state; of the kind
	// deleted it is the state before, for clients only.
	old, new store.Entry
}

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
	waiting   backlog
	walked    []notification // chunk of the cursor, delivered before waiting
	streamed  int            // notifications taken from waiting since that chunk
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
		waiting: backlog{limits: &h.Limits},
	}
	r.over, r.end = context.WithCancel(context.Background())
	if resumed, ok := handler.(resume.Handler); ok {
		r.resumed.handler, r.stage = resumed, attaching
	}
	return r
}

// changedLocked appends a change. was is the state that was stored before.
func (r *Registration) changedLocked(n notification, was store.Entry, slim Slim) {
	switch r.stage {
	case attaching, passive:
		return // the cursor, the departed objects or the log will have it
	case departing:
		// The same, but the handler knows objects of another process, and without a log
		// nothing else has the deletion of one that is younger than this process.
		if r.resumed.newer == "" || !n.kind.isDeletion() {
			return
		}
	case walking, live, resuming:
	}
	if !r.resumed.from.IsZero() {
		n.initial = false // it is new to a handler that goes on
	}
	if r.waiting.isLong() {
		was, n.old, n.new = slim.entry(was), slim.entry(n.old), slim.entry(n.new)
	}
	if r.client && n.kind == deleted {
		n.new = was
	}
	if r.stage == walking && n.key > r.cursor {
		if _, early := r.early[n.key]; !early {
			r.early[n.key] = struct{}{}
			switch {
			case isReadable(was):
				r.queueLocked(r.addLocked(was))
			case was.Key == "": // not stored before: n is the add
			case n.kind == updated: // the first readable state becomes the add
				n = r.addLocked(n.new)
			default:
				return // deleted before the handler received it
			}
		}
	}
	if n.kind.isDeletion() {
		r.deletions++
	}
	r.queueLocked(n)
}

func (k kind) isDeletion() bool { return k == deleted || k == vanished }

// isReadable reports whether an entry has an object. The entry of a damaged object has
// only a key.
func isReadable(e store.Entry) bool { return e.Object != nil || e.Raw != nil }

// markSyncedLocked appends the notification that marks the handler as synced, if the
// informer has synced and the cursor has finished.
func (r *Registration) markSyncedLocked() {
	if r.hub.isSynced() && (r.stage == live && !r.resumed.everything || r.stage == passive) {
		r.queueLocked(notification{kind: synced})
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
			batch[i] = notification{} // the backlog still references the array
			if !r.isReplayed(n, i) {
				r.deliverOne(n)
			}
			if n.kind.isDeletion() || n.kind == synced {
				r.settle(n.kind)
			}
		}
		r.handle()
	}
}

// deliverOne makes one call, and pauses after a panic.
func (r *Registration) deliverOne(n notification) {
	panicked := r.deliver(n)
	unreadable := n.new.Object == nil && !n.kind.isDeletion() && n.kind != synced || n.old.Object == nil && n.old.Raw != nil
	if panicked || unreadable {
		r.fail()
	}
	if panicked {
		r.pause(panicPause)
	}
}

// settle records that the handler has received a deletion or the synced mark.
func (r *Registration) settle(k kind) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if k.isDeletion() && r.resumed.inWork > 0 { // else Begin has dropped it
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
func (r *Registration) take() (batch []notification, ok bool) {
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
		case !r.waiting.isEmpty():
			if batch := r.waiting.take(takeAtOnce); len(batch) > 0 {
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
	return r.stage == walking && r.hub.isToldLocked() && (r.waiting.isEmpty() || r.streamed >= cursorEvery)
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
func (r *Registration) decode(batch []notification) {
	var waiting []*store.Entry
	for i := range batch {
		for _, e := range []*store.Entry{&batch[i].old, &batch[i].new} {
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
		if n.new.Object != nil {
			r.hub.env.Handed(n.new.Object)
		}
	}
}

// deliver makes one call. A panic is handled as in client-go: the handler's logger logs
// it and the process ends, or, with utilruntime.ReallyCrash off, the notification is
// skipped.
func (r *Registration) deliver(n notification) (panicked bool) {
	panicked = true
	defer utilruntime.HandleCrashWithLogger(*r.logger)
	if f, ok := r.handler.(Follower); ok && r.follow(f, n) {
		return false
	}
	switch n.kind {
	case added:
		if n.new.Object != nil {
			r.handler.OnAdd(n.new.Object, n.initial)
		}
	case updated:
		if n.old.Object == nil {
			n.old.Object = n.new.Object
		}
		if n.new.Object != nil {
			r.handler.OnUpdate(n.old.Object, n.new.Object)
		}
	case resynced:
		if n.new.Object != nil {
			r.handler.OnUpdate(n.new.Object, n.new.Object)
		}
	case deleted:
		r.handler.OnDelete(r.lastState(n))
	case vanished:
		r.handler.OnDelete(cache.DeletedFinalStateUnknown{Key: n.key, Obj: r.lastState(n)})
	case synced:
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
func (r *Registration) follow(f Follower, n notification) bool {
	switch n.kind {
	case updated:
		if n.new.Object != nil {
			f.Updated(n.old.Object, n.new.Object)
		}
	case deleted:
		f.Deleted(n.new.Object, r.lastState(n))
	case vanished:
		f.Deleted(n.old.Object, r.lastState(n))
	case added, resynced, synced:
		return false
	}
	return true
}

// lastState returns the last state of a deleted object. It is never nil, because handlers
// assert its type. If the last state cannot be read, the object has only its name.
func (r *Registration) lastState(n notification) kruntime.Object {
	if n.old.Object != nil {
		return n.old.Object
	}
	return r.hub.env.Blank(n.key)
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
