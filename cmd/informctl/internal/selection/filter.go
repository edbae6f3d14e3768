package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// Filter selects objects of a scope.
type Filter struct {
	Namespace string // "" means all
	Labels    labels.Selector
	Fields    []Requirement
	indexes   []string // NAME=VALUE, all must match
	names     []string // empty means all
}

// IsWithin reports whether the namespace of an object passes. As in kubectl, a namespace
// selects among the objects that have one.
func (f Filter) IsWithin(namespace string) bool {
	return f.Namespace == "" || namespace == "" || namespace == f.Namespace
}

// keys returns the keys of the scope's objects that pass, without decoding objects.
func (f Filter) keys(v *source.View) ([]string, error) {
	keys, err := f.candidates(v)
	if err != nil {
		return nil, err
	}
	v.Search.Keys += len(keys)
	keys = slices.DeleteFunc(keys, func(key string) bool {
		i := source.NewItem(v, key)
		return !f.IsWithin(i.Namespace) ||
			len(f.names) > 0 && !slices.Contains(f.names, i.Name) ||
			slices.ContainsFunc(f.Fields, func(r Requirement) bool { return r.Excludes(i.Namespace, i.Name) })
	})
	if len(keys) == 0 || f.Labels == nil || f.Labels.Empty() {
		return keys, nil
	}
	if len(keys) < v.Info.Objects/8 {
		v.Search.Labels = "these"
		return v.Among(keys, f.Labels)
	}
	v.Search.Labels = "all"
	labelled, err := v.Keys(store.Query{Selector: f.Labels})
	if err != nil {
		return nil, err
	}
	return intersect(keys, labelled), nil
}

// candidates returns the sorted keys that remain after using indexes: the indexes that
// the user named, and those that fit the other conditions.
func (f Filter) candidates(v *source.View) ([]string, error) {
	if len(f.indexes) == 0 && f.Namespace != "" && len(f.names) > 0 {
		return f.named(v)
	}
	lookups := f.fitting(v)
	fitting := len(lookups)
	for _, spec := range f.indexes {
		name, value, ok := findIndex(v, spec)
		if !ok {
			return nil, fmt.Errorf("%s has no index %q; there are %s%s", v.Info.Scope, indexName(spec), indexNames(v, spec), instead(spec))
		}
		if !slices.ContainsFunc(v.Info.Indexes, func(i store.IndexInfo) bool { return i.Name == name && mayLookUp(v, i) }) {
			return nil, fmt.Errorf("%s: index %q may contain values of Secrets, which --show-secrets is for", v.Info.Scope, name)
		}
		lookups = append(lookups, lookup{index: name, value: value})
	}
	var keys []string
	used := 0
	for i, l := range lookups {
		values := []string{l.value}
		if l.orNone {
			values = append(values, "")
		}
		found, err := v.Keys(store.Query{Index: l.index, Values: values})
		if i < fitting && errors.Is(err, store.ErrNoIndex) {
			continue // made after the moment of the view; what it is for is tested again
		}
		if err != nil {
			return nil, err
		}
		v.Search.By = append(v.Search.By, l.index+"="+l.value)
		if used++; used > 1 {
			found = intersect(keys, found)
		}
		keys = found
	}
	if used == 0 {
		return v.Keys(store.Query{})
	}
	return keys, nil
}

// lookup is one value of an index.
type lookup struct {
	index, value string
	orNone       bool // or ""
}

// fitting returns the index lookups that contain all objects that can pass. It identifies
// an index by its identity.
func (f Filter) fitting(v *source.View) (out []lookup) {
	try := func(idx index.Index, value string, orNone bool) {
		l := lookup{idx.Name, value, orNone}
		if !slices.Contains(out, l) && slices.ContainsFunc(v.Info.Indexes, func(i store.IndexInfo) bool {
			return i.Name == idx.Name && i.Identity == idx.Identity() && mayLookUp(v, i)
		}) {
			out = append(out, l)
		}
	}
	for _, r := range f.Fields {
		if _, ok := r.label(v.Info.Scope.Resource); ok {
			continue // an index has the values of the path
		}
		if r.equal && r.value != "" {
			try(r.Index, r.value, false)
			if r.name() == "spec.nodeName" && v.Info.Scope.Resource == "pods" {
				try(index.NodeName(), r.value, false)
			}
		}
		if r.equal && r.name() == "metadata.namespace" {
			try(index.Namespace(), r.value, false)
		}
	}
	if f.Labels != nil {
		requirements, _ := f.Labels.Requirements()
		for _, r := range requirements {
			if values := r.ValuesUnsorted(); len(values) == 1 && slices.Contains(
				[]selection.Operator{selection.Equals, selection.DoubleEquals, selection.In}, r.Operator()) {
				try(index.Label(r.Key()), values[0], false)
			}
		}
	}
	if f.Namespace != "" {
		try(index.Namespace(), f.Namespace, true)
	}
	return out
}

