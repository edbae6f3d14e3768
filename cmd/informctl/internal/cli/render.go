package cli

import (
	"fmt"
	"io"
	goruntime "runtime"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// chunk is how many objects are decoded and rendered at a time, in parallel.
const chunk = 128

// inParallel calls fn for the numbers below n, from as many goroutines as there are
// processors, and returns the first error.
func inParallel(n int, fn func(i int) error) error {
	var g errgroup.Group
	workers := min(goruntime.GOMAXPROCS(0), 1+n/16)
	for worker := range workers {
		g.Go(func() error {
			for i := worker; i < n; i += workers {
				if err := fn(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// print renders the items by chunks, so that memory does not grow with them.
func print(w io.Writer, items []item, p printer) error {
	if err := p.begin(w); err != nil {
		return err
	}
	pieces := make([]piece, min(chunk, len(items)))
	for part := range slices.Chunk(items, chunk) {
		pieces = pieces[:len(part)]
		err := inParallel(len(part), func(i int) error {
			obj, err := part[i].load(p.decodes())
			if err != nil {
				return err
			}
			if pieces[i], err = p.render(obj); err != nil {
				return part[i].wrap(err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := p.emit(w, pieces); err != nil {
			return err
		}
		clear(pieces)
	}
	return p.end(w)
}

// wrap names the item in an error.
func (i item) wrap(err error) error {
	return fmt.Errorf("%s %q: %w", i.view.info.Scope.Resource, i.key(), err)
}

// load reads an item's object.
func (i item) load(decode bool) (object, error) {
	o := object{item: i}
	if !decode {
		return o, nil
	}
	e, ok, err := i.view.Entry(i.key())
	if err != nil {
		return o, err
	}
	if !ok {
		return o, i.wrap(errLost)
	}
	o.bytes = len(e.Raw)
	o.Object, err = i.view.decode(e)
	return o, err
}

// decode returns the object of an entry with its kind, and a Secret as it may be shown.
func (v *view) decode(e store.Entry) (object runtime.Object, err error) {
	if object, err = v.Decode(e); err != nil {
		return nil, err
	}
	kind := object.GetObjectKind()
	if gvk := kind.GroupVersionKind(); gvk.Kind == "" || gvk.Version == "" {
		if gvk = v.info.Scope.Kind; gvk.Kind == "" {
			gvk = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata") // others say their kind
		}
		kind.SetGroupVersionKind(gvk)
	}
	if v.showSecrets {
		return object, nil
	}
	return redact(v.info.Scope, object)
}

// errLost is damage: nothing changes a file that is open for reading.
var errLost = fmt.Errorf("%w: a key without an object", store.ErrCorrupt)
