package delivery

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/informer/internal/delivery/replay"
	"github.com/informctl/informctl/store"
)

// Store is what delivery reads. Every store.Store is one. If it also implements
// store.Departer, handlers receive departed objects.
type Store interface {
	Select(q store.Query) ([]store.Entry, error)
	Entry(key string) (store.Entry, bool, error)
	Keys(q store.Query) ([]string, error)
	Encode(obj runtime.Object) (store.Entry, error)
	Decode(e store.Entry) (runtime.Object, error)
	Flush(ctx context.Context) error
	Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error]
	History() (store.LogState, error)
}

// Env is what delivery needs of the informer. All functions may be called by any
// goroutine.
type Env struct {
	// Failed is called when the store cannot be read. It may be called while the Hub's
	// lock is held, so it must not call the Hub.
	Failed func(error)
	// Blank returns an object that has only a key.
	Blank func(key string) runtime.Object
	// Handed is called with every object before a handler receives it.
	Handed func(runtime.Object)
	// Dir returns the directory for the files of queues; "" means the system's.
	Dir func() string
	// Name describes the informer.
	Name func() string
	// Logger returns the logger of the context with which the informer runs; a nil Logger
	// means klog.Background.
	Logger func() klog.Logger
	// Scope returns the informer's scope, and whether what it holds outlives the process.
	// A nil Scope means that there are no consumers.
	Scope func() (store.Scope, bool)
}

// phase is where a Hub is in its life. Only moveLocked changes it.
//
//	from               to          when
//	created            starting    Begin: no handler can shorten the resync check
//	starting           loading     Open
//	loading            ready       the store holds a whole list: Open or MarkListed
//	loading, ready     unreadable  the keys of the stored objects cannot be read
//	unreadable         loading     they can be read again: ReadKeys or MarkListed
//	loading            ready       ReadKeys, if the store held a whole list at Open
//	any but ended      ended       End
//
// HasSynced is a latch beside it: MarkSynced.
type phase uint8

const (
	created phase = iota
	starting
	loading    // handlers wait for a whole list
	unreadable // as loading: it is not known what handlers know
	ready      // cursors walk the stored objects
	ended      // handlers receive nothing more
)

// Hub brings the changes of one informer to its handlers. Its methods may be called by
// any goroutine, except that Open is called once, after Begin and before End.
type Hub struct {
	// Limits bound the queues of handlers. They may be changed before the first handler
	// is added.
	Limits Limits

	room
	env        Env
	synced     chan struct{}  // closed by MarkSynced
	running    sync.WaitGroup // handlers' goroutines
	backlogged atomic.Bool    // set under mu: a queue is longer than queue.KeptDecoded
	store      Store          // set by Open, before any handler's goroutine starts
	scope      string         // its ID; set with it

	// mu makes two critical sections exclude each other: "apply a batch to the store and
	// append it to every queue", which is Do, and "read a chunk of the store, append it
	// to a queue and advance the cursor". Encoding, decoding and callbacks run without
	// it. It protects the fields below and those of every Registration. The informer's
	// lock may be taken while it is held, and not the other way around.
	mu    sync.Mutex
	cond  *sync.Cond // broadcast when a goroutine that waits on it may continue
	phase phase
	whole bool // the store held a whole list at Open
	// last is the end of the log at End, for handlers that go on: another informer may
	// write the scope afterwards.
	last       store.Place
	handlers   map[*Registration]struct{}
	keys       keys
	departures replay.Departures
	owing      []*Registration // removed before they had received all that has departed
	resyncs    resyncs
}

// keys are the keys that handlers know. Hub.mu protects the fields.
type keys struct {
	known  btree.Set[string] // of stored objects
	untold bool              // handlers have not received all of a loaded list
}

// add adds a key unless it is there: setting it again would copy its node, which known
// shares with the copy that Hub.Open returns, and keep two equal texts.
func (k *keys) add(key string) {
	if !k.known.Contains(key) {
		k.known.Insert(key)
	}
}

