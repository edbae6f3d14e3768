package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// EventType says what an Event is.
type EventType string

// The types of events.
const (
	Initial  EventType = "INITIAL"  // the object is in the store
	Added    EventType = "ADDED"    // the object is new
	Modified EventType = "MODIFIED" // the object has changed
	Deleted  EventType = "DELETED"  // the object is gone; Object is its last state that is known
	Current  EventType = "CURRENT"  // all that came before has been yielded, once; there is no Object
)

// Event is one change that Follow yields.
type Event struct {
	Type   EventType
	Object runtime.Object // shared with others; not to be changed
	// Listed says that a list may have brought the change, in the order of keys: whoever
	// has this event may lack others up to its resource version.
	Listed bool
	// More says that another event is at hand: a writer may put off its flush.
	More bool
}

// FollowOptions say where Follow begins. The zero value is from now on.
type FollowOptions struct {
	// Initial asks for the objects that are there first.
	Initial bool
	// Since asks for what came after a resource version first. It does not go with
	// Initial.
	Since string
}

// Follow's errors.
var (
	// ErrExpired indicates a resource version after which not all changes are remembered.
	ErrExpired = errors.New("expired")
	// ErrAhead indicates a resource version that the informer has not reached.
	ErrAhead = errors.New("ahead of the informer")
	// ErrNotOpened indicates an informer that has not opened its scope yet.
	ErrNotOpened = errors.New("the informer has not opened what it stored yet")
	// ErrStopped indicates an informer that has ended.
	ErrStopped = errors.New("the informer has stopped")
	// ErrSlow indicates a consumer that takes events more slowly than they come.
	ErrSlow = fmt.Errorf("the client takes changes more slowly than they come: %d wait", followBuffer)
)

// placeError is ErrExpired or ErrAhead with its sentence.
type placeError struct {
	sentinel error
	text     string
}

func (e *placeError) Error() string { return e.text }
func (e *placeError) Unwrap() error { return e.sentinel }

func atPlace(sentinel error, format string, args ...any) error {
	return &placeError{sentinel, fmt.Sprintf(format, args...)}
}

const (
	// followBuffer is how many events wait for a consumer.
	followBuffer = 1024
	// FollowPatience is how long a consumer may take no event while one waits.
	FollowPatience = 5 * time.Second
	// followCheck is how often Follow looks what waits behind the initial objects, and
	// whether the informer has reached a resource version.
	followCheck = 250 * time.Millisecond
	// aheadPatience is how long Follow waits for the informer to reach one: an informer
	// that was started again is behind the process before it.
	aheadPatience = 5 * time.Second
)

// feed is the event handler of one consumer. It never lets its backlog grow: a change
// for which the buffer has no room ends it. The initial objects may come faster than any
// consumer takes them, so they wait, as long as few changes wait behind them.
type feed struct {
	initial bool // the initial objects are wanted
	out     chan Event
	handler atomic.Pointer[handler] // nil until it was added

	slowOnce sync.Once
	slow     chan struct{} // closed when the consumer is too slow
	gone     <-chan struct{}
}

