package secret_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/secret"
)

// TestRedact checks that no value remains in any form, that names and labels remain, and
// that the object itself does not change.
func TestRedact(t *testing.T) {
	annotations := func() map[string]string {
		return map[string]string{corev1.LastAppliedConfigAnnotation: "hunter2", "a": "b"}
	}
	hidden := map[string]any{corev1.LastAppliedConfigAnnotation: secret.Redacted, "a": "b"}
	free := func(data any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"kind": "Secret", "data": data, "stringData": map[string]any{},
			"metadata": map[string]any{"name": "s", "annotations": map[string]any{
				corev1.LastAppliedConfigAnnotation: "hunter2", "a": "b",
			}},
		}}
	}
	for name, c := range map[string]struct {
		obj  runtime.Object
		want map[string]any
	}{
		"typed": {
			&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: annotations()},
				Data:       map[string][]byte{"x": []byte("hunter2")}, StringData: map[string]string{"y": "hunter2"},
			},
			map[string]any{
				"metadata": map[string]any{"name": "s", "annotations": hidden},
				"data":     map[string]any{"x": secret.Redacted}, "stringData": map[string]any{"y": secret.Redacted},
			},
		},
		"unstructured": {free(map[string]any{"x": "hunter2"}), map[string]any{
			"kind": "Secret", "metadata": map[string]any{"name": "s", "annotations": hidden},
			"data": map[string]any{"x": secret.Redacted}, "stringData": map[string]any{},
		}},
		"of a wrong shape": {free([]any{"hunter2"}), map[string]any{
			"kind": "Secret", "metadata": map[string]any{"name": "s", "annotations": hidden},
			"data": secret.Redacted, "stringData": map[string]any{},
		}},
		"metadata": {
			&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: annotations()}},
			map[string]any{"metadata": map[string]any{"name": "s", "annotations": hidden}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.obj.DeepCopyObject()
			shown, err := secret.Redact(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shown)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.obj); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}