// New returns a Hub without handlers. resync is how often resyncs are checked.
func New(env Env, resync time.Duration) *Hub {
	h := &Hub{
		Limits: queue.DefaultLimits, env: env, synced: make(chan struct{}),
		handlers: map[*Registration]struct{}{},
		resyncs:  resyncs{check: resync, wake: make(chan struct{}, 1)},
	}
	h.cond = sync.NewCond(&h.mu)
	h.room = room{
		mu: &h.mu, cond: h.cond, limits: &h.Limits, files: queue.Files{Freed: h.cond.Broadcast},
		// What cannot be told yet is told with the next changes: Room must not block
		// them.
		mayWait: func() bool { return h.isSynced() && h.isToldLocked() },
	}
	return h
}

func (h *Hub) moveLocked(to phase, from ...phase) {
	if slices.Contains(from, h.phase) {
		h.phase = to
	}
}

// Begin says that the informer starts: the resync check is fixed from now on.
func (h *Hub) Begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.moveLocked(starting, created)
	h.resyncs.fixed = true
}

// Open starts the handlers. whole says that the store holds a whole list. Open returns
// the keys of the stored objects; the error, which Failed has received, says that they
// cannot be read. Handlers then wait for the next list.
func (h *Hub) Open(s Store, whole bool) (*btree.Set[string], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store, h.whole = s, whole
	departer, _ := s.(store.Departer)
	h.departures.Open(departer)
	if h.env.Scope != nil {
		scope, _ := h.env.Scope()
		h.scope = scope.ID()
	}
	h.moveLocked(loading, starting)
	err := h.beginLocked()
	for r := range h.handlers {
		if r.fromNow && h.phase == ready {
			r.stage = live
			r.markSyncedLocked()
		}
		h.startLocked(r)
	}
	return h.keys.known.Copy(), err
}

// ReadKeys reads the keys of the stored objects if that has failed in Open. It returns
// nil if they were read before. Before that, no change may be applied: handlers would
// receive changes of objects whose add they have not received.
func (h *Hub) ReadKeys() (*btree.Set[string], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != unreadable {
		return nil, nil
	}
	err := h.beginLocked()
	return h.keys.known.Copy(), err
}

// beginLocked reads what handlers begin with.
func (h *Hub) beginLocked() error {
	if err := h.readKeysLocked(); err != nil {
		return err
	}
	if h.whole {
		h.moveLocked(ready, loading)
	}
	if !h.departures.Find(h.keys.known.Contains) {
		// Nothing has departed, so a change that comes next follows the add of the stored
		// object.
		for r := range h.handlers {
			if r.stage == departing {
				r.departedLocked()
			}
		}
	}
	h.cond.Broadcast()
	return nil
}

// MarkSynced makes HasSynced true for the informer, and for each handler when it has
// received what came before.
func (h *Hub) MarkSynced() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isSynced() {
		return
	}
	close(h.synced)
	for r := range h.handlers {
		r.markSyncedLocked()
	}
	h.cond.Broadcast()
}

// Synced returns a channel that MarkSynced closes.
func (h *Hub) Synced() <-chan struct{} { return h.synced }

func (h *Hub) isSynced() bool {
	select {
	case <-h.synced:
		return true
	default:
		return false
	}
}

// End ends all handlers: what waits for them is dropped. Wait waits for their goroutines.
// The store is closed, so all that handlers have received is in the log.
func (h *Hub) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.handlers {
		if r.goesOn != nil && h.store != nil {
			h.last = feed{r}.Last()
			break
		}
	}
	h.settleLocked() // what handlers drop from now on is not confirmed
	h.phase = ended
	for r := range h.handlers {
		r.end()
		if !r.running {
			r.removed = true
			close(r.done)
			delete(h.handlers, r)
		}
	}
	h.cond.Broadcast()
}

// Wait blocks until the goroutines of all handlers have ended.
func (h *Hub) Wait() { h.running.Wait() }

// readKeysLocked reads the keys of the stored objects, which handlers will know.
func (h *Hub) readKeysLocked() error {
	h.keys.known.Clear()
	keys, err := h.store.Keys(store.Query{})
	if err != nil {
		h.moveLocked(unreadable, loading, ready)
		h.env.Failed(err)
		return err
	}
	h.moveLocked(loading, unreadable)
	for _, key := range keys {
		h.keys.known.Insert(key)
	}
	return nil
}

