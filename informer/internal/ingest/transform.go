package ingest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer/internal/tap"
	"github.com/informctl/informctl/store"
)

// transform is the transform of an informer. It may be used by any goroutine.
type transform struct {
	fn       cache.TransformFunc // nil: objects stay as they are
	example  runtime.Object
	standIns *tap.StandIns

	// running is held while fn runs, so that one goroutine at a time calls it.
	running sync.Mutex
}

// apply runs the transform and checks its result. The error names the object that the
// transform or the Go type does not take.
func (t *transform) apply(obj runtime.Object) (_ runtime.Object, err error) {
	if _, encoded := obj.(*store.EncodedObject); encoded {
		return obj, nil // the tap has transformed it
	}
	if bad := t.standIns.Refused(obj); bad != nil {
		return nil, bad
	}
	if t.fn == nil {
		return obj, nil
	}
	key, _ := cache.MetaNamespaceKeyFunc(obj) // only for the errors below
	defer func() {
		if r := recover(); r != nil {
			err = &store.ObjectError{Key: key, Err: fmt.Errorf("transform panicked with a %T", r)}
		}
	}()
	t.running.Lock()
	defer t.running.Unlock()
	out, err := t.fn(obj)
	if err != nil {
		return nil, &store.ObjectError{Key: key, Err: fmt.Errorf("transform: %w", err)}
	}
	if err := t.isStorable(out); err != nil {
		return nil, &store.ObjectError{Key: key, Err: fmt.Errorf("transform: %w", err)}
	}
	if u, ok := out.(*unstructured.Unstructured); ok {
		if err := makePlain(u); err != nil {
			return nil, &store.ObjectError{Key: key, Err: fmt.Errorf("transform: %w", err)}
		}
	}
	return out.(runtime.Object), nil
}

// isStorable checks the result of a transform: an object of the example's type with a
// name.
func (t *transform) isStorable(out any) error {
	v := reflect.ValueOf(out)
	if want := reflect.TypeOf(t.example); !v.IsValid() || v.Type() != want {
		return fmt.Errorf("returned a %T, want a %s", out, want)
	}
	if v.IsNil() {
		return fmt.Errorf("returned a nil %T", out)
	}
	if accessor, err := meta.Accessor(out); err != nil || accessor.GetName() == "" {
		return errors.New("returned an object without a name")
	}
	return nil
}

// rejectedKey returns the key that an object had before a transform changed it, or "".
func rejectedKey(cause error, obj runtime.Object) string {
	var bad *store.ObjectError
	if errors.As(cause, &bad) && bad.Key != "" {
		return bad.Key
	}
	return keyOf(obj)
}

// keyOf returns the key of an object, "" if it has none.
func keyOf(obj runtime.Object) string {
	key, err := store.KeyOf(cache.MetaNamespaceKeyFunc, obj)
	if err != nil {
		return ""
	}
	return key
}
