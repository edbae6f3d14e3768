package store

import (
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// walkChunk is the number of objects that AllOf and HeadersOfAll read at once. Between
// chunks they do not keep an old state in memory.
const walkChunk = 256

// AllOf implements Store.All for a backend that holds its objects decoded.
func AllOf(s Reader) iter.Seq2[runtime.Object, error] {
	return func(yield func(runtime.Object, error) bool) {
		for q := (Query{Limit: walkChunk}); ; {
			entries, err := s.Select(q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range entries {
				if !yield(e.Object, nil) {
					return
				}
			}
			if len(entries) < walkChunk {
				return
			}
			q.After = entries[len(entries)-1].Key
		}
	}
}

// HeadersOfAll implements Store.Headers for a backend that holds its objects decoded.
func HeadersOfAll(s Reader) iter.Seq2[Header, error] {
	return func(yield func(Header, error) bool) {
		for object, err := range AllOf(s) {
			var h Header
			if err == nil {
				h, err = HeaderOf(object)
			}
			if !yield(h, err) || err != nil {
				return
			}
		}
	}
}

// HeaderOf returns the header of a decoded object. Its Bytes are 0.
func HeaderOf(object runtime.Object) (Header, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return Header{}, fmt.Errorf("header of a %T: %w", object, err)
	}
	return Header{
		Key: cache.MetaObjectToName(m).String(), UID: string(m.GetUID()), RV: m.GetResourceVersion(),
		Labels: m.GetLabels(), Created: m.GetCreationTimestamp().Time,
	}, nil
}
