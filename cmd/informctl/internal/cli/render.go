package cli

import (
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/wire"
)

// chunk is the number of objects that are decoded and rendered at a time, in parallel.
const chunk = 128

// print renders the items in chunks, so that memory does not grow with their number.
func print(w io.Writer, items []item, p printer) error {
	if err := p.begin(w); err != nil {
		return err
	}
	if p.needs() == nothing {
		for some := range slices.Chunk(items, chunk) {
			if err := emit(w, p, part{items: some}); err != nil {
				return err
			}
		}
		return p.end(w)
	}
	for part, err := range inParts(items, p.needs()) {
		if err == nil {
			err = emit(w, p, part)
		}
		if err != nil {
			return err
		}
	}
	return p.end(w)
}

// emit renders a part. It leaves out objects that were deleted in the meantime.
func emit(w io.Writer, p printer, some part) error {
	pieces := make([]piece, len(some.items))
	gone := make([]bool, len(some.items))
	err := parallel.Do(len(some.items), func(i int) (err error) {
		obj := object{item: some.items[i]}
		if some.objects != nil {
			if obj.Object, err = obj.load(some.objects[i]); err != nil {
				return err
			}
			if gone[i] = obj.Object == nil; gone[i] {
				return nil
			}
		}
		if pieces[i], err = p.render(obj); err != nil {
			return obj.wrap(err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	kept := pieces[:0]
	for i, piece := range pieces {
		if !gone[i] {
			kept = append(kept, piece)
		}
	}
	return p.emit(w, kept)
}

// wrap adds the item's name to an error.
func (i item) wrap(err error) error {
	return fmt.Errorf("%s %q: %w", i.view.info.Scope.Resource, i.key(), err)
}

// load decodes an item's object. It returns nil if the object was deleted.
func (i item) load(e encoded) (runtime.Object, error) {
	if e.decode == nil {
		return nil, nil
	}
	return i.view.decode(e)
}

// decode returns an object with its kind. It redacts Secrets unless they are to be shown.
func (v *view) decode(e encoded) (object runtime.Object, err error) {
	if object, err = e.decode(); err != nil {
		return nil, err
	}
	object = v.withKinds(object)
	if v.showSecrets || !secret.Is(v.info.Scope, object) {
		return object, nil
	}
	return secret.Redact(object)
}

// withKinds sets the kind of an object that has none, and returns it with those of its
// inner objects.
func (v *view) withKinds(object runtime.Object) runtime.Object {
	kind := object.GetObjectKind()
	if gvk := kind.GroupVersionKind(); gvk.Kind == "" || gvk.Version == "" {
		if gvk = v.info.Scope.Kind; gvk.Kind == "" {
			// Other objects have a kind.
			gvk = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
		}
		kind.SetGroupVersionKind(gvk)
	}
	return wire.WithKinds(object)
}
