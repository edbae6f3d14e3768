// Package guarantees checks, in tests, that the calls of an event handler fulfil the
// guarantees of an informer. A [Recorder] is such a handler, or a handler calls it. It
// checks any number of starts.
//
// Its memory is bounded: it keeps the last state of each object, about 200 bytes per key,
// and not the sequence of calls.
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

// Guarantee is the name of a guarantee. "Start" means each registration of a handler, in
// the same process or a new one.
type Guarantee string

const (
	// Ordered means that the resource version of an object never decreases, and no state
	// is delivered twice. Two states with an equal resource version have different
	// content, for example because of a new default of a CRD. Resource versions that have
	// no order are not compared.
	Ordered Guarantee = "ordered per object"
	// OldIsLast means that the old object of an update, and the object of a tombstone, is
	// the state delivered last; a deletion is of the object delivered last.
	OldIsLast Guarantee = "old is what was last delivered"
	// AddFirst means that an add comes before any update and deletion.
	AddFirst Guarantee = "no update before add"
	// OneAdd means that an object is added only once, unless it was deleted.
	OneAdd Guarantee = "one add per object and start"
	// SyncedAfterAdds means that no initial add comes after the handler has synced.
	SyncedAfterAdds Guarantee = "synced after the initial adds"
	// NothingMissing means that at rest, the delivered states are the existing objects.
	NothingMissing Guarantee = "nothing missing at rest"
	// Resumable means that at rest, each object that was held at the end of the last
	// start has been added in this start, at the same or a newer state, even if it no
	// longer exists. Only this project's informer guarantees that; client-go's informer
	// keeps no state.
	Resumable Guarantee = "resumable"
	// NothingAfterShutdown means that no call comes after the informer's Run has returned
	// or after the removal of the handler has ended.
	NothingAfterShutdown Guarantee = "nothing after shutdown"
)

// State is the part of an object that is compared.
type State struct {
	UID, RV string
	Hash    string // of its Go type and its JSON
}

func (s State) String() string { return fmt.Sprintf("%s@%s#%s", s.UID, s.RV, s.Hash) }

// StateOf returns the key and the state of an object or of the object in a tombstone. It
// ignores the kind, because listed objects do not have it.
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

// Violation is a broken guarantee.
type Violation struct {
	Guarantee Guarantee
	Key       string
	Start     int // the first start is 1
	Position  int // number of calls in this start
	What      string
}

func (v Violation) Error() string {
	return fmt.Sprintf("%s: %q, call %d of start %d: %s", v.Guarantee, v.Key, v.Position, v.Start, v.What)
}

// maxViolations is the maximum number of recorded violations. Later ones add no
// information.
const maxViolations = 100

// Count contains the numbers of calls of a handler in a start.
type Count struct{ Adds, Updates, Deletes int }

// Recorder is a cache.ResourceEventHandler that checks the guarantees in each call. The
// other methods report events of the informer. All methods are safe for concurrent use.
type Recorder struct {
	// Repeats allows updates that change nothing; client-go's informer sends them for
	// every list. It must be set before the first call.
	Repeats bool

	mu         sync.Mutex        // protects the fields below
	changed    chan struct{}     // closed by the next call
	held       map[string]State  // the states delivered last, without deleted objects
	last       map[string]string // the RVs delivered last, also of deleted objects
	owed       map[string]State  // held at the end of the last start, and not added yet
	start      int
	count      Count
	synced     func() bool
	damaged    bool
	ended      bool
	violations []Violation
}

var _ cache.ResourceEventHandler = (*Recorder)(nil)

// New returns a Recorder in its first start. For held, see [Recorder.Start].
func New(held map[string]State) *Recorder {
	r := &Recorder{changed: make(chan struct{})}
	r.Start(held)
	return r
}

// Start begins a start: the handler is registered again, with an informer of this process
// or of another one. held is what the handler held at the end of the last start, as far
// as it is certainly stored, or nil: see Resumable.
func (r *Recorder) Start(held map[string]State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.start++
	r.held, r.last, r.owed = map[string]State{}, map[string]string{}, maps.Clone(held)
	r.count, r.synced, r.damaged, r.ended = Count{}, nil, false, false
}

// Registered receives the result of AddEventHandler. SyncedAfterAdds is not checked
// before.
func (r *Recorder) Registered(h cache.ResourceEventHandlerRegistration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = h.HasSynced
}

// Rewound reports that the server's history was rewound, so resource versions may
// decrease.
func (r *Recorder) Rewound() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
}

// Damaged reports that stored state is lost. Until the next start, the old object of an
// update may be equal to the new one, even if nothing has changed, and a deletion may
// contain an object with only the name in common.
func (r *Recorder) Damaged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.damaged = true
}

// End reports that the informer's Run has returned, or that the handler was removed and
// its last call has returned.
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
		// The state of a tombstone may be from a history that was rewound.
		if !isTombstone {
			r.last[key] = is.RV
		}
	})
}

// told counts a call and checks it with mu held.
func (r *Recorder) told(n *int, obj any, check func(key string, is State)) {
	key, is, err := StateOf(obj)
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
	if err != nil { // for example a tombstone without an object
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

// AtRest checks the guarantees that apply when nothing changes and no notification waits.
// is contains the existing objects: those of the server, or those of the store if both
// are compared.
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

// Violations returns the first violations, at most maxViolations.
func (r *Recorder) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Held returns the states delivered last, without deleted objects.
func (r *Recorder) Held() map[string]State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.held)
}

// Count returns the numbers of calls in this start.
func (r *Recorder) Count() Count {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// Await blocks until the handler holds an object with the key, or returns ctx's error.
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
