package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NameOf returns the name of a resource: RESOURCE or RESOURCE.GROUP.
func NameOf(m *meta.RESTMapping) string { return m.Resource.GroupResource().String() }

// MappingsOf resolves the resources that a user named, each only once.
func MappingsOf(mapper meta.RESTMapper, names []string) ([]*meta.RESTMapping, error) {
	var out []*meta.RESTMapping
	seen := map[schema.GroupVersionResource]bool{}
	for _, name := range names {
		m, err := MappingOf(mapper, name)
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("the server has no resource %q", name)
		}
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", name, err)
		}
		if !seen[m.Resource] {
			seen[m.Resource] = true
			out = append(out, m)
		}
	}
	return out, nil
}

// MappingOf resolves RESOURCE[.VERSION][.GROUP], in plural, singular or short form, or
// KIND[.VERSION][.GROUP].
func MappingOf(mapper meta.RESTMapper, name string) (*meta.RESTMapping, error) {
	full, short := schema.ParseResourceArg(name)
	var gvk schema.GroupVersionKind
	if full != nil {
		gvk, _ = mapper.KindFor(*full)
	}
	if gvk.Empty() {
		gvk, _ = mapper.KindFor(short.WithVersion(""))
	}
	if !gvk.Empty() {
		return mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	kind, groupKind := schema.ParseKindArg(name)
	if kind != nil {
		if m, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			return m, nil
		}
	}
	return mapper.RESTMapping(groupKind)
}
