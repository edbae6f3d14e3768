// Package fifo is the queue of changes between a reflector and an informer: bounded, and in the order of the watch.
//
// client-go's DeltaFIFO groups what waits by object, so the stream A@5 B@7 A@9 comes out as A(5,9), B(7). Who stores
// resource version 9 after A loses B in a crash. This queue hands out prefixes of the stream and groups only inside a
// prefix.
//
// # Usage
//
// A producer that knows resource versions calls [Queue.Push] and [Queue.Bookmark], and its consumer [Queue.PopBatch].
// A [Queue] is a [cache.Queue], too, with DeltaFIFO's contract (EmitDeltaTypeReplaced set) but for the order.
//
// # Invariants
//
//  1. What has been handed out at any time is a prefix of the stream of added deltas.
//  2. Within it, each object's deltas come in the order in which they were added. Only a deletion directly after a
//     deletion of the same object in the same hand-out is folded into it.
//  3. A [Batch]'s RV was given for a delta of the prefix that ends with the batch. So with the batch applied, the state is
//     complete up to that RV, and storing both together loses nothing in a crash. Deltas that say nothing of a resource
//     version may follow: the RV may lag, it never leads.
//
// # Concurrency
//
// A Queue is safe for concurrent use. Many producers may add; the deltas of each keep their order. One consumer at a time
// is served, a second one waits. The function that a consumer gives is called without the queue's lock, so it may add to
// the queue, unless the queue is full, but not take from it or wait for it to be idle. The queue starts no goroutine of
// its own.
package fifo

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// ErrClosed is returned by calls on a closed queue. It is [cache.ErrFIFOClosed], which ends a client-go controller's
// loop.
var ErrClosed = cache.ErrFIFOClosed

// ErrKnownObjects is returned by Replace and Resync of a queue that has no Options.KnownObjects and was fed by Push:
// nothing remembers what was handed out, so deletions would be missed.
var ErrKnownObjects = errors.New("fifo: KnownObjects is needed to replace or resync pushed objects")

// KeyError says that an object has no key. Its text names the object's type and never its content.
type KeyError struct {
	Type string // Go type of the object
	Err  error  // what the KeyFunc returned; not part of the text, for it may show the object
}

// Error returns the text.
func (e *KeyError) Error() string { return "fifo: no key for a " + e.Type }

// Unwrap returns the KeyFunc's error.
func (e *KeyError) Unwrap() error { return e.Err }

// Options configures a Queue. The zero value is ready to use.
type Options struct {
	// KeyFunc names objects. Default: cache.DeletionHandlingMetaNamespaceKeyFunc. Tombstones keep their own key.
	KeyFunc cache.KeyFunc
	// KnownObjects is what the consumer holds, used by Delete, Replace and Resync. It is called with the queue's lock
	// held and must not call the queue. Nil: the queue remembers the last object of each key that Add, Update and
	// Replace gave it, which keeps all of them in memory. Push remembers nothing.
	KnownObjects cache.KeyListerGetter
	// Capacity is how many deltas may wait. Default: 4096. A full queue makes producers wait until a consumer has taken
	// some, Close, or the end of their context. Replace waits until the queue is not full and is then added whole.
	Capacity int
	// MaxBatch is how many deltas one PopBatch hands out at most. Default: 1000.
	MaxBatch int
}

// Queue is the ordered queue. Make one with [New].
type Queue struct {
	keyFunc  cache.KeyFunc
	known    cache.KeyListerGetter // Options.KnownObjects or own
	capacity int
	maxBatch int
	synced   chan struct{} // closed when the first Replace was handed out and processed

	mu         sync.Mutex        // protects all below
	changed    sync.Cond         // something below changed; broadcast only
	stream     stream            // what is being processed, then what waits
	taken      int               // deltas at the head of stream that are being processed
	newest     map[string]uint64 // position of each key's last delta in stream
	own        lastKnown         // nil with Options.KnownObjects
	pushed     bool              // Push was used: own is not complete
	populated  bool              // something was added: no later Replace is the first
	initialEnd uint64            // position after the first Replace
	busy       bool              // a consumer's function is running
	closed     bool
}

// New returns an empty queue.
func New(opts Options) *Queue {
	q := &Queue{
		keyFunc:  opts.KeyFunc,
		known:    opts.KnownObjects,
		capacity: opts.Capacity,
		maxBatch: opts.MaxBatch,
		synced:   make(chan struct{}),
		newest:   make(map[string]uint64),
	}
	if q.keyFunc == nil {
		q.keyFunc = cache.DeletionHandlingMetaNamespaceKeyFunc
	}
	if q.known == nil {
		q.own = make(lastKnown)
		q.known = q.own
	}
	if q.capacity <= 0 {
		q.capacity = 4096
	}
	if q.maxBatch <= 0 {
		q.maxBatch = 1000
	}
	q.changed.L = &q.mu
	return q
}

