package selection

import (
	"cmp"
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// Several scopes may hold objects of one resource: namespaces, selectors, forms. The
// latest of those that hold or cover an object has its state, or says that it is deleted.
// One of metadata has the state of no object that another one holds whole.

// LinkOverlaps gives each view the views of the same collection that are later, and one
// of metadata those with whole objects, too.
func LinkOverlaps(views []*source.View) {
	views = slices.SortedFunc(slices.Values(views), func(a, b *source.View) int { return compareAge(b, a) })
	for i, v := range views {
		for n, w := range views {
			switch {
			case w.Info.Scope.Resource != v.Info.Scope.Resource || w.Info.Scope.Cluster != v.Info.Scope.Cluster:
			case n < i:
				v.Later = append(v.Later, w)
			case !v.IsWhole() && w.IsWhole():
				v.Whole = append(v.Whole, w)
			}
		}
	}
}

// compareAge orders views by their resource versions, those without one first. No two are
// equal.
func compareAge(a, b *source.View) int {
	isKnown := func(v *source.View) int {
		if _, err := resourceversion.CompareResourceVersion(v.Info.Checkpoint.RV, v.Info.Checkpoint.RV); err != nil {
			return 0
		}
		return 1
	}
	order, err := resourceversion.CompareResourceVersion(a.Info.Checkpoint.RV, b.Info.Checkpoint.RV)
	if err != nil {
		order = 0
	}
	return cmp.Or(cmp.Compare(isKnown(a), isKnown(b)), order, cmp.Compare(b.Info.ID, a.Info.ID))
}

// hasFieldSelector reports whether it takes whole objects to know what a scope covers.
func hasFieldSelector(info store.Info) bool { return info.Scope.FieldSelector != "" }

// Latest splits sorted keys of a scope into those whose state here is the latest, those
// that another scope holds, and those that a later scope covers and no longer holds.
func Latest(v *source.View, keys []string) (here, held, gone []string, err error) {
	here = keys
	for _, later := range v.Later {
		covered := inNamespace(v, later.Info.Scope.Namespace, here)
		if len(covered) == 0 {
			continue
		}
		there, err := holds(later, covered)
		if errors.Is(err, store.ErrNoKey) {
			continue // opening it for its own objects reports that
		}
		if err != nil {
			return nil, nil, nil, err
		}
		covered, err = coveredBy(v, later, without(covered, there))
		if err != nil {
			return nil, nil, nil, err
		}
		if !later.IsWhole() && v.IsWhole() {
			there = nil // of which it has less
		}
		held, gone = append(held, there...), append(gone, covered...)
		here = without(without(here, there), covered)
	}
	for _, whole := range v.Whole {
		there, err := holds(whole, inNamespace(v, whole.Info.Scope.Namespace, here))
		if err == nil {
			there, _, _, err = Latest(whole, there)
		}
		if errors.Is(err, store.ErrNoKey) {
			continue // as above
		}
		if err != nil {
			return nil, nil, nil, err
		}
		held, here = append(held, there...), without(here, there)
	}
	return here, held, gone, nil
}

func inNamespace(v *source.View, namespace string, keys []string) []string {
	if namespace == "" {
		return slices.Clone(keys)
	}
	var out []string
	for _, key := range keys {
		if source.NewItem(v, key).Namespace == namespace {
			out = append(out, key)
		}
	}
	return out
}

// holds returns those of the sorted keys that exist.
func holds(v *source.View, keys []string) ([]string, error) {
	if len(keys) < v.Info.Objects/8 {
		return v.Among(keys, labels.Everything())
	}
	all, err := v.Keys(store.Query{})
	if err != nil {
		return nil, err
	}
	return intersect(slices.Clone(keys), all), nil
}

// without returns the sorted keys that are not among others, which are sorted, too.
func without(keys, others []string) []string {
	if len(others) == 0 {
		return keys
	}
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, found := slices.BinarySearch(others, key)
		return found
	})
}

// coveredBy returns those of the keys in a later scope's namespace that it would hold if
// they were as they are here. An object that may have been changed behind its checkpoint
// is not among them, and neither is one that lacks a field of its selector, where the
// server may have a default.
func coveredBy(v, later *source.View, keys []string) ([]string, error) {
	selector, err := labels.Parse(later.Info.Scope.LabelSelector)
	if err != nil || later.Info.Checkpoint.RV == "" || later.Info.Checkpoint.RV == v.Info.Checkpoint.RV {
		return nil, nil //nolint:nilerr // it cannot be said what the scope covers
	}
	fields, err := ParseFieldSelector(later.Info.Scope.FieldSelector)
	if err != nil {
		return nil, nil //nolint:nilerr // as above
	}
	keys = slices.DeleteFunc(keys, func(key string) bool {
		i := source.NewItem(v, key)
		return slices.ContainsFunc(fields, func(r Requirement) bool { return r.Excludes(i.Namespace, i.Name) })
	})
	if len(keys) > 0 && !selector.Empty() {
		if keys, err = v.Among(keys, selector); err != nil {
			return nil, err
		}
	}
	fields = slices.DeleteFunc(fields, Requirement.onKey)
	depth := source.Header
	if len(fields) > 0 {
		depth = source.Record
	}
	var out []string
	for part, err := range source.InParts(source.AppendItems(nil, v, keys), depth) {
		if err != nil {
			return nil, err
		}
		for i, e := range part.Objects {
			if source.IsDeleted(e) {
				continue
			}
			obj, err := v.Reader.Decode(e)
			if err != nil {
				return nil, part.Items[i].Wrap(err)
			}
			if isWithin(obj, fields, later.Info.Checkpoint.RV) {
				out = append(out, part.Items[i].Key())
			}
		}
	}
	return out, nil
}

// isWithin reports whether an object certainly has the fields, in a state that was there
// at a resource version.
func isWithin(obj runtime.Object, fields []Requirement, rv string) bool {
	m, err := meta.Accessor(obj)
	if err != nil {
		return false
	}
	if order, err := resourceversion.CompareResourceVersion(m.GetResourceVersion(), rv); err != nil || order > 0 {
		return false
	}
	return !slices.ContainsFunc(fields, func(r Requirement) bool {
		values, err := r.values(obj)
		return err != nil || len(values) == 0 || slices.Contains(values, r.value) != r.equal
	})
}

// WithoutNewerEvents removes the events that are there as core's, too, which kubectl
// prints.
func WithoutNewerEvents(items []source.Item) []source.Item {
	type key struct{ cluster, namespace, name string }
	keyOf := func(i source.Item) key { return key{i.View.Info.Scope.Cluster, i.Namespace, i.Name} }
	core := map[key]bool{}
	for _, i := range items {
		if i.View.Info.Scope.Resource == resources.CoreEvents {
			core[keyOf(i)] = true
		}
	}
	if len(core) == 0 {
		return items
	}
	return slices.DeleteFunc(items, func(i source.Item) bool {
		return i.View.Info.Scope.Resource == resources.NewerEvents && core[keyOf(i)]
	})
}
