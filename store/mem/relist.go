package mem

import (
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// partSize is the maximum number of changes in a batch of Parts.
const partSize = 500

// relist compares a new list with the state of the lease. It is active while lease.relist
// points to it. The listed objects are collected in staged.
//
// If the scope was never listed, there is nothing to compare with. Parts then yields one
// batch without changes, and Apply of that batch replaces all objects by the staged ones.
type relist struct {
	lease  *lease
	first  bool             // the scope was never listed
	staged map[string]*item // nil for an object that cannot be stored

	// ready and rv are protected by lease.write. ready is true after Parts has yielded
	// the last batch of a first list; rv is the RV of that batch.
	ready bool
	rv    string
}

// Relist starts to compare the scope with a new list.
func (s *lease) Relist() (store.Relist, error) {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.checkLocked(); err != nil {
		return nil, err
	}
	st := s.state.Load()
	s.relist = &relist{lease: s, first: !st.listed, staged: map[string]*item{}}
	if st.listed {
		st.recent.ListBegun()
	}
	return s.relist, nil
}

// Add stages one object.
func (r *relist) Add(object runtime.Object) error {
	if err := r.check(); err != nil {
		return err
	}
	it, err := r.lease.newItem("", object)
	if err != nil {
		if key, keyErr := store.KeyOf(cache.MetaNamespaceKeyFunc, object); keyErr == nil {
			r.Keep(key)
		}
		return err
	}
	r.staged[it.key] = it
	return nil
}

// Keep counts a key as listed. A state of it that was added before stays.
func (r *relist) Keep(key string) {
	if _, added := r.staged[key]; !added && r.staged != nil { // nil: closed
		r.staged[key] = nil
	}
}

// Remove counts a key as not listed.
func (r *relist) Remove(key string) { delete(r.staged, key) }

// check returns an error that wraps ErrClosed if this relist is no longer active.
func (r *relist) check() error {
	r.lease.write.Lock()
	defer r.lease.write.Unlock()
	if err := r.lease.checkLocked(); err != nil {
		return err
	}
	if r.lease.relist != r {
		return fmt.Errorf("relist: %w", store.ErrClosed)
	}
	return nil
}

// Parts yields the differences.
func (r *relist) Parts(rv string) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		if err := r.check(); err != nil {
			yield(store.Batch{}, err)
			return
		}
		if r.first {
			r.lease.write.Lock()
			r.ready, r.rv = true, rv
			r.lease.write.Unlock()
			yield(store.Batch{RV: rv, Loaded: true}, nil)
			return
		}
		changes := r.changes(r.lease.state.Load())
		for len(changes) > partSize {
			if !yield(store.Batch{Changes: changes[:partSize:partSize]}, nil) {
				return
			}
			changes = changes[partSize:]
		}
		yield(store.Batch{Changes: changes, RV: rv}, nil)
	}
}

// changes returns the changes that turn st into the list: deletions, then the rest, both
// in key order.
func (r *relist) changes(st *state) []store.Change {
	var changes []store.Change
	st.objects.Scan(func(key string, _ *item) bool {
		if _, seen := r.staged[key]; !seen {
			changes = append(changes, store.Change{Key: key})
		}
		return true
	})
	for _, it := range r.loaded() {
		old, ok := st.objects.Get(it.key)
		if ok {
			same, _ := r.lease.scope.SameButKind(it.object, func() (bool, error) { return equal(old.object, it.object), nil })
			if same {
				continue
			}
		}
		changes = append(changes, store.Change{
			Key: it.key, Object: it.object, Prepared: prepared{lease: r.lease, item: it},
			Departs: ok && isAnother(old.object, it.object),
		})
	}
	return changes
}

// isAnother reports whether two objects of one name have different UIDs.
func isAnother(a, b runtime.Object) bool {
	was, err := meta.Accessor(a)
	if err != nil {
		return false
	}
	is, err := meta.Accessor(b)
	return err == nil && was.GetUID() != "" && is.GetUID() != "" && was.GetUID() != is.GetUID()
}

// equal compares complete objects: an equal resource version does not mean equal content.
func equal(a, b runtime.Object) (same bool) {
	defer func() {
		if recover() != nil { // a type with unexported fields that Semantic does not know
			same = reflect.DeepEqual(a, b)
		}
	}()
	return equality.Semantic.DeepEqual(a, b)
}

// loaded returns the staged items that can be stored, in key order.
func (r *relist) loaded() []*item {
	items := make([]*item, 0, len(r.staged))
	for _, key := range slices.Sorted(maps.Keys(r.staged)) {
		if it := r.staged[key]; it != nil {
			items = append(items, it)
		}
	}
	return items
}

// endsWithLocked reports whether b is the last batch of this first list.
func (r *relist) endsWithLocked(b store.Batch) bool {
	return r.ready && len(b.Changes) == 0 && (b.RV == r.rv || b.RV == "")
}

// Close discards the staged objects.
func (r *relist) Close() error {
	r.lease.write.Lock()
	defer r.lease.write.Unlock()
	if r.lease.relist == r {
		r.lease.relist = nil
	}
	r.staged = nil
	return nil
}
