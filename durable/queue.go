package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// Prioritized is implemented by inner queues of WrapQueue that know priorities: higher
// ones first, 0 is the normal one. What WrapQueue then returns implements it, too.
type Prioritized[T comparable] interface {
	// AddWithPriority adds an item after a time. Nil is the priority 0, for an item that
	// has none yet.
	AddWithPriority(item T, after time.Duration, priority *int)
	GetWithPriority() (item T, priority int, shutdown bool)
}

// NewQueue returns the queue of a consumer, with client-go's rate limited queue inside.
// See WrapQueue.
func NewQueue[T comparable](c *Consumer, limiter workqueue.TypedRateLimiter[T], codec Codec[T]) workqueue.TypedRateLimitingInterface[T] {
	func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.checkOneQueueLocked()
	}()
	inner := workqueue.NewTypedRateLimitingQueueWithConfig(noLimiter[T]{}, workqueue.TypedRateLimitingQueueConfig[T]{Name: c.name})
	return WrapQueue(c, limiter, codec, inner)
}

// WrapQueue returns the queue of a consumer. It holds what was left by the process
// before, once the consumer is active: what was waiting or in work at once, what was
// delayed after the rest of its delay, and failures keep their count. inner decides
// about the order; its own rate limiter is not used. WrapQueue panics if the consumer
// has a queue: two would take each other's keys.
//
// What is added is recorded until Consumer.Close, also after ShutDown: controllers shut
// their queues down before the last event is handled.
func WrapQueue[T comparable](
	c *Consumer, limiter workqueue.TypedRateLimiter[T], codec Codec[T], inner workqueue.TypedRateLimitingInterface[T],
) workqueue.TypedRateLimitingInterface[T] {
	q := &queue[T]{
		TypedRateLimitingInterface: inner, c: c, codec: codec,
		limiter: &limits[T]{TypedRateLimiter: limiter, before: map[T]failures{}},
		states:  map[T]*keyEntry{}, changed: map[T]struct{}{},
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkOneQueueLocked()
	c.queue = q
	q.inner, _ = inner.(Prioritized[T])
	q.restoreLocked()
	if c.phase == active || c.phase == deposed {
		q.activateLocked()
	}
	if q.inner != nil {
		return &prioritizedQueue[T]{q}
	}
	return q
}

func (c *Consumer) checkOneQueueLocked() {
	if c.queue != nil {
		panic(fmt.Sprintf("durable: consumer %q has a queue already; want one consumer for each", c.name))
	}
}

// keptRoom is for how many changed keys memory is kept for the next commit.
const keptRoom = 4096

// queue records what waits in the inner queue, is in work or has failed. Every call
// records first and then calls the inner queue.
type queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]                // the inner queue
	inner                                   Prioritized[T] // the same, or nil
	c                                       *Consumer
	codec                                   Codec[T]

	// Consumer.mu protects the fields below.
	limiter  *limits[T]
	states   map[T]*keyEntry
	changed  map[T]struct{} // since the last collectLocked
	restored map[T]keyState // before the consumer is active; nil if there is none
}

// keyState is what is stored of a key.
type keyState struct {
	// Waits means that the key is to be worked on: it waits, or it is in work.
	Waits bool `json:"waits,omitempty"`
	// Unresolved means that its work has ended without Forget. It runs after the next
	// start.
	Unresolved bool          `json:"unresolved,omitempty"`
	Due        time.Time     `json:"due,omitzero"` // of a delay
	Delay      time.Duration `json:"delay,omitempty"`
	Priority   *int          `json:"priority,omitempty"`
	Failures   int           `json:"failures,omitempty"`
	Last       time.Duration `json:"last,omitempty"` // the last delay of the rate limiter
}

// rest returns how long a delay lasts still. It is never longer than it was, also if the
// clock was set back.
func (s keyState) rest(now time.Time) time.Duration {
	return min(max(s.Due.Sub(now.Round(0)), 0), s.Delay)
}

