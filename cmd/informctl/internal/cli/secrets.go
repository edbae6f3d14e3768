package cli

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// redacted stands for each value of a Secret.
const redacted = "REDACTED"

// redact returns a Secret without its values: those of data and stringData, and
// what kubectl apply left of them in an annotation. Other objects are returned as
// they are. obj may be changed.
func redact(scope store.Scope, obj runtime.Object) (runtime.Object, error) {
	kind := obj.GetObjectKind().GroupVersionKind()
	if (kind.Group != "" || kind.Kind != "Secret") && !scope.IsSecret() {
		return obj, nil
	}
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		if _, applied := m.Annotations[corev1.LastAppliedConfigAnnotation]; applied {
			m.Annotations[corev1.LastAppliedConfigAnnotation] = redacted
		}
		return m, nil
	}
	content, err := contentOf(obj)
	if err != nil {
		return nil, err
	}
	metadata, _ := content["metadata"].(map[string]any)
	for _, field := range []string{"data", "stringData"} {
		if content[field] != nil {
			content[field] = blacken(content[field])
		}
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok && annotations[corev1.LastAppliedConfigAnnotation] != nil {
		annotations[corev1.LastAppliedConfigAnnotation] = redacted
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// blacken keeps the keys of a map, and of anything else nothing.
func blacken(v any) any {
	values, ok := v.(map[string]any)
	if !ok {
		return redacted
	}
	for key := range values {
		values[key] = redacted
	}
	return values
}

// contentOf returns an object as a map, which is the object's own where it is one.
func contentOf(obj runtime.Object) (map[string]any, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return u.UnstructuredContent(), nil
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}
