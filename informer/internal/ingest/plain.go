package ingest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// makePlain replaces what a transform has left in an unstructured object, such as an int
// or a []string, by what its JSON form is decoded to. Such an object cannot be stored,
// and not even copied. Maps and slices are replaced and not changed, since the transform
// may hold them.
func makePlain(u *unstructured.Unstructured) error {
	content, changed, err := plain(u.Object, 0)
	if err == nil && changed {
		u.Object, _ = content.(map[string]any)
	}
	return err
}

// maxDepth limits the nesting depth, like encoding/json's decoder.
const maxDepth = 10000

// plain returns x, or what its JSON form is decoded to if x or a part of it is no value
// of unstructured objects.
func plain(x any, depth int) (_ any, changed bool, err error) {
	if depth > maxDepth {
		return nil, false, errors.New("nested too deeply")
	}
	switch x := x.(type) {
	case nil, bool, int64, float64, string:
		return x, false, nil
	case map[string]any:
		out := x
		for k, v := range x {
			v, replaced, err := plain(v, depth+1)
			if err != nil {
				return nil, false, err
			}
			if replaced {
				if !changed {
					out, changed = maps.Clone(x), true
				}
				out[k] = v
			}
		}
		return out, changed, nil
	case []any:
		out := x
		for i, v := range x {
			v, replaced, err := plain(v, depth+1)
			if err != nil {
				return nil, false, err
			}
			if replaced {
				if !changed {
					out, changed = slices.Clone(x), true
				}
				out[i] = v
			}
		}
		return out, changed, nil
	}
	text, err := json.Marshal(x)
	if err != nil {
		return nil, false, fmt.Errorf("value of Go type %T has no JSON form", x)
	}
	var out any
	if err := utiljson.Unmarshal(text, &out); err != nil {
		return nil, false, fmt.Errorf("value of Go type %T has no JSON form", x)
	}
	return out, true, nil
}
