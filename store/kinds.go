package store

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SameButKind calls compare, and if that finds a difference, once more with obj as the
// other way of the API server has it. client-go removes apiVersion and kind from an
// object with a Go type that a watch brings, and not from one in a list, where a server
// may send them (of a custom resource it does, and of metadata in JSON): they are no
// difference. obj is as before afterwards.
func (s Scope) SameButKind(obj runtime.Object, compare func() (same bool, err error)) (same bool, err error) {
	same, err = compare()
	if _, isEncoded := obj.(*EncodedObject); err != nil || same || s.Form == Unstructured || isEncoded {
		return same, err
	}
	sent := s.Kind
	if s.Form == Metadata {
		sent = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	kind := obj.GetObjectKind()
	was := kind.GroupVersionKind()
	if was.Empty() {
		kind.SetGroupVersionKind(sent)
	} else {
		kind.SetGroupVersionKind(schema.GroupVersionKind{})
	}
	defer kind.SetGroupVersionKind(was)
	return compare()
}
