package fifo

import (
	"context"

	"k8s.io/client-go/tools/cache"
)

// Change contains the deltas of one object.
type Change struct {
	Key    string
	Deltas cache.Deltas // oldest first, at least one
}

// Keyed is one delta of the stream, with its key.
type Keyed struct {
	Key string
	cache.Delta
}

// Batch is the next piece of the stream.
type Batch struct {
	// Stream contains the deltas in the order of the watch, across objects.
	Stream []Keyed
	// RV is the resource version that the state is complete up to once the whole batch
	// has been applied, and not before. "" means that it is unknown: the last known RV
	// stays valid. A batch may consist of an RV alone.
	RV string
}

// Changes groups the stream by object: one element per object, in the order of their
// first deltas.
func (b Batch) Changes() []Change {
	var changes []Change
	index := make(map[string]int, len(b.Stream))
	for _, d := range b.Stream {
		at, ok := index[d.Key]
		if !ok {
			at = len(changes)
			index[d.Key] = at
			changes = append(changes, Change{Key: d.Key})
		}
		changes[at].Deltas = append(changes[at].Deltas, d.Delta)
	}
	return changes
}

// PopBatch blocks until entries wait, takes at most MaxBatch deltas, and calls process
// with them. process owns the batch. PopBatch returns the error of process; the batch is
// removed from the queue in any case.
//
// PopBatch returns the context's error, or ErrClosed as soon as the queue is closed, even
// if entries still wait. A consumer that has stored the RV of the last batch receives the
// dropped entries again when it resumes the watch from that RV.
func (q *Queue) PopBatch(ctx context.Context, process func(Batch) error) error {
	batch, err := q.takeBatch(ctx)
	if err != nil {
		return err
	}
	defer q.finish()
	return process(batch)
}

func (q *Queue) takeBatch(ctx context.Context) (Batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ready := func() bool { return q.closed || !q.busy && q.waitingLocked() > 0 }
	if err := q.waitLocked(ctx, ready); err != nil {
		return Batch{}, err
	}
	if q.closed {
		return Batch{}, ErrClosed
	}
	return q.takeLocked(min(q.waitingLocked(), q.maxBatch)), nil
}

// takeLocked takes the first n waiting entries. They stay in the stream until finish,
// because the known objects do not include them before.
func (q *Queue) takeLocked(n int) Batch {
	var batch Batch
	last := make(map[string]int, n) // position in batch.Stream of each key's last delta
	for i := range uint64(n) {
		e := q.stream.at(q.stream.first + i)
		if e.rv != "" {
			batch.RV = e.rv
		}
		if e.isBookmark() {
			continue
		}
		if at, ok := last[e.key]; ok && fold(&batch.Stream[at].Delta, e.delta) {
			continue
		}
		last[e.key] = len(batch.Stream)
		batch.Stream = append(batch.Stream, Keyed{e.key, e.delta})
	}
	q.taken, q.busy = n, true
	q.changed.Broadcast() // there is room
	return batch
}

// finish removes the taken entries after their process function has returned or panicked.
func (q *Queue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range uint64(q.taken) {
		position := q.stream.first + i
		if key := q.stream.at(position).key; q.newest[key] == position {
			delete(q.newest, key)
		}
	}
	q.stream.drop(q.taken)
	q.taken, q.busy = 0, false
	q.checkSyncedLocked()
	q.changed.Broadcast()
}

// fold merges two successive deletions of an object into the first one. The result is the
// first deletion, or the second if the first is a tombstone. fold reports whether both
// were deletions.
func fold(last *cache.Delta, d cache.Delta) bool {
	if last.Type != cache.Deleted || d.Type != cache.Deleted {
		return false
	}
	if _, ok := last.Object.(cache.DeletedFinalStateUnknown); ok {
		*last = d
	}
	return true
}
