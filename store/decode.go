package store

import (
	"fmt"
	goruntime "runtime"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
)

// DecodeAll returns the objects of entries of s, in their order. It decodes in
// parallel and blocks until that is done. The error is that of s.Decode, or says
// which entry is no T.
func DecodeAll[T runtime.Object](s Store, entries []Entry) ([]T, error) {
	objects := make([]T, len(entries))
	var g errgroup.Group
	workers := min(goruntime.GOMAXPROCS(0), 1+len(entries)/16)
	for w := range workers {
		g.Go(func() error {
			for i := w; i < len(entries); i += workers {
				obj, err := s.Decode(entries[i])
				if err != nil {
					return err
				}
				var ok bool
				if objects[i], ok = obj.(T); !ok {
					return fmt.Errorf("object %q is a %T", entries[i].Key, obj)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return objects, nil
}
