package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// filter says which objects of a scope are meant.
type filter struct {
	namespace string // "" is all
	labels    labels.Selector
	indexes   []string // NAME=VALUE, all must match
	names     []string // none is all
}

// item is one object that was selected. Only keys are held for all of them.
type item struct {
	view            *view
	namespace, name string
}

// kind is that of the scope. Informers of the dynamic and the metadata client do not
// know it: then the resource stands for it.
func (i item) kind() schema.GroupVersionKind {
	gvk := i.view.info.Scope.Kind
	if gvk.Kind == "" {
		gvk.Kind = schema.ParseGroupResource(i.view.info.Scope.Resource).Resource
	}
	return gvk
}

func (i item) key() string {
	if i.namespace == "" {
		return i.name
	}
	return i.namespace + "/" + i.name
}

// keys returns the keys of the scope's objects that pass, without decoding any.
func (f filter) keys(path string, v *view) ([]string, error) {
	keys, err := f.candidates(path, v)
	if err != nil {
		return nil, err
	}
	if f.namespace != "" {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return !strings.HasPrefix(key, f.namespace+"/")
		})
	}
	if len(f.names) > 0 {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return !slices.Contains(f.names, key[strings.LastIndexByte(key, '/')+1:])
		})
	}
	if len(keys) == 0 || f.labels == nil || f.labels.Empty() {
		return keys, nil
	}
	labelled := make([]string, 0, len(keys))
	for h, err := range v.Headers() {
		if err != nil {
			return nil, err
		}
		if f.labels.Matches(labels.Set(h.Labels)) {
			labelled = append(labelled, h.Key)
		}
	}
	return intersect(keys, labelled), nil
}

// candidates returns the sorted keys that the indexes leave.
func (f filter) candidates(path string, v *view) ([]string, error) {
	if len(f.indexes) == 0 && f.namespace != "" && len(f.names) > 0 {
		return f.named(v)
	}
	if len(f.indexes) == 0 {
		keys := v.ListKeys()
		if err := v.Err(); err != nil {
			return nil, err
		}
		// A read-only file is not checked as a whole when it is opened.
		if len(keys) != v.info.Objects {
			return nil, v.damaged(path, "%d keys, not %d", len(keys), v.info.Objects)
		}
		return keys, nil
	}
	var keys []string
	for i, spec := range f.indexes {
		name, value, ok := v.index(spec)
		if !ok {
			return nil, fmt.Errorf("%s has no index %q; there are %s", v.info.Scope, indexName(spec), v.indexNames())
		}
		found, err := v.IndexKeys(name, value)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			keys = found
			continue
		}
		keys = intersect(keys, found)
	}
	return keys, nil
}

// named returns those of the named keys that there are.
func (f filter) named(v *view) (keys []string, err error) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(f.names))) {
		key := f.namespace + "/" + name
		_, ok, err := v.Entry(key)
		if err != nil {
			return nil, err
		}
		if ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// index splits NAME=VALUE at the longest name that the scope has, since names
// and values may both hold "=".
func (v *view) index(spec string) (name, value string, ok bool) {
	for _, idx := range v.info.Indexes {
		rest, is := strings.CutPrefix(spec, idx.Name+"=")
		if is && (!ok || len(idx.Name) > len(name)) {
			name, value, ok = idx.Name, rest, true
		}
	}
	return name, value, ok
}

func (v *view) hasIndexes(specs []string) bool {
	for _, spec := range specs {
		if _, _, ok := v.index(spec); !ok {
			return false
		}
	}
	return true
}

func (v *view) indexNames() string {
	names := make([]string, 0, len(v.info.Indexes))
	for _, idx := range v.info.Indexes {
		names = append(names, idx.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// indexName is what a user most likely meant as the name in NAME=VALUE.
func indexName(spec string) string {
	name, _, _ := strings.Cut(spec, "=")
	return name
}

// intersect returns what two sorted lists have in common, in the first's memory.
func intersect(a, b []string) []string {
	return slices.DeleteFunc(a, func(key string) bool {
		_, found := slices.BinarySearch(b, key)
		return !found
	})
}

// compareItems is the order of all output: by resource, namespace and name. The
// order of keys is another: "a-b/x" comes before "a/x".
func compareItems(a, b item) int {
	return cmp.Or(
		cmp.Compare(a.view.info.Scope.Resource, b.view.info.Scope.Resource),
		cmp.Compare(a.namespace, b.namespace),
		cmp.Compare(a.name, b.name),
		cmp.Compare(a.view.info.ID, b.view.info.ID),
	)
}
