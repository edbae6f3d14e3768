// Package guarantees checks what an event handler is told against what an informer
// guarantees its handlers, for tests. A [Recorder] is such a handler, or is called by
// one, over as many starts as there are.
//
// It is bounded: it keeps the state of each object that it was told of, some 200 bytes
// for a key, not the trace.
package guarantees

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// Guarantee is the name of one. Those that speak of a start hold for each
// registration of a handler, whether in a new process or not.
type Guarantee string

const (
	// Ordered says that the resource version of an object never goes back, and that
	// nothing is told twice: what is told at an equal one has other content, as a new
	// default of a CRD makes it. Resource versions without an order are not compared.
	Ordered Guarantee = "ordered per object"
	// OldIsLast says that the old object of an update, and that of a tombstone, is what
	// was told last, and that a deletion is of the object that was told.
	OldIsLast Guarantee = "old is what was last delivered"
	// AddFirst says that no update and no deletion comes before the add.
	AddFirst Guarantee = "no update before add"
	// OneAdd says that an object is added once, unless it was deleted.
	OneAdd Guarantee = "one add per object and start"
	// SyncedAfterAdds says that no initial add comes once the handler has synced.
	SyncedAfterAdds Guarantee = "synced after the initial adds"
	// NothingMissing says that at rest what was told adds up to what there is.
	NothingMissing Guarantee = "nothing missing at rest"
	// Resumable says that at rest each object that was held when the last start ended
	// was added by this one, not older than it was held, whether it is still there or
	// not. It is ours alone: client-go's informer forgets.
	Resumable Guarantee = "resumable"
	// NothingAfterShutdown says that no call comes once the informer's Run has
	// returned or the handler's removal has ended.
	NothingAfterShutdown Guarantee = "nothing after shutdown"
)

// State is an object as it is compared.
type State struct {
	UID, RV string
	Hash    string // of its Go type and its JSON
}

func (s State) String() string { return fmt.Sprintf("%s@%s#%s", s.UID, s.RV, s.Hash) }

// StateOf returns the key and the state of an object or of a tombstone's. The kind is
// left out, as lists do.
func StateOf(obj any) (key string, s State, err error) {
	if key, err = cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err != nil {
		return key, s, err
	}
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	o, ok := obj.(runtime.Object)
	if !ok {
		return key, s, fmt.Errorf("%T is not an object", obj)
	}
	accessor, err := meta.Accessor(o)
	if err != nil {
		return key, s, err
	}
	s.UID, s.RV = string(accessor.GetUID()), accessor.GetResourceVersion()
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	b, err := json.Marshal(o)
	if err != nil {
		return key, s, err
	}
	sum := sha256.Sum256(fmt.Appendf(b, "%T", o))
	s.Hash = hex.EncodeToString(sum[:8])
	return key, s, nil
}

// States returns the states of objects by key.
func States[T any](objs []T) (map[string]State, error) {
	out := make(map[string]State, len(objs))
	for _, obj := range objs {
		key, s, err := StateOf(obj)
		if err != nil {
			return nil, err
		}
		out[key] = s
	}
	return out, nil
}

// Violation is a guarantee that was broken.
type Violation struct {
	Guarantee Guarantee
	Key       string
	Start     int // 1 is the first
	Position  int // how many calls there were in this start
	What      string
}

func (v Violation) Error() string {
	return fmt.Sprintf("%s: %q, call %d of start %d: %s", v.Guarantee, v.Key, v.Position, v.Start, v.What)
}

// maxViolations are noted. Those that follow say nothing new.
const maxViolations = 100

// Count is how often a handler was called in a start.
type Count struct{ Adds, Updates, Deletes int }

// Recorder is a cache.ResourceEventHandler that checks the guarantees as it is called.
// The others of its methods say what happens to the informer. All are safe for
// concurrent use.
type Recorder struct {
	// Repeats allows updates that change nothing, which client-go's informer makes of
	// every list. To be set before the first call.
	Repeats bool

	mu         sync.Mutex        // protects what follows
	changed    chan struct{}     // closed by the next call
	held       map[string]State  // what was told last, of what was not deleted
	last       map[string]string // the resource version that was told last, of what was deleted, too
	owed       map[string]State  // held when the last start ended, and not added yet
	start      int
	count      Count
	synced     func() bool
	damaged    bool
	ended      bool
	violations []Violation
}

var _ cache.ResourceEventHandler = (*Recorder)(nil)

// New returns a Recorder in its first start. held is what [Recorder.Start] takes.
func New(held map[string]State) *Recorder {
	r := &Recorder{changed: make(chan struct{})}
	r.Start(held)
	return r
}

// Start begins a start: the handler is registered anew, with an informer of this
// process or another. held is what the handler held when the last start ended, as far
// as it is stored for certain, or nil: see Resumable.
func (r *Recorder) Start(held map[string]State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start++
	r.held, r.last, r.owed = map[string]State{}, map[string]string{}, maps.Clone(held)
	r.count, r.synced, r.damaged, r.ended = Count{}, nil, false, false
}

// Registered takes what AddEventHandler has returned. Until then SyncedAfterAdds is not
// checked.
func (r *Recorder) Registered(h cache.ResourceEventHandlerRegistration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = h.HasSynced
}

// Rewound says that the server's history went back, and so may resource versions.
func (r *Recorder) Rewound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
}

