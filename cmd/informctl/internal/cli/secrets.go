package cli

import "k8s.io/apimachinery/pkg/runtime"

// contentOf returns an object as a map, which is the object's own where it is one.
func contentOf(obj runtime.Object) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}
