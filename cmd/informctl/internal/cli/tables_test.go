package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeTables makes a file of kinds whose tables differ: built-in ones, in the forms of
// the typed and the dynamic client, custom resources with their definition, and metadata.
func writeTables(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, runningPod(), failingPod())
	fill(t, db, corev1.SchemeGroupVersion.WithKind("Node"), "nodes", store.Typed, &corev1.Node{ObjectMeta: objectMeta("", "node-1", "")})
	quota := &corev1.ResourceQuota{ObjectMeta: objectMeta("a", "quota", "web"), Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10"), corev1.ResourceLimitsCPU: resource.MustParse("4")},
	}}
	fill(t, db, corev1.SchemeGroupVersion.WithKind("ResourceQuota"), "resourcequotas", store.Typed, quota)
	fill(t, db, resourcev1.SchemeGroupVersion.WithKind("ResourceClaimTemplate"), "resourceclaimtemplates.resource.k8s.io", store.Typed,
		&resourcev1.ResourceClaimTemplate{ObjectMeta: objectMeta("a", "gpu", "web")})
	fill(t, db, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", store.Metadata,
		&metav1.PartialObjectMetadata{ObjectMeta: objectMeta("a", "settings", "web")})
	fill(t, db, schema.GroupVersionKind{}, "deployments.apps", store.Unstructured, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"namespace": "a", "name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
		"spec":     map[string]any{"replicas": int64(3)},
		"status":   map[string]any{"readyReplicas": int64(2), "updatedReplicas": int64(3), "availableReplicas": int64(1)},
	}})
	definitions := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	fill(t, db, definitions, "customresourcedefinitions.apiextensions.k8s.io", store.Unstructured, gadgetDefinition())
	gadgets := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	fill(t, db, gadgets, "gadgets.example.com", store.Unstructured, gadget("a", "one", map[string]any{"phase": "Ready", "size": int64(3)}),
		gadget("b", "two", nil))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestColumnsOfCluster checks that a custom resource has the columns of its own cluster's
// definition: only the second cluster has the version.
func TestColumnsOfCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v2"} {
		definition := atVersion(gadgetDefinition())
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		versions[0].(map[string]any)["name"] = version
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		object := atVersion(gadget("a", "one", map[string]any{"phase": "Ready"}))
		object.SetAPIVersion("example.com/" + version)
		for resource, obj := range map[string]*unstructured.Unstructured{
			"customresourcedefinitions.apiextensions.k8s.io": definition, "gadgets.example.com": object,
		} {
			s := openScope(t, db, store.Scope{
				Cluster: "kube-system/of-" + version, Resource: resource, Form: store.Unstructured, Kind: obj.GroupVersionKind(),
			})
			load(t, s, "8", obj)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got := say(t.Context(), "query", "gadgets", "--db", path)
	if n := strings.Count(got.Out, "PHASE"); n != 2 || got.Code != 0 {
		t.Errorf("%d of two tables have the columns:\n%s%s", n, got.Out, got.Err)
	}
}

func runningPod() *corev1.Pod {
	p := pod("a", "web-1", "web")
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.0.0.1",
		ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}},
	}
	return p
}

func failingPod() *corev1.Pod {
	p := pod("b", "db-1", "db")
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "main", RestartCount: 12, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-5 * time.Minute))}},
	}}}
	return p
}

func gadgetDefinition() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "gadgets.example.com", "creationTimestamp": "2026-01-01T00:00:00Z"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names": map[string]any{
				"kind": "Gadget", "plural": "gadgets", "singular": "gadgetling", "shortNames": []any{"gd"}, "categories": []any{"all", "toys"},
			},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"additionalPrinterColumns": []any{
					map[string]any{"name": "Phase", "type": "string", "jsonPath": ".spec.phase"},
					map[string]any{"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": int64(1)},
					map[string]any{"name": "Made", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
				},
			}},
		},
	}}
}

func gadget(namespace, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"namespace": namespace, "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
		"spec":     spec,
	}}
}
