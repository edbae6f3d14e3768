package cluster

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/store"
)

// Complete sets the fields of a scope that follow from the example. The error names the
// field that is wrong.
func Complete(s store.Scope, example runtime.Object) (store.Scope, error) {
	switch example.(type) {
	case *unstructured.Unstructured:
		s.Form = store.Unstructured
	case *metav1.PartialObjectMetadata:
		s.Form = store.Metadata
	default:
		s.Form = store.Typed
	}
	if s.Kind.Empty() {
		s.Kind = kindOf(example)
	}
	if s.Resource == "" && !s.Kind.Empty() {
		gvr, _ := meta.UnsafeGuessKindToResource(s.Kind)
		s.Resource = gvr.GroupResource().String()
	}
	return s.Canonical()
}

func kindOf(example runtime.Object) schema.GroupVersionKind {
	if gvk := example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(example); err == nil && len(kinds) > 0 {
		return kinds[0]
	}
	return schema.GroupVersionKind{}
}

// listedKind returns the kind of the listed objects, as far as it is known without a
// request. Examples of the dynamic and the metadata client's informers may have no kind.
// Then only group and version are set, which together with resource and form identify the
// stored objects. The name of their Go type would be wrong: no object has that kind.
func listedKind(example runtime.Object, gv schema.GroupVersion) schema.GroupVersionKind {
	switch example.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if gvk := example.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
			return gvk
		}
		return gv.WithKind("")
	}
	if gvk := kindOf(example); !gvk.Empty() {
		return gvk
	}
	return gv.WithKind(reflect.TypeOf(example).Elem().Name())
}
