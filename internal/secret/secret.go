// Package secret defines which parts of a Secret may be shown.
package secret

import (
	"errors"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

// Redacted replaces each value of a Secret.
const Redacted = "REDACTED"

// Is reports whether an object of a scope is a Secret, in any form.
func Is(scope store.Scope, obj runtime.Object) bool {
	kind := obj.GetObjectKind().GroupVersionKind()
	return kind.Group == "" && kind.Kind == "Secret" || scope.IsSecret()
}

// Redact returns a Secret without its values: the values of data and stringData, and the
// copy of them that kubectl apply keeps in an annotation. The result is unstructured
// unless obj is metadata. Redact does not change obj, but the result may share parts of
// it. The error shows no content.
func Redact(obj runtime.Object) (runtime.Object, error) {
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		if _, applied := m.Annotations[corev1.LastAppliedConfigAnnotation]; applied {
			m = m.DeepCopy()
			m.Annotations[corev1.LastAppliedConfigAnnotation] = Redacted
		}
		return m, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, errors.New("a Secret cannot be read, so it is not shown")
	}
	return &unstructured.Unstructured{Object: redact(content)}, nil
}

// redact copies the maps that it changes, because other objects may share content.
func redact(content map[string]any) map[string]any {
	content = maps.Clone(content)
	for _, field := range []string{"data", "stringData"} {
		switch values := content[field].(type) {
		case nil:
		case map[string]any:
			hidden := make(map[string]any, len(values))
			for key := range values {
				hidden[key] = Redacted
			}
			content[field] = hidden
		default:
			content[field] = Redacted
		}
	}
	metadata, _ := content["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations[corev1.LastAppliedConfigAnnotation] != nil {
		annotations, metadata = maps.Clone(annotations), maps.Clone(metadata)
		annotations[corev1.LastAppliedConfigAnnotation] = Redacted
		metadata["annotations"], content["metadata"] = annotations, metadata
	}
	return content
}
