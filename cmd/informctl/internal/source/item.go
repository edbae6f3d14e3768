package source

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
)

// Item is one selected object. An item holds only the key, so that all items fit in
// memory.
type Item struct {
	View            *View
	Namespace, Name string
}

// NewItem returns the item of a key of a view.
func NewItem(v *View, key string) Item {
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		return Item{v, namespace, name}
	}
	return Item{v, "", key}
}

// Kind returns the kind of the scope, or the resource if the scope has no kind, as scopes
// of the dynamic and the metadata client.
func (i Item) Kind() schema.GroupVersionKind {
	gvk := i.View.Info.Scope.Kind
	if gvk.Kind == "" {
		gvk.Kind = schema.ParseGroupResource(i.View.Info.Scope.Resource).Resource
	}
	return gvk
}

// Key returns the key in the scope: NAMESPACE/NAME, or NAME.
func (i Item) Key() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}

// AppendItems appends the items of keys of a view.
func AppendItems(items []Item, v *View, keys []string) []Item {
	items = slices.Grow(items, len(keys))
	for _, key := range keys {
		items = append(items, NewItem(v, key))
	}
	return items
}

// CompareItems defines the order of all output: by resource, namespace and name. Keys
// have a different order: "a-b/x" comes before "a/x".
func CompareItems(a, b Item) int {
	return cmp.Or(
		cmp.Compare(a.View.Info.Scope.Resource, b.View.Info.Scope.Resource),
		cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.View.Info.ID, b.View.Info.ID),
	)
}

// CountTyped returns the number of items that are decoded with a Go type.
func CountTyped(items []Item) (n int) {
	for _, i := range items {
		if i.View.Info.Scope.Form == store.Typed {
			n++
		}
	}
	return n
}

// Wrap adds the item's name to an error.
func (i Item) Wrap(err error) error {
	return fmt.Errorf("%s %q: %w", i.View.Info.Scope.Resource, i.Key(), err)
}

// Load decodes an item's object, which e is the stored form of. It returns nil if the
// object was deleted. The values of a Secret are redacted unless its view shows them.
func (i Item) Load(e store.Entry) (runtime.Object, error) {
	if IsDeleted(e) {
		return nil, nil
	}
	return i.View.Decode(e)
}

// IsDeleted reports whether there is no object any more.
func IsDeleted(e store.Entry) bool { return e.Object == nil && e.Raw == nil }

// Fetch returns the objects of items, in their order. d defines which parts are needed.
func Fetch(items []Item, d Depth) ([]store.Entry, error) {
	out := make([]store.Entry, len(items))
	at := map[*View][]int{}
	var views []*View
	for i, item := range items {
		if at[item.View] == nil {
			views = append(views, item.View)
		}
		at[item.View] = append(at[item.View], i)
	}
	for _, v := range views {
		keys := make([]string, 0, len(at[v]))
		for _, i := range at[v] {
			keys = append(keys, items[i].Key())
		}
		found, err := v.Fetch(keys, d)
		if err != nil {
			return nil, err
		}
		for n, i := range at[v] {
			out[i] = found[n]
		}
	}
	return out, nil
}

// ChunkSize is the number of objects that are decoded and rendered at a time, in
// parallel.
const ChunkSize = 128

// Part is a part of the items with their objects.
type Part struct {
	Items   []Item
	Objects []store.Entry
}

// InParts fetches items in chunks, so that memory does not grow with their number. It
// fetches the next chunk while the caller uses the current one. An error is the last
// element.
func InParts(items []Item, d Depth) iter.Seq2[Part, error] {
	type answer struct {
		Part
		err error
	}
	ask := func(items []Item) chan answer {
		c := make(chan answer, 1)
		go func() {
			objects, err := Fetch(items, d)
			c <- answer{Part{items, objects}, err}
		}()
		return c
	}
	return func(yield func(Part, error) bool) {
		var asked chan answer
		defer func() {
			if asked != nil {
				<-asked // the goroutine must end before the source is closed
			}
		}()
		size := ChunkSize
		if d == Header {
			size *= 4 // one query to a process
		}
		for next := range slices.Chunk(items, size) {
			previous := asked
			var a answer
			if previous != nil {
				a = <-previous
			}
			asked = ask(next)
			if previous != nil && (!yield(a.Part, a.err) || a.err != nil) {
				return
			}
		}
		if asked != nil {
			a := <-asked
			asked = nil
			yield(a.Part, a.err)
		}
	}
}
