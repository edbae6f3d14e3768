package store

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/parallel"
)

// DecodeAll returns the objects of entries of s, in their order. It decodes in
// parallel and blocks until that is done. The error is that of s.Decode, or says
// which entry is no T.
func DecodeAll[T runtime.Object](s Reader, entries []Entry) ([]T, error) {
	objects := make([]T, len(entries))
	var encoded []int // the places of those that have to be decoded
	take := func(i int, obj runtime.Object) (err error) {
		var ok bool
		if objects[i], ok = obj.(T); !ok {
			err = fmt.Errorf("object %q is a %T", entries[i].Key, obj)
		}
		return err
	}
	for i := range entries {
		if entries[i].Object == nil {
			encoded = append(encoded, i)
			continue
		}
		if err := take(i, entries[i].Object); err != nil {
			return nil, err
		}
	}
	err := parallel.Do(len(encoded), func(n int) error {
		i := encoded[n]
		obj, err := s.Decode(entries[i])
		if err != nil {
			return err
		}
		return take(i, obj)
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}