// keyEntry is the state of a key in this process.
type keyEntry struct {
	encoded   string
	dirty     bool // it was added and Get has not returned it since
	inWork    bool // between Get and Done
	forgotten bool // since Get
	again     bool // it was added since Get, at once or after a time
	added     bool // by somebody, and not only restored
	stored    bool // the ledger may have it
	// apart means that Due is not the delay of what the inner queue has ready or has just
	// returned, although it may have one place for a key.
	apart bool
	// round is when it began to wait: see sharing.rounds.
	round uint64
	fires time.Time // Due by the monotonic clock
	keyState
}

// merge adds what another process has left to what somebody has added in this one, which
// may be in work.
func (e *keyEntry) merge(left *keyEntry) {
	e.stored, e.dirty = true, e.dirty || left.dirty
	e.Failures, e.Last = left.Failures, left.Last
	if e.Due.IsZero() || !left.Due.IsZero() && left.fires.Before(e.fires) {
		e.Due, e.Delay, e.fires = left.Due, left.Delay, left.fires
	}
	e.apart = e.dirty && !e.Due.IsZero()
	if e.Priority == nil {
		e.Priority = left.Priority
	}
}

// left returns what is stored of the key.
func (e *keyEntry) left() keyState {
	s := e.keyState
	s.Waits = e.dirty || e.inWork
	return s
}

// isDone reports whether nothing is left to remember.
func (e *keyEntry) isDone() bool {
	return !e.dirty && !e.inWork && !e.Unresolved && e.Due.IsZero() && e.Failures == 0
}

// restoreLocked takes the keys over that the process before has left. A key that cannot
// be read makes the places invalid: it may be what the next event of its object is
// missing.
func (q *queue[T]) restoreLocked() {
	for encoded, b := range q.c.keys {
		var s keyState
		item, err := q.codec.Decode([]byte(encoded))
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err != nil {
			q.c.log().Error(err, "A key of the queue cannot be read")
			q.c.loseLocked("a key of the queue cannot be read")
			q.c.changed[prefixKey+encoded] = nil
			continue
		}
		if at := time.Now().Round(0); s.Due.After(at.Add(s.Delay)) {
			// The clock was set back: the delay runs once, and not with each start.
			s.Due = at.Add(s.Delay)
		}
		e := &keyEntry{encoded: encoded, dirty: s.Waits || s.Unresolved, stored: true, keyState: s}
		e.Unresolved, e.apart = false, e.dirty && !s.Due.IsZero()
		if !s.Due.IsZero() {
			e.fires = time.Now().Add(s.rest(time.Now()))
		}
		if before := q.states[item]; before != nil && before.added {
			before.merge(e)
			e = before
		}
		q.states[item] = e
		q.changed[item] = struct{}{}
		q.limiter.restore(item, failures{s.Failures, s.Last})
		if q.restored == nil {
			q.restored = map[T]keyState{}
		}
		q.restored[item] = s
	}
	q.c.keys = nil
}

// hasRestoredLocked reports whether restoreLocked has taken a key over.
func (q *queue[T]) hasRestoredLocked(encoded string) bool {
	item, err := q.codec.Decode([]byte(encoded))
	_, has := q.restored[item]
	return has && err == nil
}

// replaceLocked replaces what was restored by the keys of the consumer.
func (q *queue[T]) replaceLocked() {
	for item := range q.restored {
		q.limiter.Forget(item)
		switch e := q.states[item]; {
		case e == nil:
		case e.added:
			e.Failures, e.Last = 0, 0
		default:
			e.keyState, e.dirty, e.apart = keyState{}, false, false
		}
		q.changed[item] = struct{}{}
	}
	q.restored = nil
	q.restoreLocked()
}

func (q *queue[T]) activateLocked() {
	at := time.Now()
	for item, s := range q.restored {
		if s.Waits || s.Unresolved {
			q.add(item, 0, s.Priority)
		}
		if !s.Due.IsZero() {
			after := s.rest(at)
			q.delayLocked(item, s, at.Add(after))
			q.add(item, after, s.Priority)
		}
	}
	q.restored = nil
}

