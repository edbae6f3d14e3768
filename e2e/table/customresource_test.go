package table_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/informctl/informctl/table"
)

// testGroup is the group of the custom resources in testdata.
const testGroup = "test.informctl.example"

// TestCustomResources compares the tables of custom resources, whose columns are in their
// definitions, with those of the server.
func TestCustomResources(t *testing.T) {
	w := newWorld(t)
	w.load("testdata/*.yaml")
	for resource, kind := range map[string]string{"things": "Thing", "plainthings": "PlainThing"} {
		mapping := &meta.RESTMapping{
			Resource:         schema.GroupVersionResource{Group: testGroup, Version: "v1", Resource: resource},
			GroupVersionKind: schema.GroupVersionKind{Group: testGroup, Version: "v1", Kind: kind}, Scope: meta.RESTScopeRoot,
		}
		if kind == "PlainThing" {
			mapping.Scope = meta.RESTScopeNamespace
		}
		w.served(mapping.Resource)
		for name, content := range things() {
			u := &unstructured.Unstructured{Object: content}
			u.SetGroupVersionKind(mapping.GroupVersionKind)
			u.SetName(name)
			w.createIn(mapping, u)
		}
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, test := range []struct{ resource, version string }{{"things", "v1"}, {"things", "v2"}, {"plainthings", "v1"}} {
		t.Run(test.resource+"."+test.version, func(t *testing.T) {
			crd, err := w.client.Resource(crds).Get(t.Context(), test.resource+"."+testGroup, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			k, ok := table.OfDefinition(crd, test.version)
			if !ok {
				t.Fatal("the definition has no columns")
			}
			w.in(t).compare(schema.GroupVersionResource{Group: testGroup, Version: test.version, Resource: test.resource}, k)
		})
	}
}

// served blocks until the server serves a custom resource.
func (w *world) served(gvr schema.GroupVersionResource) {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := w.client.Resource(gvr).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		w.Fatalf("%s is not served: %v", gvr.Resource, err)
	}
}

// things returns the contents of custom resources by name.
func things() map[string]map[string]any {
	return map[string]map[string]any{
		"full": {
			"metadata": map[string]any{"labels": map[string]any{"example.com/a": "b"}},
			"spec": map[string]any{
				"text": "words", "list": []any{"a", "b"}, "map": map[string]any{"b": int64(1), "a": "x"},
				"integer": int64(7), "number": 2.5, "boolean": true, "date": "2026-01-01T00:00:00Z",
			},
			"status": map[string]any{"conditions": []any{
				map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Other", "status": "False"},
			}},
		},
		"empty": {},
		"odd": {
			"spec": map[string]any{
				"text": int64(3), "list": []any{}, "map": map[string]any{}, "integer": "7", "number": int64(3),
				"boolean": "true", "date": "yesterday",
			},
			"status": map[string]any{"conditions": []any{}},
		},
		"null": {"spec": map[string]any{"text": "", "list": []any{map[string]any{"a": int64(1)}}, "number": -0.5, "boolean": false, "date": ""}},
	}
}
