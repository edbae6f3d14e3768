package printer

import "k8s.io/apimachinery/pkg/runtime"

// Content returns an object as a map. For an unstructured object that is the object's
// own map.
func Content(obj runtime.Object) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
}