// mayLookUp reports whether the values of an index may be asked for: those of Secrets may
// be hidden.
func mayLookUp(v *source.View, i store.IndexInfo) bool {
	return v.ShowSecrets || !v.Info.Scope.IsSecret() || secret.ShowsIndex(i)
}

// named returns those of the named keys that exist.
func (f Filter) named(v *source.View) (keys []string, err error) {
	if keys, err = v.KeysOf(f.Namespace, f.names); err != nil {
		return nil, err
	}
	return v.Among(keys, labels.Everything())
}

// missing returns the names that no scope has, in the form used in messages, whatever the
// other conditions are. found contains names that exist; missing adds the others that
// exist.
func (f Filter) missing(views []*source.View, found map[string]bool) (out []string, err error) {
	for _, v := range views {
		f = Filter{Namespace: f.Namespace, names: slices.DeleteFunc(slices.Clone(f.names), func(name string) bool { return found[name] })}
		if len(f.names) == 0 {
			return nil, nil
		}
		keys, err := f.candidates(v)
		if err == nil {
			keys, _, _, err = Latest(v, keys)
		}
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			found[source.NewItem(v, key).Name] = true
		}
	}
	for _, name := range f.names {
		if found[name] {
			continue
		}
		found[name] = true // each name is returned once
		out = append(out, fmt.Sprintf("%s %q", views[0].Info.Scope.Resource, name))
	}
	return out, nil
}

// findIndex splits NAME=VALUE at the longest index name of the scope, because names and
// values may contain "=".
func findIndex(v *source.View, spec string) (name, value string, ok bool) {
	for _, idx := range v.Info.Indexes {
		rest, is := strings.CutPrefix(spec, idx.Name+"=")
		if is && (!ok || len(idx.Name) > len(name)) {
			name, value, ok = idx.Name, rest, true
		}
	}
	return name, value, ok
}

func hasIndexes(v *source.View, specs []string) bool {
	for _, spec := range specs {
		if _, _, ok := findIndex(v, spec); !ok {
			return false
		}
	}
	return true
}

// indexNames returns the names of indexes, those that are close to NAME=VALUE of many.
func indexNames(v *source.View, spec string) string {
	names := make([]string, 0, len(v.Info.Indexes))
	for _, idx := range v.Info.Indexes {
		names = append(names, idx.Name)
	}
	if len(names) == 0 {
		return "none"
	}
	text, _ := cmdutil.Listed(indexName(spec), names)
	return text
}

// indexName returns the probable index name in NAME=VALUE.
func indexName(spec string) string {
	name, _, _ := strings.Cut(spec, "=")
	return name
}

// instead returns what a user can do without the index of NAME=VALUE, "" if its name is
// none that run makes.
func instead(spec string) string {
	name, value, _ := strings.Cut(spec, "=")
	if _, err := index.Parse(name); err != nil {
		return ""
	}
	makes := fmt.Sprintf("; informctl run --index %s makes it", name)
	if key, ok := strings.CutPrefix(name, "label:"); ok {
		return fmt.Sprintf("%s, and -l %s=%s needs none", makes, key, value)
	}
	if path, ok := strings.CutPrefix(name, "field:"); ok {
		return fmt.Sprintf("%s, and --field-selector %s=%s needs none", makes, path, value)
	}
	return makes
}

// intersect returns the common elements of two sorted lists, in the memory of the first.
func intersect(a, b []string) []string {
	return slices.DeleteFunc(a, func(key string) bool {
		_, found := slices.BinarySearch(b, key)
		return !found
	})
}
