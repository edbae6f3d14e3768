// Package secret decides what is shown of a Secret.
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

// Redacted stands for each value of a Secret.
const Redacted = "REDACTED"

// Is reports whether an object of a scope is a Secret, in any form.
func Is(scope store.Scope, obj runtime.Object) bool {
	kind := obj.GetObjectKind().GroupVersionKind()
	return kind.Group == "" && kind.Kind == "Secret" || scope.IsSecret()
}

// Redact returns a Secret without its values: those of data and stringData, and what
// kubectl apply left of them in an annotation. It is an unstructured object unless it
// is metadata. obj is not changed, but may share the rest. The error quotes nothing.
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

// redact copies the maps in which it changes something: content may be an object of
// others.
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
