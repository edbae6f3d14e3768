package fifo

import (
	"context"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

var _ cache.Queue = (*Queue)(nil)

// Add adds an Added delta. It blocks while the queue is full and returns ErrClosed or a
// *KeyError. Add, Update and Delete do not set a resource version.
func (q *Queue) Add(obj interface{}) error { return q.add(cache.Added, obj) }

// Update adds an Updated delta. It blocks while the queue is full and returns ErrClosed
// or a *KeyError.
func (q *Queue) Update(obj interface{}) error { return q.add(cache.Updated, obj) }

// Delete adds a Deleted delta, unless neither the queue nor the known objects contain the
// object, because then a Replace has already deleted it. It blocks while the queue is
// full and returns ErrClosed or a *KeyError.
func (q *Queue) Delete(obj interface{}) error { return q.add(cache.Deleted, obj) }

func (q *Queue) add(t cache.DeltaType, obj any) error {
	key, err := q.keyOf(obj)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.waitRoomLocked(context.Background()); err != nil {
		return err
	}
	defer q.populateLocked(0)
	if t == cache.Deleted && !q.hasLocked(key) {
		return nil
	}
	q.addKnownLocked(key, t, obj, "")
	return nil
}

// hasLocked reports whether an object with this key may exist.
func (q *Queue) hasLocked(key string) bool {
	if _, ok := q.newest[key]; ok || q.own != nil && q.pushed {
		return true
	}
	_, ok, err := q.known.GetByKey(key)
	return ok || err != nil
}

// addKnownLocked adds one delta and updates own.
func (q *Queue) addKnownLocked(key string, t cache.DeltaType, obj any, rv string) {
	q.addLocked(entry{key: key, delta: cache.Delta{Type: t, Object: obj}, rv: rv})
	switch {
	case q.own == nil:
	case t == cache.Deleted:
		delete(q.own, key)
	default:
		q.own[key] = obj
	}
}

// Replace adds a Replaced delta for each object in list. Then it adds, in key order, a
// Deleted delta with a [cache.DeletedFinalStateUnknown] for each key that the queue or
// the known objects contain and list does not. Its Obj is the last known object, or nil
// if the known objects return an error or no object. The stream is complete up to
// resourceVersion with the last of these deltas; the earlier ones set no resource
// version.
//
// Replace blocks while the queue is full, then adds everything at once, regardless of the
// capacity. It returns ErrClosed, ErrKnownObjects or a *KeyError; then nothing was added.
func (q *Queue) Replace(list []interface{}, resourceVersion string) error {
	keys := make([]string, len(list))
	listed := make(map[string]bool, len(list))
	for i, obj := range list {
		key, err := q.keyOf(obj)
		if err != nil {
			return err
		}
		keys[i], listed[key] = key, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.waitRoomLocked(context.Background()); err != nil {
		return err
	}
	if q.own != nil && q.pushed {
		return ErrKnownObjects
	}
	missing := q.missingLocked(listed)
	for i, obj := range list {
		q.addKnownLocked(keys[i], cache.Replaced, obj, "")
	}
	for _, tombstone := range missing {
		q.addKnownLocked(tombstone.Key, cache.Deleted, tombstone, "")
	}
	if len(list)+len(missing) == 0 {
		q.populateLocked(0)
	} else {
		q.populateLocked(q.stream.end())
	}
	q.bookmarkLocked(resourceVersion)
	return nil
}

// missingLocked returns tombstones for all known keys that are not in listed, in key
// order. It skips keys whose deletion already waits.
func (q *Queue) missingLocked(listed map[string]bool) []cache.DeletedFinalStateUnknown {
	var missing []cache.DeletedFinalStateUnknown
	for key, position := range q.newest {
		if d := q.stream.at(position).delta; !listed[key] && d.Type != cache.Deleted {
			missing = append(missing, cache.DeletedFinalStateUnknown{Key: key, Obj: d.Object})
		}
	}
	for _, key := range q.known.ListKeys() {
		if _, ok := q.newest[key]; ok || listed[key] {
			continue
		}
		obj, ok, err := q.known.GetByKey(key)
		if err != nil || !ok {
			obj = nil
		}
		missing = append(missing, cache.DeletedFinalStateUnknown{Key: key, Obj: obj})
	}
	slices.SortFunc(missing, func(a, b cache.DeletedFinalStateUnknown) int { return strings.Compare(a.Key, b.Key) })
	return missing
}

// Resync adds a Sync delta for each known object, except objects with a delta that waits
// or is being processed, because that delta is newer. It blocks while the queue is full
// and returns ErrClosed or ErrKnownObjects. It skips objects for which the known objects
// return an error.
func (q *Queue) Resync() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.own != nil && q.pushed {
		return ErrKnownObjects
	}
	keys := q.known.ListKeys()
	slices.Sort(keys)
	for _, key := range keys {
		if err := q.waitRoomLocked(context.Background()); err != nil {
			return err
		}
		if _, ok := q.newest[key]; ok {
			continue
		}
		if obj, ok, err := q.known.GetByKey(key); ok && err == nil {
			q.addLocked(entry{key: key, delta: cache.Delta{Type: cache.Sync, Object: obj}})
		}
	}
	return nil
}

// Pop blocks until a delta waits. It takes successive deltas of one object and passes
// them to process as [cache.Deltas], which process owns. isInInitialList tells whether
// HasSynced was false before. Pop returns the deltas and the error of process; the deltas
// are removed from the queue in any case. Bookmarks are dropped. As in client-go, the
// remaining deltas of a closed queue are handed out before Pop returns ErrClosed.
func (q *Queue) Pop(process cache.PopProcessFunc) (interface{}, error) {
	deltas, initial, err := q.takeRun()
	if err != nil {
		return nil, err
	}
	defer q.finish()
	return deltas, process(deltas, initial)
}

func (q *Queue) takeRun() (deltas cache.Deltas, initial bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.busy || !q.nextIsDeltaLocked() {
		if q.closed && q.waitingLocked() == 0 {
			return nil, false, ErrClosed
		}
		q.changed.Wait()
	}
	key, n := q.stream.at(q.stream.first).key, 1
	for n < q.waitingLocked() && q.stream.at(q.stream.first+uint64(n)).key == key {
		n++
	}
	return q.takeLocked(n).Changes()[0].Deltas, !q.hasSynced(), nil
}

// nextIsDeltaLocked reports whether a delta waits. It drops a bookmark at the head: only
// the first entry can be a bookmark, because a later one is merged into the entry before
// it. There must be no other consumer.
func (q *Queue) nextIsDeltaLocked() bool {
	if q.stream.len() > 0 && q.stream.at(q.stream.first).isBookmark() {
		q.stream.drop(1)
		q.changed.Broadcast()
	}
	return q.stream.len() > 0
}

// HasSynced reports whether all deltas of the first Replace have been taken and
// processed. It is also true if something other than a Replace was added first, or if the
// first Replace added nothing. It never blocks.
func (q *Queue) HasSynced() bool { return q.hasSynced() }

// HasSyncedChecker returns a DoneChecker whose channel is closed when HasSynced becomes
// true. It never blocks.
func (q *Queue) HasSyncedChecker() cache.DoneChecker { return syncedChecker(q.synced) }

type syncedChecker chan struct{}

func (c syncedChecker) Name() string          { return "fifo" }
func (c syncedChecker) Done() <-chan struct{} { return c }

// lastKnown is a cache.KeyListerGetter that contains the last object of each key.
type lastKnown map[string]any

func (l lastKnown) ListKeys() []string {
	keys := make([]string, 0, len(l))
	for key := range l {
		keys = append(keys, key)
	}
	return keys
}

func (l lastKnown) GetByKey(key string) (interface{}, bool, error) {
	obj, ok := l[key]
	return obj, ok, nil
}
