package resources_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/store"
)

// TestMeant checks which resources a name means where several groups have it.
func TestMeant(t *testing.T) {
	var held []store.Info
	for _, s := range []store.Scope{
		{Resource: "services", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}},
		{Resource: "services", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Service"}, Namespace: "shop"},
		{Resource: "services.serving.knative.dev", Kind: schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}},
		{Resource: "pods.metrics.k8s.io", Kind: schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}},
		{Resource: "clusters.a.example.com", Kind: schema.GroupVersionKind{Group: "a.example.com", Version: "v1", Kind: "Cluster"}},
		{Resource: "clusters.b.example.com", Kind: schema.GroupVersionKind{Group: "b.example.com", Version: "v1", Kind: "Cluster"}},
		{Resource: "events", Kind: schema.GroupVersionKind{Version: "v1", Kind: "Event"}},
		{Resource: "events.events.k8s.io", Kind: schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}},
	} {
		held = append(held, store.Info{ID: s.ID(), Scope: s})
	}
	core := []string{"services", "services"}
	for name, want := range map[string][]string{
		"services":                        core,
		"svc":                             core,
		"service":                         core,
		"Services.v1":                     core,
		"services.serving.knative.dev":    {"services.serving.knative.dev"},
		"services.v1.serving.knative.dev": {"services.serving.knative.dev"},
		"pods":                            {"pods.metrics.k8s.io"},
		"clusters":                        {"clusters.a.example.com", "clusters.b.example.com"},
		"clusters.b.example.com":          {"clusters.b.example.com"},
		"events":                          {"events", "events.events.k8s.io"},
		"deployments":                     nil,
	} {
		var got []string
		for _, info := range resources.Meant(held, name) {
			got = append(got, info.Scope.Resource)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
