package secret_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// TestListsInLists checks that a list in a list is redacted.
func TestListsInLists(t *testing.T) {
	s := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"k": "aHVudGVy"}}
	for name, inner := range map[string]map[string]any{
		"SecretList": {"apiVersion": "v1", "kind": "SecretList", "items": []any{s}},
		"List":       {"apiVersion": "v1", "kind": "List", "items": []any{s}},
	} {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{inner}}}
		isHidden(t, name, obj)
	}
}

// TestListNotDecoded checks that a Secret in a list whose elements are not decoded is not
// shown.
func TestListNotDecoded(t *testing.T) {
	raw := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"k":"aHVudGVy"}}`)
	isHidden(t, "typed List", &corev1.List{Items: []runtime.RawExtension{{Raw: raw}}})
}

func isHidden(t *testing.T, name string, obj runtime.Object) {
	t.Helper()
	if !secret.Is(store.Scope{}, obj) {
		t.Errorf("%s: a Secret in it is not found", name)
		return
	}
	out, err := secret.Redact(obj)
	if err != nil {
		return
	}
	b, _ := json.Marshal(out)
	if strings.Contains(string(b), "aHVudGVy") {
		t.Errorf("%s: shown: %s", name, b)
	}
}
