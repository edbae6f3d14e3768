package mem

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidwall/btree"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// state is the content of a scope at one moment. A published state is immutable; its
// trees share nodes with the trees of later states.
type state struct {
	objects    *btree.Map[string, *item]
	inverted   []inverted // AddIndexes appends, so positions are stable
	checkpoint store.Checkpoint
	listed     bool // a complete list was stored
	departed   departed
	recent     *store.Recent // of the scope, shared by its states
	note       func()        // notes in it what update has changed; nil once that is done
}

// departed are the deleted objects that the scope keeps for handlers that are added
// later.
type departed struct {
	objects []store.Departed // ordered by Number; append-only
	last    uint64           // the highest assigned number
	told    uint64           // every handler has received the numbers up to it
	dropped int              // number of objects that were not kept
}

// maxDeparted limits the number of kept objects per scope. Their encoded size is not
// known, because this backend does not encode objects.
const maxDeparted = 4096

// keyOf returns the key of a change, which may be known only from its item, nil for a
// deletion.
func keyOf(c store.Change, it *item) string {
	if it != nil {
		return it.key
	}
	return c.Key
}

// depart keeps the object that is stored under the key of a change.
func (st *state) depart(c store.Change, by *item) {
	d, key := &st.departed, keyOf(c, by)
	it, ok := st.objects.Get(key)
	switch {
	case !ok:
		return
	case len(d.objects) >= maxDeparted:
		d.dropped++
		return
	}
	d.last++
	gone := store.Departed{Number: d.last, Before: store.Entry{Key: key, Object: it.object}}
	if c.Last != nil {
		gone.Last = store.Entry{Key: key, Object: c.Last}
	}
	d.objects = append(d.objects, gone)
}

// withoutTold returns the departed objects for the next lease of the scope.
func (d departed) withoutTold() departed {
	i := slices.IndexFunc(d.objects, func(o store.Departed) bool { return o.Number > d.told })
	if i < 0 {
		i = len(d.objects)
	}
	return departed{objects: slices.Clone(d.objects[i:]), last: d.last, told: d.told}
}

// item is one object with its index values. It is immutable.
type item struct {
	key    string
	object runtime.Object
	values [][]string // values[i] belongs to the index at position i
}

// inverted is one index: its function and its entries.
type inverted struct {
	name     string
	identity string // "" for a function without identity
	fn       cache.IndexFunc
	entries  *btree.BTreeG[entry]
}

// entry maps an index value to an object.
type entry struct {
	value string
	item  *item
}

func newEntries() *btree.BTreeG[entry] {
	less := func(a, b entry) bool {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.item.key, b.item.key)) < 0
	}
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

// newState returns a state without objects and with the given indexes.
func newState(indexes []inverted, reason string) *state {
	st := &state{
		objects:    btree.NewMap[string, *item](0),
		inverted:   slices.Clone(indexes),
		checkpoint: store.Checkpoint{Reason: reason, Time: time.Now()},
		recent:     &store.Recent{},
	}
	for i := range st.inverted {
		st.inverted[i].entries = newEntries()
	}
	return st
}

// copy returns a copy of st that can be changed independently.
func (st *state) copy() *state {
	next := *st
	next.objects = st.objects.Copy()
	next.inverted = slices.Clone(st.inverted)
	for i := range next.inverted {
		next.inverted[i].entries = next.inverted[i].entries.Copy()
	}
	return &next
}

// index returns the index with that name, or an error that wraps ErrNoIndex.
func (st *state) index(name string) (inverted, error) {
	for _, ix := range st.inverted {
		if ix.name == name {
			return ix, nil
		}
	}
	return inverted{}, store.NoIndex(name, st.indexers())
}

// set stores an item. The item must have values for every index.
func (st *state) set(it *item) {
	old, replaced := st.objects.Set(it.key, it)
	for i, ix := range st.inverted {
		if replaced && !slices.Equal(old.values[i], it.values[i]) {
			ix.remove(old, i)
		}
		for _, value := range it.values[i] {
			ix.entries.Set(entry{value: value, item: it})
		}
	}
}

// delete removes the object with the key, if it exists.
func (st *state) delete(key string) {
	old, ok := st.objects.Delete(key)
	if !ok {
		return
	}
	for i, ix := range st.inverted {
		ix.remove(old, i)
	}
}

// clear removes every object.
func (st *state) clear() {
	st.objects = btree.NewMap[string, *item](0)
	for i := range st.inverted {
		st.inverted[i].entries = newEntries()
	}
}

// complete records that the objects are complete up to the RV of a batch. If that is
// empty, the list is still complete, but the checkpoint does not change.
func (st *state) complete(b store.Batch) {
	st.listed = true
	if b.RV != "" {
		st.checkpoint = b.Checkpoint(st.checkpoint)
	}
}

// extend returns the item with values for every index of the state. It calls the
// functions of the indexes for which the item has no values.
func (st *state) extend(it *item) (*item, error) {
	if len(it.values) == len(st.inverted) {
		return it, nil
	}
	values := slices.Clone(it.values)
	for _, ix := range st.inverted[len(values):] {
		v, err := ix.valuesOf(it.object)
		if err != nil {
			return nil, &store.ObjectError{Key: it.key, Err: err}
		}
		values = append(values, v)
	}
	return &item{key: it.key, object: it.object, values: values}, nil
}

// extendAll adds the missing index values to every item.
func (st *state) extendAll() error {
	var failed error
	for _, it := range st.objects.Values() {
		if it, failed = st.extend(it); failed != nil {
			return failed
		}
		st.objects.Set(it.key, it)
		for i, ix := range st.inverted { // the old entries refer to the old item
			for _, value := range it.values[i] {
				ix.entries.Set(entry{value: value, item: it})
			}
		}
	}
	return nil
}

// valuesOf calls the index function. Its error names the index.
func (ix inverted) valuesOf(obj any) ([]string, error) {
	values, err := index.Values(ix.fn, obj)
	if err != nil {
		return nil, fmt.Errorf("index %q: %w", ix.name, err)
	}
	return values, nil
}

// remove deletes the entries of an item; i is the index's position.
func (ix inverted) remove(it *item, i int) {
	for _, value := range it.values[i] {
		ix.entries.Delete(entry{value: value, item: it})
	}
}

// items returns the items with an index value, in key order.
func (ix inverted) items(value string) []*item {
	var items []*item
	ix.entries.Ascend(entry{value: value, item: &item{}}, func(e entry) bool {
		if e.value == value {
			items = append(items, e.item)
		}
		return e.value == value
	})
	return items
}

// distinct returns the index values, in order.
func (ix inverted) distinct() []string {
	values := []string{}
	next := entry{item: &item{}}
	for more := true; more; {
		more = false
		ix.entries.Ascend(next, func(e entry) bool {
			values, more = append(values, e.value), true
			next.value = e.value + "\x00" // the smallest greater value
			return false
		})
	}
	return values
}
