package wire_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/wire"
)

// TestWithKinds checks that claims without a kind get one, and that the object itself
// does not change.
func TestWithKinds(t *testing.T) {
	claim := metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
	other := metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Other"}
	without := []corev1.PersistentVolumeClaim{{TypeMeta: other}, {}}
	with := []corev1.PersistentVolumeClaim{{TypeMeta: other}, {TypeMeta: claim}}
	free := func(apiVersion string, claims ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": "StatefulSet", "spec": map[string]any{"volumeClaimTemplates": claims},
		}}
	}
	for _, c := range []struct{ obj, want runtime.Object }{
		{
			&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: without}},
			&appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{VolumeClaimTemplates: with}},
		},
		{
			&appsv1beta1.StatefulSet{Spec: appsv1beta1.StatefulSetSpec{VolumeClaimTemplates: without}},
			&appsv1beta1.StatefulSet{Spec: appsv1beta1.StatefulSetSpec{VolumeClaimTemplates: with}},
		},
		{
			&appsv1beta2.StatefulSet{Spec: appsv1beta2.StatefulSetSpec{VolumeClaimTemplates: without}},
			&appsv1beta2.StatefulSet{Spec: appsv1beta2.StatefulSetSpec{VolumeClaimTemplates: with}},
		},
		{&appsv1.StatefulSet{}, &appsv1.StatefulSet{}},
		{
			free("apps/v1", map[string]any{"metadata": map[string]any{}}, "none", map[string]any{"kind": "Other"}),
			free("apps/v1", map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{}},
				"none", map[string]any{"kind": "Other"}),
		},
		{free("apps/v1"), free("apps/v1")},
		{free("example.com/v1", map[string]any{}), free("example.com/v1", map[string]any{})},
		{&corev1.Pod{}, &corev1.Pod{}},
	} {
		before := c.obj.DeepCopyObject()
		if diff := cmp.Diff(c.want, wire.WithKinds(c.obj)); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c.obj, diff)
		}
		if diff := cmp.Diff(before, c.obj); diff != "" {
			t.Errorf("the object was changed:\n%s", diff)
		}
	}
}
