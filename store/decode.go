package store

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/parallel"
)

// DecodeAll returns the objects of the entries of s, in the order of entries. It decodes
// in parallel and blocks until all objects are decoded. It returns the error of s.Decode,
// or an error that names the entry whose object is not a T.
func DecodeAll[T runtime.Object](s Reader, entries []Entry) ([]T, error) {
	objects := make([]T, len(entries))
	var encoded []int // positions of the entries that have to be decoded
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
