package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// everything is what a server serves, as run --all sees it.
type everything struct {
	followed []*meta.RESTMapping // each resource in one version
	left     []leftOut
	served   sets.Set[string]             // all resources, also those that are left out
	asked    sets.Set[string]             // served of the answer before
	unknown  map[schema.GroupVersion]bool // their resources could not be named
}

// leftOut is a resource that is not followed.
type leftOut struct{ resource, because string }

// discoverAll asks a server for all of its resources.
func discoverAll(d discovery.DiscoveryInterface) (*everything, error) {
	all := &everything{served: sets.New[string](), unknown: map[schema.GroupVersion]bool{}}
	lists, err := discovery.ServerPreferredResources(d)
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &failed) {
		for gv, err := range failed.Groups {
			all.unknown[gv] = true
			all.left = append(all.left, leftOut{gv.String(), "the server does not say what it is: " + oneLine(err)})
		}
	} else if err != nil {
		return nil, fmt.Errorf("ask for the server's resources: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("ask for the server's resources: %w", err)
		}
		for _, r := range list.APIResources {
			m := &meta.RESTMapping{Resource: gv.WithResource(r.Name), GroupVersionKind: gv.WithKind(r.Kind), Scope: meta.RESTScopeRoot}
			if r.Namespaced {
				m.Scope = meta.RESTScopeNamespace
			}
			name := nameOf(m)
			all.served.Insert(name)
			if missing := sets.New("list", "watch").Difference(sets.New(r.Verbs...)); len(missing) > 0 {
				all.left = append(all.left, leftOut{name, "the server cannot " + strings.Join(sets.List(missing), " and ") + " it"})
				continue
			}
			all.followed = append(all.followed, m)
		}
	}
	if all.served.HasAll(coreEvents, newerEvents) {
		before := len(all.followed)
		all.followed = slices.DeleteFunc(all.followed, func(m *meta.RESTMapping) bool { return nameOf(m) == newerEvents })
		if len(all.followed) < before {
			all.left = append(all.left, leftOut{newerEvents, "the same objects are followed as " + coreEvents})
		}
	}
	slices.SortFunc(all.followed, func(a, b *meta.RESTMapping) int { return strings.Compare(nameOf(a), nameOf(b)) })
	slices.SortFunc(all.left, func(a, b leftOut) int { return strings.Compare(a.resource, b.resource) })
	return all, nil
}

// isUnknown reports whether the server could not name all resources of a group.
func (e *everything) isUnknown(group string) bool {
	for gv := range e.unknown {
		if gv.Group == group {
			return true
		}
	}
	return false
}

func nameOf(m *meta.RESTMapping) string { return m.Resource.GroupResource().String() }

// excluded returns the resources that a user excludes. One that names its group may not
// be there yet.
func excluded(mapper meta.RESTMapper, names []string) (sets.Set[string], error) {
	out := sets.New[string]()
	for _, name := range names {
		m, err := mappingOf(mapper, name)
		switch {
		case err == nil:
			out.Insert(nameOf(m))
		case !meta.IsNoMatchError(err):
			return nil, err
		case strings.Contains(name, "."):
			out.Insert(name)
		default:
			return nil, fmt.Errorf("--exclude: the server has no resource %q; one that comes later is named with its group", name)
		}
	}
	return out, nil
}

// customResource returns the resource that a definition has established, in the version
// that the server prefers, nil if it serves none.
func customResource(crd *unstructured.Unstructured) *meta.RESTMapping {
	spec, _, _ := unstructured.NestedMap(crd.Object, "spec")
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(spec, fields...)
		return s
	}
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	isEstablished := slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
	var served []string
	versions, _, _ := unstructured.NestedSlice(spec, "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		if name, ok := v["name"].(string); ok && v["served"] == true {
			served = append(served, name)
		}
	}
	if !isEstablished || len(served) == 0 {
		return nil
	}
	gv := schema.GroupVersion{Group: text("group"), Version: slices.MaxFunc(served, apiversion.CompareKubeAwareVersionStrings)}
	m := &meta.RESTMapping{Resource: gv.WithResource(text("names", "plural")), GroupVersionKind: gv.WithKind(text("names", "kind")), Scope: meta.RESTScopeRoot}
	if text("scope") == "Namespaced" {
		m.Scope = meta.RESTScopeNamespace
	}
	return m
}
