package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
)

// NameOf returns the name of a resource: RESOURCE or RESOURCE.GROUP.
func NameOf(m *meta.RESTMapping) string { return m.Resource.GroupResource().String() }

// MappingsOf resolves the resources that a user named, each only once. Both d and mapper
// are of one server.
func MappingsOf(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, mapper meta.RESTMapper, names []string) ([]*meta.RESTMapping, error) {
	var out []*meta.RESTMapping
	seen := map[schema.GroupVersionResource]bool{}
	for _, name := range names {
		m, err := MappingOf(mapper, name)
		if meta.IsNoMatchError(err) {
			if gv, cause := unsaid(ctx, d, name); cause != nil {
				return nil, fmt.Errorf("the server did not say what %s has: %w", gv, cause)
			}
			text, _ := cmdutil.Listed(name, resourcesOf(ctx, d))
			return nil, fmt.Errorf("the server has no resource %q; it has %s", name, text)
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

// unsaid returns why the server could not name the resources of the group in a name, as
// where the service of an aggregated API does not answer, nil if it could.
func unsaid(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, name string) (gv schema.GroupVersion, cause error) {
	_, err := discovery.ServerPreferredResourcesWithContext(unlogged(ctx), d)
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &failed) {
		full, short := schema.ParseResourceArg(name)
		for gv, cause := range failed.Groups {
			if gv.Group == short.Group || full != nil && gv == full.GroupVersion() {
				return gv, cause
			}
		}
	}
	return gv, nil
}

// resourcesOf returns the names of the resources that a server has, as far as it says,
// sorted: discovery gives them in no order.
func resourcesOf(ctx context.Context, d discovery.DiscoveryInterfaceWithContext) []string {
	lists, _ := discovery.ServerPreferredResourcesWithContext(unlogged(ctx), d)
	var names []string
	for _, list := range lists {
		gv, _ := schema.ParseGroupVersion(list.GroupVersion)
		for _, r := range list.APIResources {
			names = append(names, gv.WithResource(r.Name).GroupResource().String())
		}
	}
	slices.Sort(names)
	return names
}

// CheckVerbs returns an error that names the resources that cannot be listed and watched.
// One of which the server does not say what it can passes, and with once one that cannot
// be listed: it is listed a single time, and the server's refusal says more.
func CheckVerbs(ctx context.Context, d discovery.DiscoveryInterfaceWithContext, mappings []*meta.RESTMapping, once bool) error {
	var errs []error
	for _, m := range mappings {
		list, err := d.ServerResourcesForGroupVersionWithContext(unlogged(ctx), m.Resource.GroupVersion().String())
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if r.Name != m.Resource.Resource || len(r.Verbs) == 0 || once && !slices.Contains(r.Verbs, "list") {
				continue
			}
			if why := cannotFollow(r); why != "" {
				errs = append(errs, fmt.Errorf("%s: %s", NameOf(m), why))
			}
		}
	}
	return errors.Join(errs...)
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
