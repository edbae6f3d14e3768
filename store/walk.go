package store

import (
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// walkChunk is the number of objects that AllOf reads at once, and headersChunk that of
// headers that HeadersOfAll reads. Between chunks they keep no old state in memory.
const (
	walkChunk    = 256
	headersChunk = 4 * walkChunk
)

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

// HeadersOfAll yields the header of every object in key order. It reads in chunks, as
// Store.All.
func HeadersOfAll(s Reader) iter.Seq2[Header, error] {
	return func(yield func(Header, error) bool) {
		for q := (Query{Limit: headersChunk}); ; {
			keys, err := s.Keys(q)
			var headers []Header
			if err == nil {
				headers, err = s.HeadersOf(keys)
			}
			if err != nil {
				yield(Header{}, err)
				return
			}
			for _, h := range headers {
				if !yield(h, nil) {
					return
				}
			}
			if len(keys) < headersChunk {
				return
			}
			q.After = keys[len(keys)-1]
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
