package restore

import (
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/internal/secret"
)

// manifest returns an object without the fields that the server sets.
func (o *options) manifest(s state) (runtime.Object, error) {
	obj, err := s.Load(s.entry)
	switch {
	case err != nil:
		return nil, s.Wrap(err)
	case obj == nil:
		return nil, fmt.Errorf("%s was deleted meanwhile", title(s.Item))
	case !s.View.IsWhole():
		return nil, fmt.Errorf("%s: only its metadata is stored", title(s.Item))
	case !o.selection.ShowSecrets && secret.Is(s.View.Info.Scope, obj):
		return nil, fmt.Errorf("%s is a Secret, which is printed with --show-secrets", title(s.Item))
	}
	content, err := printer.Content(obj)
	if err != nil {
		return nil, s.Wrap(err)
	}
	for _, field := range []string{
		"resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "selfLink",
		"deletionTimestamp", "deletionGracePeriodSeconds",
	} {
		unstructured.RemoveNestedField(content, "metadata", field)
	}
	if !o.status {
		delete(content, "status")
	}
	u := &unstructured.Unstructured{Object: content}
	finalizers := slices.DeleteFunc(u.GetFinalizers(), isOfDeletion)
	if len(finalizers) == 0 {
		finalizers = nil
	}
	u.SetFinalizers(finalizers)
	switch u.GroupVersionKind().GroupKind() {
	case batchv1.SchemeGroupVersion.WithKind("Job").GroupKind():
		withoutSelector(content)
	case corev1.SchemeGroupVersion.WithKind("Pod").GroupKind():
		// They are refused in a pod that is created: kubectl debug adds them.
		unstructured.RemoveNestedField(content, "spec", "ephemeralContainers")
	case corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind():
		// A claim that says so and is of another UID than its volume knows is lost.
		annotations := u.GetAnnotations()
		maps.DeleteFunc(annotations, func(name, _ string) bool {
			return name == "pv.kubernetes.io/bind-completed" || name == "pv.kubernetes.io/bound-by-controller"
		})
		if len(annotations) == 0 {
			annotations = nil
		}
		u.SetAnnotations(annotations)
	}
	return u, nil
}

// isOfDeletion reports whether a finalizer is one that a deletion sets.
func isOfDeletion(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

// withoutSelector removes the selector that the server has made of the UID of a Job, and
// rejects in another one.
func withoutSelector(job map[string]any) {
	if manual, _, _ := unstructured.NestedBool(job, "spec", "manualSelector"); manual {
		return
	}
	unstructured.RemoveNestedField(job, "spec", "selector")
	for _, label := range []string{batchv1.ControllerUidLabel, "controller-uid"} {
		unstructured.RemoveNestedField(job, "metadata", "labels", label)
		unstructured.RemoveNestedField(job, "spec", "template", "metadata", "labels", label)
	}
}
