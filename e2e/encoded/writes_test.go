package encoded_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// newPod returns a pod with a finalizer.
func newPod(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "finalizers": []any{"example.com/a"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
	}}
}

// write is a write of a pod: a patch, or a deletion if it has no body.
type write struct {
	name         string
	kind         types.PatchType
	body         string
	subresources []string
}

// writes are the kinds of writes after which a pod with a finalizer still exists.
var writes = []write{
	{name: "patch", kind: types.StrategicMergePatchType, body: `{"metadata": {"labels": {"patched": "", "b": "c"}}}`},
	{name: "status", kind: types.MergePatchType, subresources: []string{"status"}, body: `{"status": {
		"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "startTime": "2026-01-01T00:00:00Z",
		"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`},
	{name: "apply", kind: types.ApplyYAMLPatchType, body: `{"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {"applied": "é"}}}`},
	{name: "deletion with a finalizer"},
}

func (w *world) write(t *testing.T, pod string, x write) {
	t.Helper()
	client := w.client(w.resourceOf(t, podKind))
	var err error
	if x.body == "" {
		err = client.Delete(t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	} else {
		_, err = client.Patch(t.Context(), pod, x.kind, []byte(x.body), metav1.PatchOptions{FieldManager: "encoded"}, x.subresources...)
	}
	if err != nil {
		t.Fatalf("%s: %v", x.name, err)
	}
}

// removeFinalizer removes the finalizer of a deleted pod, which ends it.
func (w *world) removeFinalizer(t *testing.T, pod string) {
	t.Helper()
	w.write(t, pod, write{name: "remove the finalizer", kind: types.MergePatchType, body: `{"metadata": {"finalizers": null}}`})
}
