// Package fifo is the bounded queue of changes between a reflector and an informer. It
// keeps the order of the watch.
//
// client-go's DeltaFIFO groups the waiting deltas by object: the stream A@5 B@7 A@9 comes
// out as A(5,9), B(7). A consumer that stores resource version 9 after A loses B in a
// crash. This queue hands out prefixes of the stream and groups by object only within a
// prefix.
//
// # Usage
//
// A producer that knows resource versions calls [Queue.Push] and [Queue.Bookmark]; its
// consumer calls [Queue.PopBatch]. A [Queue] also implements [cache.Queue] with the
// contract of DeltaFIFO (with EmitDeltaTypeReplaced set), except for the order.
//
// # Invariants
//
//  1. At any time, the deltas that have been handed out are a prefix of the stream of
//     added deltas.
//  2. Within it, the deltas of each object are in the order in which they were added. A
//     deletion is folded only into a deletion of the same object that directly precedes
//     it in the same batch.
//  3. The RV of a [Batch] was given with a delta of the prefix that ends with the batch.
//     Once the batch is applied, the state is complete up to that RV, so storing both
//     together loses nothing in a crash. Deltas without a resource version may follow
//     that delta: the RV may lag, it never leads.
//
// # Concurrency
//
// A Queue is safe for concurrent use. Many producers may add deltas; the order of the
// deltas of each producer is kept. The queue serves one consumer at a time; a second one
// waits. The consumer's function is called without the queue's lock: it may add to the
// queue if the queue is not full, but it must not take from the queue or wait until the
// queue is idle. The queue starts no goroutine of its own.
package fifo

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// ErrClosed is returned by calls on a closed queue. It is [cache.ErrFIFOClosed], which
// ends the loop of a client-go controller.
var ErrClosed = cache.ErrFIFOClosed

// ErrKnownObjects is returned by Replace and Resync if Options.KnownObjects is nil and
// Push was used: the queue does not remember pushed objects, so it would miss deletions.
var ErrKnownObjects = errors.New("fifo: KnownObjects is needed to replace or resync pushed objects")

// KeyError reports that an object has no key. Its text contains the object's type and
// never its content.
type KeyError struct {
	Type string // Go type of the object
	Err  error  // error of the KeyFunc; not part of the text: it may show the object
}

// Error returns the message.
func (e *KeyError) Error() string { return "fifo: no key for a " + e.Type }

// Unwrap returns the KeyFunc's error.
func (e *KeyError) Unwrap() error { return e.Err }

// Options configures a Queue. The zero value is ready to use.
type Options struct {
	// KeyFunc returns the key of an object. Default:
	// cache.DeletionHandlingMetaNamespaceKeyFunc. Tombstones keep their own key.
	KeyFunc cache.KeyFunc
	// KnownObjects are the objects that the consumer holds; Delete, Replace and Resync
	// use them. They are read with the queue's lock held and must not call the queue. If
	// nil, the queue keeps the last object of each key given by Add, Update and Replace
	// in memory. Push does not add to them.
	KnownObjects cache.KeyListerGetter
	// Capacity is the maximum number of waiting deltas. Default: 4096. Producers block
	// while the queue is full, until a consumer takes deltas, Close is called, or their
	// context ends. Replace waits until the queue is not full and then adds all its
	// deltas.
	Capacity int
	// MaxBatch is the maximum number of deltas in one PopBatch. Default: 1000.
	MaxBatch int
}

// Queue is the ordered queue. Make one with [New].
type Queue struct {
	keyFunc  cache.KeyFunc
	known    cache.KeyListerGetter // Options.KnownObjects or own
	capacity int
	maxBatch int
	synced   chan struct{} // closed when the first Replace has been taken and processed

	mu         sync.Mutex        // protects all fields below
	changed    sync.Cond         // broadcast when a field below changes
	stream     stream            // entries being processed, then waiting entries
	taken      int               // entries at the head of stream that are being processed
	newest     map[string]uint64 // position of each key's last delta in stream
	own        lastKnown         // nil if Options.KnownObjects is set
	pushed     bool              // Push was used, so own is not complete
	populated  bool              // entries were added: a later Replace is not the first
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

// Push adds one delta of type Added, Updated, Deleted, Replaced or Sync. rv is the
// resource version that the stream is complete up to once this delta has been applied; ""
// means that it is unknown. Unlike Delete, Push adds deletions of unknown objects. For
// HasSynced, a Push of any type counts like an Add.
//
// Push blocks while the queue is full. It returns ErrClosed, the context's error, a
// *KeyError, or an error that names an unknown delta type; then nothing was added.
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

// Bookmark records that the stream is complete up to rv once everything that was added
// before has been applied. It replaces the resource version of the last waiting delta or
// bookmark; it takes up capacity only if nothing waits. An empty rv does nothing.
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

// Idle blocks until all entries that were added before the call have been taken and
// processed. It returns the context's error, or ErrClosed if the queue was closed before.
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

// Len returns the number of waiting entries: deltas, and a bookmark that waits alone.
// Entries that are being processed do not wait. Len never blocks.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waitingLocked()
}

// Close makes all blocked calls and all later calls that would add return ErrClosed. It
// does not wait for a consumer's function. It may be called more than once.
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

// addLocked adds one delta, even if the queue is full.
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

// populateLocked records that entries were added. The first call sets the end of the
// initial list.
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

// waitRoomLocked releases the lock and blocks until the queue is not full or is closed.
func (q *Queue) waitRoomLocked(ctx context.Context) error {
	err := q.waitLocked(ctx, func() bool { return q.closed || q.waitingLocked() < q.capacity })
	if q.closed {
		return ErrClosed
	}
	return err
}

// waitLocked releases the lock and blocks until ready returns true or ctx ends.
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