// delayLocked records a delay that the inner queue gets. Its key may have been worked on
// since it was restored, and with it a delay that is over, or of a queue with priorities.
func (q *queue[T]) delayLocked(item T, s keyState, fires time.Time) {
	e := q.states[item]
	if e == nil || e.Due.IsZero() {
		if e = q.noteLocked(item); e == nil {
			return
		}
		e.Due, e.Delay, e.apart = s.Due, s.Delay, e.dirty && !e.inWork
		if e.Priority == nil {
			e.Priority = s.Priority
		}
	}
	if e.Due.Equal(s.Due) {
		e.fires = fires
	}
}

// add adds to the inner queue.
func (q *queue[T]) add(item T, after time.Duration, priority *int) {
	switch {
	case q.inner != nil:
		q.inner.AddWithPriority(item, after, priority)
	case after > 0:
		q.TypedRateLimitingInterface.AddAfter(item, after)
	default:
		q.TypedRateLimitingInterface.Add(item)
	}
}

// noteLocked returns the entry of a key, which is written with the next commit. It is nil
// after Close.
func (q *queue[T]) noteLocked(item T) *keyEntry {
	if q.c.phase == over {
		return nil
	}
	e := q.states[item]
	if e == nil {
		encoded, err := q.codec.Encode(item)
		if err == nil && len(encoded) == 0 {
			err = errors.New("the codec has returned no bytes")
		}
		if err != nil {
			if q.c.unencoded.isDue(time.Now()) {
				q.c.log().Error(err, "A key of the queue cannot be written, so places do not move", "key", fmt.Sprint(item))
			}
			q.c.freezeLocked()
			return nil
		}
		e = &keyEntry{encoded: string(encoded), round: q.c.shared.lastRound()}
		q.states[item] = e
	}
	q.changed[item] = struct{}{}
	return e
}

// record records that a key was added.
func (q *queue[T]) record(item T, after time.Duration, priority *int) {
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	q.recordLocked(item, after, priority)
}

func (q *queue[T]) recordLocked(item T, after time.Duration, priority *int) {
	e := q.noteLocked(item)
	if e == nil {
		return
	}
	e.added, e.again, e.Unresolved = true, true, false
	if p := ptr.Deref(priority, 0); e.Priority == nil || p > *e.Priority || !e.dirty && e.Due.IsZero() {
		e.Priority = &p
	}
	if after <= 0 {
		e.dirty = true
		return
	}
	now := time.Now()
	if !e.Due.IsZero() && !e.fires.After(now) { // it waits in the inner queue
		e.dirty, e.Due, e.Delay = true, time.Time{}, 0
	}
	// As the inner queue does, whatever the clock was set to meanwhile.
	if fires := now.Add(after); e.Due.IsZero() || fires.Before(e.fires) {
		e.Due, e.Delay, e.fires = now.Round(0).Add(after), after, fires
	}
	// The inner Get may have returned it already. It returns none that is in work.
	e.apart = e.apart || e.dirty && !e.inWork
}

// Add implements workqueue.TypedInterface.
func (q *queue[T]) Add(item T) { q.addOne(item, 0, nil) }

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue[T]) AddAfter(item T, after time.Duration) { q.addOne(item, after, nil) }

