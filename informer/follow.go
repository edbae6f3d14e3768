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

	"github.com/informctl/informctl/informer/internal/delivery"
	"github.com/informctl/informctl/informer/internal/heal"
)

// EventType is the type of an Event.
type EventType string

// The types of events.
const (
	// Initial is an object that is stored.
	Initial EventType = "INITIAL"
	// Added is a new object, and Modified one that has changed.
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	// Deleted is a deleted object, in the last state that handlers have received, with
	// the resource version of the deletion if that is known.
	Deleted EventType = "DELETED"
	// Current says that all earlier state has been yielded. It is yielded once, without
	// an Object.
	Current EventType = "CURRENT"
)

// Event is one change that Follow yields.
type Event struct {
	Type   EventType
	Object runtime.Object // shared; must not be changed
	// Old is the state before a Modified, shared too. It is nil if it is not known.
	Old runtime.Object
	// Listed reports that the change may come from a list, or that something before it
	// could not be stored. A list's changes are ordered by key. So a consumer that has
	// this event may lack others up to its resource version.
	Listed bool
	// Inside reports that the consumer may have received states of the object that are
	// not known any more, because what was stored is lost or because the consumer
	// continues inside a commit that has this change (store.Event). The state before then
	// counts as one that matched; see Selected.
	Inside bool
	// More reports that the next event is available already, so a writer may delay its
	// flush.
	More bool
}

// Selected returns the event as a consumer of a selection receives it: an object that
// begins to match is Added, and one that no longer matches is Deleted, in its last state
// that did, with the resource version of the change. That is what an API server sends to
// a watch with a selector. ok is false if the consumer receives nothing. Where the state
// before is not known, it counts as one that matched, so a consumer may receive Modified
// or Deleted for an object that it does not have. Current concerns no object: each
// consumer receives it.
func (e Event) Selected(matches func(runtime.Object) (bool, error)) (out Event, ok bool, err error) {
	if e.Type == Current {
		return e, true, nil
	}
	is, was := false, e.Inside
	if e.Type != Deleted {
		if is, err = matches(e.Object); err != nil {
			return e, false, err
		}
	}
	switch {
	case e.Inside:
	case e.Type == Deleted:
		was, err = matches(e.Object)
	case e.Type == Modified && e.Old != nil:
		was, err = matches(e.Old)
	case e.Type == Modified:
		was = true
	}
	switch {
	case err != nil || !was && !is:
		return e, false, err
	case !is && e.Type != Deleted:
		return e.left()
	case !was && e.Type == Modified:
		e.Type, e.Old = Added, nil
	}
	return e, true, nil
}

// left returns the event of an object that no longer matches.
func (e Event) left() (Event, bool, error) {
	e.Type = Deleted
	if e.Old == nil {
		e.Inside = true // its last state that matched is not known
		return e, true, nil
	}
	var err error
	e.Object, err = atVersionOf(e.Old, e.Object)
	e.Old = nil
	return e, err == nil, err
}

// atVersionOf returns a copy of an object with the resource version of another one.
func atVersionOf(obj, other runtime.Object) (runtime.Object, error) {
	rv, err := meta.NewAccessor().ResourceVersion(other)
	if err == nil {
		obj = obj.DeepCopyObject()
		err = meta.NewAccessor().SetResourceVersion(obj, rv)
	}
	return obj, err
}

// FollowOptions specify where Follow begins. The zero value means from now on.
type FollowOptions struct {
	// Initial requests the stored objects first.
	Initial bool
}

// Follow's errors.
var (
	// ErrNotOpened indicates an informer that has not opened its scope yet.
	ErrNotOpened = errors.New("the informer has not opened what it stored yet")
	// ErrStopped indicates an informer that has ended.
	ErrStopped = heal.ErrStopped
	// ErrSlow indicates a consumer that takes events more slowly than they come.
	ErrSlow = fmt.Errorf("the client takes changes more slowly than they come: %d wait", followBuffer)
)

const (
	// followBuffer is the number of events that are buffered for a consumer.
	followBuffer = 1024
	// FollowPatience is the longest time that a consumer may leave an event in the buffer
	// without taking any.
	FollowPatience = 5 * time.Second
	// followCheck is how often Follow checks how many changes are queued behind the
	// initial objects.
	followCheck = 250 * time.Millisecond
)