// Push adds one delta of type Added, Updated, Deleted, Replaced or Sync. rv is the resource version that the stream is
// complete up to once this delta has been applied; "" says nothing. Unlike Delete, Push adds deletions of unknown
// objects. For HasSynced a Push counts like an Add, whatever its type.
//
// Push blocks while the queue is full. It returns ErrClosed, the context's error, a *KeyError, or an error naming an
// unknown type; then nothing was added.
func (q *Queue) Push(ctx context.Context, t cache.DeltaType, obj any, rv string) error {
	switch t {
	case cache.Added, cache.Updated, cache.Deleted, cache.Replaced, cache.Sync:
	default:
		return fmt.Errorf("fifo: push of delta type %q", t)
	}
	key, err := q.keyOf(obj)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.waitRoomLocked(ctx); err != nil {
		return err
	}
	q.pushed = true
	q.addLocked(entry{key: key, delta: cache.Delta{Type: t, Object: obj}, rv: rv})
	q.populateLocked(0)
	return nil
}

// Bookmark says that the stream is complete up to rv once everything that was added before has been applied. It belongs
// to the last waiting delta or bookmark, whose resource version it replaces, and takes room only if nothing waits. An
// empty rv does nothing.
//
// Bookmark never blocks. It returns ErrClosed or the context's error.
func (q *Queue) Bookmark(ctx context.Context, rv string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	q.bookmarkLocked(rv)
	return nil
}

// Idle blocks until everything that was added before the call has been handed out and the functions it was handed to
// have returned. It returns the context's error, or ErrClosed if the queue was closed before.
func (q *Queue) Idle(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	end := q.stream.end()
	idle := func() bool { return q.stream.first >= end }
	if err := q.waitLocked(ctx, func() bool { return idle() || q.closed }); err != nil {
		return err
	}
	if !idle() {
		return ErrClosed
	}
	return nil
}

// Len returns the number of waiting deltas, a bookmark that waits alone included; what is being processed no longer
// waits. It never blocks.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waitingLocked()
}

// Close makes all calls that block, and all later ones that would add, return ErrClosed. It does not wait for the
// function of a consumer and may be called again.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.changed.Broadcast()
}

func (q *Queue) keyOf(obj any) (string, error) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return d.Key, nil
	}
	key, err := q.keyFunc(obj)
	if err != nil {
		return "", &KeyError{Type: fmt.Sprintf("%T", obj), Err: err}
	}
	return key, nil
}

// addLocked adds one delta, regardless of room.
func (q *Queue) addLocked(e entry) {
	q.newest[e.key] = q.stream.end()
	q.stream.push(e)
	q.changed.Broadcast()
}

func (q *Queue) bookmarkLocked(rv string) {
	switch {
	case rv == "":
	case q.waitingLocked() > 0:
		q.stream.at(q.stream.end() - 1).rv = rv
	default:
		q.stream.push(entry{rv: rv})
		q.changed.Broadcast()
	}
}

// populateLocked notes that something was added. The first call decides where the initial list ends.
func (q *Queue) populateLocked(initialEnd uint64) {
	if !q.populated {
		q.populated = true
		q.initialEnd = initialEnd
		q.checkSyncedLocked()
	}
}

func (q *Queue) checkSyncedLocked() {
	if q.populated && q.stream.first >= q.initialEnd && !q.hasSynced() {
		close(q.synced)
	}
}

func (q *Queue) hasSynced() bool {
	select {
	case <-q.synced:
		return true
	default:
		return false
	}
}

func (q *Queue) waitingLocked() int { return q.stream.len() - q.taken }

// waitRoomLocked blocks, without the lock, until the queue is not full.
func (q *Queue) waitRoomLocked(ctx context.Context) error {
	err := q.waitLocked(ctx, func() bool { return q.closed || q.waitingLocked() < q.capacity })
	if q.closed {
		return ErrClosed
	}
	return err
}

// waitLocked blocks, without the lock, until ready or the end of ctx.
func (q *Queue) waitLocked(ctx context.Context, ready func() bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ready() {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock() // else the broadcast may come between a waiter's check and its Wait
		defer q.mu.Unlock()
		q.changed.Broadcast()
	})
	defer stop()
	for !ready() {
		if err := ctx.Err(); err != nil {
			return err
		}
		q.changed.Wait()
	}
	return nil
}