// Damaged says that what is stored is lost: until the next start an update may have
// the new object for its old one, also where nothing has changed, and a deletion an
// object that has its name only.
func (r *Recorder) Damaged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.damaged = true
}

// End says that the informer's Run has returned, or that the handler was removed and
// its last call has.
func (r *Recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// OnAdd implements cache.ResourceEventHandler.
func (r *Recorder) OnAdd(obj any, isInInitialList bool) {
	late := isInInitialList && r.hasSynced()
	r.told(&r.count.Adds, obj, func(key string, is State) {
		if late {
			r.violated(SyncedAfterAdds, key, "an initial add, and HasSynced is true")
		}
		if was, there := r.held[key]; there {
			r.violated(OneAdd, key, "added as %s, there already as %s", is, was)
		}
		if order, err := resourceversion.CompareResourceVersion(is.RV, r.last[key]); err == nil && order <= 0 {
			r.violated(Ordered, key, "added at resource version %s, told last was %s", is.RV, r.last[key])
		}
		if was, owed := r.owed[key]; owed {
			delete(r.owed, key)
			if order, err := resourceversion.CompareResourceVersion(is.RV, was.RV); err == nil && order < 0 || is.RV == was.RV && is != was {
				r.violated(Resumable, key, "added as %s, the last start ended with %s", is, was)
			}
		}
		r.held[key], r.last[key] = is, is.RV
	})
}

// OnUpdate implements cache.ResourceEventHandler.
func (r *Recorder) OnUpdate(old, obj any) {
	_, before, err := StateOf(old)
	resynced := old == obj // the same pointer
	r.told(&r.count.Updates, obj, func(key string, is State) {
		was, there := r.held[key]
		switch {
		case !there:
			r.violated(AddFirst, key, "updated to %s, not added", is)
		case err != nil:
			r.violated(OldIsLast, key, "the old object: %v", err)
		case before != was && (!r.damaged || before != is):
			r.violated(OldIsLast, key, "updated from %s, told last was %s", before, was)
		case is == was && !resynced && !r.Repeats && !r.damaged:
			r.violated(Ordered, key, "%s was told twice", is)
		}
		r.inOrder(key, is)
		r.held[key], r.last[key] = is, is.RV
	})
}

// OnDelete implements cache.ResourceEventHandler.
func (r *Recorder) OnDelete(obj any) {
	_, isTombstone := obj.(cache.DeletedFinalStateUnknown)
	r.told(&r.count.Deletes, obj, func(key string, is State) {
		was, there := r.held[key]
		switch {
		case !there:
			r.violated(AddFirst, key, "deleted as %s, not added", is)
		case r.damaged:
		case is.UID != was.UID || isTombstone && is != was:
			r.violated(OldIsLast, key, "deleted as %s, told last was %s", is, was)
		}
		r.inOrder(key, is)
		delete(r.held, key)
		if !isTombstone { // its state may be of a history that went back
			r.last[key] = is.RV
		}
	})
}

// told counts a call and, under mu, checks it.
func (r *Recorder) told(n *int, obj any, check func(key string, is State)) {
	key, is, err := StateOf(obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
	if err != nil { // a tombstone without an object, say
		r.violated(OldIsLast, key, "%v", err)
		delete(r.held, key)
	} else {
		check(key, is)
	}
	if r.ended {
		r.violated(NothingAfterShutdown, key, "told of %s", is)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Recorder) inOrder(key string, is State) {
	if order, err := resourceversion.CompareResourceVersion(is.RV, r.last[key]); err == nil && order < 0 {
		r.violated(Ordered, key, "resource version %s after %s", is.RV, r.last[key])
	}
}

func (r *Recorder) violated(g Guarantee, key, format string, args ...any) {
	if len(r.violations) < maxViolations {
		r.violations = append(r.violations, Violation{
			Guarantee: g, Key: key, Start: r.start, What: fmt.Sprintf(format, args...),
			Position: r.count.Adds + r.count.Updates + r.count.Deletes,
		})
	}
}

// hasSynced asks the registration, which may take locks of the informer.
func (r *Recorder) hasSynced() bool {
	r.mu.Lock()
	synced := r.synced
	r.mu.Unlock()
	return synced != nil && synced()
}

// AtRest checks what holds when nothing changes and nothing waits to be told. is is
// what there is: the server's objects, or the store's where those are compared, too.
func (r *Recorder) AtRest(is map[string]State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if was, there := r.held[key]; !there {
			r.violated(NothingMissing, key, "not told of, is %s", is[key])
		} else if was != is[key] {
			r.violated(NothingMissing, key, "told last was %s, is %s", was, is[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.held)) {
		if _, there := is[key]; !there {
			r.violated(NothingMissing, key, "told last was %s, is not there", r.held[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(r.owed)) {
		r.violated(Resumable, key, "not added, the last start ended with %s", r.owed[key])
	}
}

// Violations returns the first 100.
func (r *Recorder) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Held returns what the handler was told last of each object that was not deleted.
func (r *Recorder) Held() map[string]State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// Count returns how often the handler was called in this start.
func (r *Recorder) Count() Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Await blocks until the handler holds an object of that key, or returns ctx's error.
func (r *Recorder) Await(ctx context.Context, key string) error {
	for {
		r.mu.Lock()
		_, there := r.held[key]
		changed := r.changed
		r.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