// feed is the event handler of one consumer. It does not let its handler queue grow: if a
// change does not fit into the buffer, the feed ends. Initial objects may come faster
// than any consumer takes them, so they wait for the consumer, as long as few changes are
// queued behind them.
type feed struct {
	initial bool // the consumer has requested the initial objects
	out     chan Event
	handler atomic.Pointer[delivery.Registration] // nil until the feed is added

	slowOnce sync.Once
	slow     chan struct{} // closed when the consumer is too slow
	gone     <-chan struct{}
}

// OnAdd implements cache.ResourceEventHandler.
func (f *feed) OnAdd(obj any, isInInitialList bool) {
	switch {
	case !isInInitialList:
		f.offer(Event{Type: Added}, obj)
	case f.initial:
		f.wait(Initial, obj)
	default:
		f.wait(Added, obj)
	}
}

// Updated implements delivery.Follower.
func (f *feed) Updated(before, now runtime.Object) {
	f.offer(Event{Type: Modified, Old: before}, now)
}

// Deleted implements delivery.Follower.
func (f *feed) Deleted(before, last runtime.Object) {
	e := Event{Type: Deleted, Inside: before == nil}
	if before != nil && before != last {
		if deleted, err := atVersionOf(before, last); err == nil {
			last = deleted
		}
	}
	f.offer(e, last)
}

// OnUpdate and OnDelete implement cache.ResourceEventHandler. A Follower receives
// Updated and Deleted instead.
func (*feed) OnUpdate(_, _ any) {}
func (*feed) OnDelete(any)      {}

func (f *feed) offer(e Event, v any) {
	var ok bool
	if e.Object, ok = v.(runtime.Object); !ok {
		return
	}
	select {
	case f.out <- e:
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

// isBehind reports whether the handler queue behind the initial objects holds more
// changes than the buffer plus one chunk of the cursor.
func (f *feed) isBehind() bool {
	h := f.handler.Load()
	return h != nil && h.Waiting() > followBuffer+delivery.CursorChunk
}

func (f *feed) tooSlow() { f.slowOnce.Do(func() { close(f.slow) }) }

// Follow yields changes as handlers receive them, until the consumer breaks, the context
// ends, which is no error, or an error occurs, which is yielded last. At most 1,024
// events are buffered: a consumer that does not take them within 5 seconds gets ErrSlow.
// Current is yielded after the initial objects. Follow itself returns ErrStopped.
//
// An event may be of a change that is not in the file yet. For what came after a resource
// version, and for places to come back to, see store.Reader.Follow.
func (inf *Informer) Follow(ctx context.Context, opts FollowOptions) (iter.Seq2[Event, error], error) {
	if inf.state.Life().Phase() == heal.Ended {
		return nil, ErrStopped
	}
	return func(yield func(Event, error) bool) {
		f := newFeed(ctx, opts.Initial)
		h := inf.hub.Add(f, delivery.Options{FromNow: !f.initial, Client: true})
		if h == nil {
			yield(Event{}, ErrStopped)
			return
		}
		f.yield(inf, h, yield)
	}, nil
}

func newFeed(ctx context.Context, initial bool) *feed {
	return &feed{initial: initial, out: make(chan Event, followBuffer), slow: make(chan struct{}), gone: ctx.Done()}
}

// end removes the feed's handler and waits for its goroutine.
func (f *feed) end(inf *Informer, h *delivery.Registration) {
	f.tooSlow() // the consumer takes no more events
	inf.hub.Remove(h)
	<-h.ShutdownChan()
}

// yield yields the events of an added feed, and removes the feed.
func (f *feed) yield(inf *Informer, h *delivery.Registration, yield func(Event, error) bool) {
	f.handler.Store(h)
	defer f.end(inf, h)
	told := h.Done()
	before := -1 // number of events before Current; -1 if unknown
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
		case <-h.ShutdownChan():
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
		e.Listed = inf.state.IsListed(m.GetResourceVersion())
	}
	e.More = len(f.out) > 0
	return yield(e, nil)
}