// IsKnown reports whether handlers know an object with this key.
func (h *Hub) IsKnown(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.keys.known.Contains(key)
}

// Options describe a handler that is added.
type Options struct {
	// Resync is the wanted period of resyncs; 0 means none.
	Resync time.Duration
	// Logger is for panics; nil means klog.Background.
	Logger *klog.Logger
	// FromNow leaves the stored objects out: those of Open for a handler that is added
	// before.
	FromNow bool
	// Client says that the handler belongs to a client that comes and goes: it receives
	// no departed objects, and they are not kept for it.
	Client bool
}

// Add adds a handler. It waits for nothing: a cursor delivers the stored objects. It
// returns nil after End.
func (h *Hub) Add(handler cache.ResourceEventHandler, opts Options) *Registration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == ended {
		return nil
	}
	r := newRegistration(h, handler, opts)
	h.resyncs.setLocked(r, opts.Resync, h.handlers)
	switch {
	case opts.FromNow && h.phase == ready:
		r.stage = live
		r.markSyncedLocked()
	case opts.FromNow || opts.Client:
		r.stage = walking // until there is a list, every add is a change
		r.fromNow = opts.FromNow && h.phase < loading
	}
	h.handlers[r] = struct{}{}
	switch {
	case r.goesOn != nil:
		h.departures.Repay(true)
	case r.stage == departing && len(h.owing) > 0: // it receives what has departed
		// One that is still in a call may receive its last deletion itself.
		over := func(r *Registration) bool { return !r.fences.IsInWork() }
		h.repayLocked(max(slices.IndexFunc(h.owing, over), 0))
	}
	h.settleLocked()
	if h.phase >= loading {
		h.startLocked(r)
	}
	return r
}

// Remove removes a handler. It does not wait for a call of the handler that is in
// progress: Registration.ShutdownChan does. It does nothing if the handler was removed or
// belongs to another Hub.
func (h *Hub) Remove(r *Registration) {
	if h.remove(r) && r.goesOn != nil {
		r.goesOn.Removed(feed{r})
	}
}

func (h *Hub) remove(r *Registration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.hub != h || r.removed {
		return false
	}
	r.removed = true
	r.cursor = cursor{}
	r.end()
	r.waiting.Drop() // but not the number of deletions: one may be in work
	delete(h.handlers, r)
	switch {
	case r.goesOn != nil:
		h.departures.Owe(true)
	case r.lacksLocked():
		h.owing = append(h.owing, r)
		h.departures.Owe(false)
	}
	h.settleLocked()
	if !r.running {
		close(r.done)
	}
	h.cond.Broadcast()
	return true
}

// repayLocked notes that the i-th of the removed handlers is not waited for any more:
// another one was added, or it has received the last deletion, in a call that was in
// progress.
func (h *Hub) repayLocked(i int) {
	h.owing = slices.Delete(h.owing, i, i+1)
	h.departures.Repay(false)
}

func (h *Hub) startLocked(r *Registration) {
	r.running = true
	h.running.Go(r.run)
}

// Status describes the handlers, in no order, and returns the number of known keys.
func (h *Hub) Status() (handlers []Status, known int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.handlers {
		s := Status{Type: fmt.Sprintf("%T", r.calls.handler), Synced: r.HasSynced()}
		s.Waiting, s.BytesInFile, s.BytesInMemory = r.waiting.Size()
		n, bytes := r.cursor.size()
		s.Waiting += n
		s.BytesInMemory += bytes
		handlers = append(handlers, s)
	}
	return handlers, h.keys.known.Len()
}

// isToldLocked reports whether what the store holds has been appended to the queues, so
// that it may be read for a handler. Of a loaded list that is not so until TellLoaded has
// ended: else a cursor would pass objects that are gone, and the handler would receive
// their deletion without an add; a resync would bring objects before their add.
func (h *Hub) isToldLocked() bool { return h.phase == ready && !h.keys.untold }

// pause waits for d, or until a handler is removed or the informer ends.
func (h *Hub) pause(r *Registration, d time.Duration) {
	over := false
	t := time.AfterFunc(d, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		over = true
		h.cond.Broadcast()
	})
	defer t.Stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	for !over && !r.removed && h.phase != ended {
		h.cond.Wait()
	}
}