// OnAdd implements cache.ResourceEventHandler.
func (f *feed) OnAdd(obj any, isInInitialList bool) {
	switch {
	case !isInInitialList:
		f.offer(Added, obj)
	case f.initial:
		f.wait(Initial, obj)
	default:
		f.wait(Added, obj)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
// A feed has no resync; what was may be as unknown as to be given as what is.
func (f *feed) OnUpdate(_, obj any) { f.offer(Modified, obj) }

// OnDelete implements cache.ResourceEventHandler.
func (f *feed) OnDelete(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	f.offer(Deleted, obj)
}

func (f *feed) offer(kind EventType, v any) {
	obj, ok := v.(runtime.Object)
	if !ok {
		return
	}
	select {
	case f.out <- Event{Type: kind, Object: obj}:
	default:
		f.tooSlow()
	}
}

func (f *feed) wait(kind EventType, v any) {
	obj, ok := v.(runtime.Object)
	if !ok {
		return
	}
	end := time.Now().Add(FollowPatience)
	check := time.NewTicker(followCheck)
	defer check.Stop()
	for !f.isBehind() && time.Now().Before(end) {
		select {
		case f.out <- Event{Type: kind, Object: obj}:
			return
		case <-f.slow:
			return
		case <-f.gone:
			return
		case <-check.C:
		}
	}
	f.tooSlow()
}

// isBehind reports whether more waits behind what was there before than a cursor
// brings at a time, and the buffer would take.
func (f *feed) isBehind() bool {
	h := f.handler.Load()
	if h == nil {
		return false
	}
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	n, _, _ := h.waiting.size()
	return n > followBuffer+scanChunk
}

func (f *feed) tooSlow() { f.slowOnce.Do(func() { close(f.slow) }) }

// addFromNow is AddEventHandler for one that is not told of what is there. It has
// no resync.
func (inf *Informer) addFromNow(eh cache.ResourceEventHandler) (*handler, error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.addFromNowLocked(eh)
}

func (inf *Informer) addFromNowLocked(eh cache.ResourceEventHandler) (*handler, error) {
	if inf.ended {
		return nil, ErrStopped
	}
	h := inf.newHandler(eh, nil)
	if h.stage = walking; inf.ready { // before that there is nothing, and all that comes is a change
		h.stage = live
	}
	h.markSyncedLocked()
	inf.handlers[h] = struct{}{}
	if inf.opened {
		inf.startLocked(h)
	}
	return h, nil
}

// Follow yields changes until the consumer breaks, the context ends, which is no error,
// or an error, which is yielded last. At most 1,024 events wait for the consumer: one that
// does not take them within 5 seconds gets ErrSlow. Current is yielded when the initial
// objects, or what came after Since, have been.
//
// Since needs KeepChanges. An object that has changed several times since then is yielded
// once, as it is now, at the place of its last change, as Added if it was added since; one
// that came and went is left out. So a consumer that was cut off before that place may
// receive Modified or Deleted for an object that it does not have. Follow itself returns
// ErrExpired where Since is older than what is remembered, as after a restart, or than a
// list that has brought changes; ErrAhead where Since is ahead of the informer for 5
// seconds; ErrNotOpened; and ErrStopped.
func (inf *Informer) Follow(ctx context.Context, opts FollowOptions) (iter.Seq2[Event, error], error) {
	if opts.Since == "" {
		inf.mu.Lock()
		defer inf.mu.Unlock()
		if inf.ended {
			return nil, ErrStopped
		}
		return func(yield func(Event, error) bool) {
			f := newFeed(ctx, opts.Initial)
			h, err := inf.follow(f)
			if err != nil {
				yield(Event{}, err)
				return
			}
			f.yield(inf, h, yield)
		}, nil
	}
	if opts.Initial {
		return nil, errors.New("informer: Initial does not go with Since")
	}
	next, err := inf.waitForPlace(ctx, opts.Since)
	if err != nil {
		return nil, err
	}
	return func(yield func(Event, error) bool) {
		f := newFeed(ctx, false)
		r := &replay{inf: inf, feed: f, next: next, fresh: map[string]struct{}{}}
		h, goOn, err := r.yield(ctx, yield)
		switch {
		case err != nil:
			yield(Event{}, err)
		case goOn:
			f.yield(inf, h, yield)
		}
	}, nil
}

func newFeed(ctx context.Context, initial bool) *feed {
	return &feed{initial: initial, out: make(chan Event, followBuffer), slow: make(chan struct{}), gone: ctx.Done()}
}

// waitForPlace returns the number of the first change after a resource version.
func (inf *Informer) waitForPlace(ctx context.Context, rv string) (uint64, error) {
	check := time.NewTicker(followCheck)
	defer check.Stop()
	for end := time.Now().Add(aheadPatience); ; {
		n, err := inf.logAfter(rv)
		isEarly := errors.Is(err, ErrAhead) || errors.Is(err, ErrNotOpened)
		if !isEarly || time.Now().After(end) {
			return n, err
		}
		select {
		case <-check.C:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// follow adds the feed as an event handler.
func (inf *Informer) follow(f *feed) (*handler, error) {
	if !f.initial {
		return inf.addFromNow(f)
	}
	registration, err := inf.AddEventHandlerWithOptions(f, cache.HandlerOptions{ResyncPeriod: ptr.To(time.Duration(0))})
	if err != nil {
		return nil, ErrStopped
	}
	return registration.(*handler), nil
}

// end removes the feed's handler and waits until it has ended.
func (f *feed) end(h *handler) {
	f.tooSlow() // nobody takes what the handler is still told
	_ = h.inf.RemoveEventHandler(h)
	<-h.done
}

// yield yields the events of an added feed, and removes it.
func (f *feed) yield(inf *Informer, h *handler, yield func(Event, error) bool) {
	f.handler.Store(h)
	defer f.end(h)
	told := h.told
	before := -1 // how many events come before Current; -1 is not known yet
	if !f.initial {
		told, before = nil, 0
	}
	for {
		if before == 0 {
			before = -1
			if !yield(Event{Type: Current, More: len(f.out) > 0}, nil) {
				return
			}
		}
		select {
		case <-f.slow:
			yield(Event{}, ErrSlow)
			return
		default:
		}
		select {
		case <-f.slow:
			yield(Event{}, ErrSlow)
			return
		case <-f.gone:
			return
		case e := <-f.out:
			if !f.yieldOne(inf, e, yield) {
				return
			}
			before = max(before-1, -1)
		case <-told:
			told, before = nil, len(f.out)
		case <-h.done:
			for len(f.out) > 0 {
				if !f.yieldOne(inf, <-f.out, yield) {
					return
				}
			}
			yield(Event{}, ErrStopped)
			return
		}
	}
}

func (f *feed) yieldOne(inf *Informer, e Event, yield func(Event, error) bool) bool {
	if m, err := meta.Accessor(e.Object); err == nil {
		e.Listed = inf.isListed(m.GetResourceVersion())
	}
	e.More = len(f.out) > 0
	return yield(e, nil)
}
