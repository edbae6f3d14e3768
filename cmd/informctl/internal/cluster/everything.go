package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
)

// Everything is what a server serves, as run --all sees it.
type Everything struct {
	Followed []*meta.RESTMapping // each resource in one version
	Left     []LeftOut
	Served   sets.Set[string]             // all resources, also those that are left out
	Asked    sets.Set[string]             // Served of the answer before
	Unknown  map[schema.GroupVersion]bool // their resources could not be named
}

// LeftOut is a resource that is not followed.
type LeftOut struct{ Resource, Because string }

// DiscoverAll asks a server for all of its resources.
func DiscoverAll(ctx context.Context, d discovery.DiscoveryInterfaceWithContext) (*Everything, error) {
	all := &Everything{Served: sets.New[string](), Unknown: map[schema.GroupVersion]bool{}}
	lists, err := discovery.ServerPreferredResourcesWithContext(unlogged(ctx), d)
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); errors.As(err, &failed) {
		for gv, err := range failed.Groups {
			all.Unknown[gv] = true
			all.Left = append(all.Left, LeftOut{gv.String(), "the server does not say what it is: " + cmdutil.OneLine(err)})
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
			name := NameOf(m)
			all.Served.Insert(name)
			if why := cannotFollow(r); why != "" {
				all.Left = append(all.Left, LeftOut{name, why})
				continue
			}
			all.Followed = append(all.Followed, m)
		}
	}
	if all.Served.HasAll(resources.CoreEvents, resources.NewerEvents) {
		before := len(all.Followed)
		all.Followed = slices.DeleteFunc(all.Followed, func(m *meta.RESTMapping) bool { return NameOf(m) == resources.NewerEvents })
		if len(all.Followed) < before {
			all.Left = append(all.Left, LeftOut{resources.NewerEvents, "the same objects are followed as " + resources.CoreEvents})
		}
	}
	slices.SortFunc(all.Followed, func(a, b *meta.RESTMapping) int { return strings.Compare(NameOf(a), NameOf(b)) })
	slices.SortFunc(all.Left, func(a, b LeftOut) int { return strings.Compare(a.Resource, b.Resource) })
	return all, nil
}

// cannotFollow says which of the verbs that following takes the server lacks for a
// resource, "" if it has them.
func cannotFollow(r metav1.APIResource) string {
	missing := sets.New("list", "watch").Difference(sets.New(r.Verbs...))
	if len(missing) == 0 {
		return ""
	}
	return "the server cannot " + strings.Join(sets.List(missing), " and ") + " it"
}

// IsUnknown reports whether the server could not name all resources of a group.
func (e *Everything) IsUnknown(group string) bool {
	for gv := range e.Unknown {
		if gv.Group == group {
			return true
		}
	}
	return false
}

// CustomResource returns the resource that a definition has established, in the version
// that the server prefers, nil if it serves none.
func CustomResource(crd *unstructured.Unstructured) *meta.RESTMapping {
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

// discoveryPatience is how long a shell waits for the server's resources.
const discoveryPatience = 3 * time.Second

// Served returns what the server of the kubeconfig serves, and its address. It waits for
// the server no longer than a user waits for a shell.
func Served(ctx context.Context, kube *genericclioptions.ConfigFlags) (all *Everything, host string, err error) {
	config, err := kube.ToRESTConfig()
	if err == nil {
		err = namesCluster(kube, config)
	}
	if err != nil {
		return nil, "", err
	}
	config.Timeout = discoveryPatience
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	all, err = DiscoverAll(ctx, d)
	return all, config.Host, err
}
