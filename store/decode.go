package store

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/parallel"
)

// DecodeAll returns the objects of entries of s, in their order. It decodes in
// parallel and blocks until that is done. The error is that of s.Decode, or says
// which entry is no T.
func DecodeAll[T runtime.Object](s Store, entries []Entry) ([]T, error) {
	objects := make([]T, len(entries))
	err := parallel.Do(len(entries), func(i int) error {
		obj, err := s.Decode(entries[i])
		if err != nil {
			return err
		}
		var ok bool
		if objects[i], ok = obj.(T); !ok {
			return fmt.Errorf("object %q is a %T", entries[i].Key, obj)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return objects, nil
}
