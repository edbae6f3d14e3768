package delivery

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/informer/internal/delivery/replay"
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
	*latches
	hub     *Hub
	client  bool // see Options.Client
	fromNow bool // see Options.FromNow; it was added before Open
	logger  *klog.Logger
	calls   calls
	goesOn  resume.Handler  // the handler, if it is such a one; else nil
	over    context.Context // ends when the handler is removed or the informer ends
	end     context.CancelFunc

	// hub.mu protects the fields below.
	waiting  *queue.Queue
	cursor   cursor
	fences   replay.Fences
	resumed  replay.Resumption
	departed replay.Receipt
	stage    stage
	resync   resync
	running  bool
	removed  bool
}

func newRegistration(h *Hub, handler cache.ResourceEventHandler, opts Options) *Registration {
	logger := opts.Logger
	if logger == nil {
		background := klog.Background()
		logger = &background
	}
	r := &Registration{
		hub: h, client: opts.Client, logger: logger,
		latches: &latches{
			name: func() string { return fmt.Sprintf("handler %T of the %s", handler, h.env.Name()) },
			told: make(chan struct{}), done: make(chan struct{}),
		},
		waiting: queue.New(&h.Limits, &h.files),
	}
	r.calls = calls{handler: handler, logger: logger, latches: r.latches, env: &h.env}
	if opts.Client {
		r.calls.follower, _ = handler.(Follower)
	}
	r.cursor.begin()
	r.over, r.end = context.WithCancel(context.Background())
	if resumed, ok := handler.(resume.Handler); ok {
		r.goesOn, r.stage, r.calls.goesOn = resumed, attaching, true
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
		if !r.resumed.IsSelective() || !n.Kind.IsDeletion() {
			return
		}
	case walking, live, resuming:
	}
	if !r.resumed.From().IsZero() {
		n.Initial = false // it is new to a handler that goes on
	}
	if r.waiting.IsLong() {
		was, n.Old, n.New = slim.entry(was), slim.entry(n.Old), slim.entry(n.New)
	}
	if r.client && n.Kind == queue.Deleted {
		n.New = was
	}
	if r.stage == walking && r.cursor.isEarly(n.Key) {
		switch {
		case queue.IsReadable(was):
			r.queueLocked(r.resumed.Add(was))
		case n.Kind == queue.Added: // not stored before: n is the add
		case n.Kind == queue.Updated: // the first readable state becomes the add
			n = r.resumed.Add(n.New)
		default:
			return // deleted before the handler received it
		}
	}
	if n.Kind.IsDeletion() {
		r.departed.Deletions++
	}
	r.queueLocked(n)
}

// queueLocked appends a notification behind what waits.
func (r *Registration) queueLocked(n queue.Notification) {
	r.waiting.Add(n)
	r.fences.Queue(1)
}

// markSyncedLocked appends the notification that marks the handler as synced, if the
// informer has synced and the cursor has finished.
func (r *Registration) markSyncedLocked() {
	if r.hub.isSynced() && (r.stage == live && !r.resumed.Everything() || r.stage == passive) {
		r.queueLocked(queue.Notification{Kind: queue.Synced})
	}
}

// run calls the handler until it is removed or the informer ends. Like client-go, it then
// drops the remaining notifications.
func (r *Registration) run() {
	defer close(r.done)
	returns := false
	defer func() {
		if !returns {
			// The handler has ended the goroutine (runtime.Goexit). Others go on without
			// what waits for it.
			r.hub.Remove(r)
		}
		r.hub.mu.Lock()
		defer r.hub.mu.Unlock()
		r.cursor.drop()
		r.dropWaitingLocked()
		r.fences.End()
	}()
	r.attach()
	for {
		batch, ok := r.take()
		if !ok {
			returns = true
			return
		}
		if len(batch) == 0 {
			r.replay()
			continue
		}
		r.calls.decode(batch, r.hub.store)
		for i, n := range batch {
			if r.isOver() {
				returns = true
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
	panicked := r.calls.deliver(n)
	unreadable := n.New.Object == nil && !n.Kind.IsDeletion() && n.Kind != queue.Synced || n.Old.Object == nil && n.Old.Raw != nil
	if panicked || unreadable {
		r.hub.mu.Lock()
		r.fences.Fail() // its place stays where it is
		r.hub.mu.Unlock()
	}
	if panicked {
		r.hub.pause(r, panicPause)
	}
}

// settle records that the handler has received a deletion or the synced mark.
func (r *Registration) settle(k queue.Kind) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if k.IsDeletion() && r.fences.IsInWork() { // else Begin has dropped it
		r.departed.Deletions--
	}
	if i := slices.Index(r.hub.owing, r); i >= 0 && !r.lacksLocked() {
		r.hub.repayLocked(i)
	}
	r.hub.settleLocked()
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
	defer func() { r.fences.Take(len(batch)) }()
	resynced := false
	for {
		switch {
		case r.removed || h.phase == ended:
			return nil, false
		case len(r.cursor.walked) > 0:
			return r.cursor.take(takeAtOnce), true
		case r.stage == resuming && h.phase == ready:
			return nil, true
		case r.stage == resuming:
			h.cond.Wait()
		case r.stage == live && r.resumed.Everything() && !r.resumed.IsBehind(&r.fences, 0):
			r.walkAfterLogLocked()
		case r.stage == departing && (h.phase != loading || !h.departures.Compares()) && r.loadDepartedLocked():
		case r.stage == walking && h.isToldLocked() && r.cursor.isNext(r.waiting.IsEmpty()) && r.loadLocked():
		case r.stage == live && r.resync.late && !resynced && h.isToldLocked() && r.loadResyncLocked():
			resynced = true // a chunk for each batch
		case !r.waiting.IsEmpty():
			if batch := r.waiting.Take(takeAtOnce); len(batch) > 0 {
				r.cursor.streamed += len(batch)
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

// loadLocked reads the next chunk of initial adds. It returns false if the store cannot
// be read now.
func (r *Registration) loadLocked() bool {
	n, last, err := r.cursor.load(r.hub.store, func(e store.Entry) queue.Notification {
		r.hub.keys.add(e.Key) // the program may have written it through the indexer
		return r.resumed.Add(e)
	})
	if err != nil {
		r.hub.env.Failed(err)
		return false
	}
	r.fences.Queue(n)
	if last {
		r.stage = live
		r.markSyncedLocked()
	}
	return true
}