func (q *queue[T]) addOne(item T, after time.Duration, priority *int) {
	q.record(item, after, priority)
	q.add(item, after, priority)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (q *queue[T]) AddRateLimited(item T) { q.addRateLimited(item, nil) }

func (q *queue[T]) addRateLimited(item T, priority *int) {
	q.add(item, q.recordFailure(item, priority), priority)
}

// recordFailure records that a key is added after the delay of the rate limiter, and
// returns the delay. The limiter and the codec are the program's: if one of them panics,
// the lock is released.
func (q *queue[T]) recordFailure(item T, priority *int) (after time.Duration) {
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	after = q.limiter.When(item)
	if e := q.noteLocked(item); e != nil {
		e.Failures, e.Last = q.limiter.NumRequeues(item), after
	}
	q.recordLocked(item, after, priority)
	return after
}

// NumRequeues implements workqueue.TypedRateLimitingInterface.
func (q *queue[T]) NumRequeues(item T) int {
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	return q.limiter.NumRequeues(item)
}

// Forget implements workqueue.TypedRateLimitingInterface.
func (q *queue[T]) Forget(item T) {
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	q.limiter.Forget(item)
	e := q.states[item]
	if e == nil || q.c.phase == over {
		return
	}
	q.changed[item] = struct{}{}
	e.Failures, e.Last, e.forgotten = 0, 0, true
	if !e.inWork {
		e.Unresolved = false // Done came first
	}
}

// Get implements workqueue.TypedInterface.
func (q *queue[T]) Get() (item T, shutdown bool) {
	item, shutdown = q.TypedRateLimitingInterface.Get()
	q.got(item, shutdown)
	return item, shutdown
}

// got records that a worker has a key.
func (q *queue[T]) got(item T, shutdown bool) {
	if shutdown {
		return
	}
	q.recordWork(item)
	if q.c.opts.CommitFirst {
		q.c.commitFirst()
	}
}

// recordWork records that a worker has taken a key.
func (q *queue[T]) recordWork(item T) {
	q.c.mu.Lock()
	defer q.c.mu.Unlock()
	e := q.noteLocked(item)
	if e == nil {
		return
	}
	e.dirty, e.inWork, e.forgotten, e.again, e.Unresolved = false, true, false, false, false
	rest := time.Until(e.fires)
	switch {
	case e.Due.IsZero():
	case rest <= 0, q.inner != nil && !e.apart:
		// A queue with priorities has one place for a key: Get takes its delay, too.
		e.Due, e.Delay = time.Time{}, 0
	case q.inner != nil || e.apart: // client-go's may have kept an earlier one
		q.add(item, rest, e.Priority)
	}
	e.apart = false
}

// Done implements workqueue.TypedInterface.
func (q *queue[T]) Done(item T) {
	q.c.mu.Lock()
	if e := q.states[item]; e != nil && q.c.phase != over {
		q.changed[item] = struct{}{}
		e.inWork = false
		e.Unresolved = !e.forgotten && !e.dirty && !e.again
	}
	q.c.mu.Unlock()
	q.TypedRateLimitingInterface.Done(item)
}

func (q *queue[T]) noteAllLocked() {
	for item := range q.states {
		q.changed[item] = struct{}{}
	}
}

func (q *queue[T]) collectLocked(changes map[string][]byte) {
	for item := range q.changed {
		e := q.states[item]
		if e == nil {
			continue
		}
		if e.isDone() {
			delete(q.states, item)
			if e.stored {
				changes[prefixKey+e.encoded] = nil
			}
			continue
		}
		b, err := json.Marshal(e.left())
		if err != nil {
			continue // a struct of numbers and texts has no error
		}
		changes[prefixKey+e.encoded], e.stored = b, true
	}
	if len(q.changed) > keptRoom {
		q.changed = map[T]struct{}{}
	}
	clear(q.changed)
}

func (q *queue[T]) shareLocked() []sharedKey {
	keys := make([]sharedKey, 0, len(q.states))
	for _, e := range q.states {
		if !e.isDone() {
			keys = append(keys, sharedKey{Key: quote(e.encoded), keyState: e.left(), round: e.round})
		}
	}
	return keys
}

func (q *queue[T]) raiseLocked() {
	normal := 0
	for item, e := range q.states {
		if e.dirty && e.Priority != nil && *e.Priority < 0 {
			e.Priority = &normal
			q.changed[item] = struct{}{}
			q.add(item, 0, &normal)
		}
	}
}

func (q *queue[T]) countLocked(s *Status) {
	at := time.Now()
	for _, e := range q.states {
		left := e.left()
		if e.inWork {
			s.InWork++
			left.Waits, left.Due = false, time.Time{}
		}
		s.count(left, at)
	}
}
