package wire

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// WithKinds returns an object whose inner objects have the apiVersion and kind that the
// server shows: protobuf has none, so the volumeClaimTemplates of a StatefulSet lack
// them, also where they were stored in another form. It does not change obj, which the
// result may share parts of.
func WithKinds(obj runtime.Object) runtime.Object {
	switch o := obj.(type) {
	case *appsv1.StatefulSet:
		if claims, ok := namedClaims(o.Spec.VolumeClaimTemplates); ok {
			copied := *o
			copied.Spec.VolumeClaimTemplates = claims
			return &copied
		}
	case *appsv1beta1.StatefulSet:
		if claims, ok := namedClaims(o.Spec.VolumeClaimTemplates); ok {
			copied := *o
			copied.Spec.VolumeClaimTemplates = claims
			return &copied
		}
	case *appsv1beta2.StatefulSet:
		if claims, ok := namedClaims(o.Spec.VolumeClaimTemplates); ok {
			copied := *o
			copied.Spec.VolumeClaimTemplates = claims
			return &copied
		}
	case *unstructured.Unstructured:
		return withKinds(o)
	}
	return obj
}

// withKinds does the same for an object that was stored from a Go type without one.
func withKinds(u *unstructured.Unstructured) *unstructured.Unstructured {
	kind := u.GroupVersionKind()
	spec, _ := u.Object["spec"].(map[string]any)
	claims, _ := spec["volumeClaimTemplates"].([]any)
	if kind.Group != appsv1.GroupName || kind.Kind != "StatefulSet" {
		return u
	}
	claims = slices.Clone(claims)
	for i := range claims {
		if claim, ok := claims[i].(map[string]any); ok && claim["kind"] == nil {
			claim = maps.Clone(claim)
			claim["apiVersion"], claim["kind"] = "v1", claimKind
			claims[i] = claim
		}
	}
	if len(claims) == 0 {
		return u
	}
	content := maps.Clone(u.Object)
	spec = maps.Clone(spec)
	spec["volumeClaimTemplates"], content["spec"] = claims, spec
	return &unstructured.Unstructured{Object: content}
}

const claimKind = "PersistentVolumeClaim"

// namedClaims returns a copy with all kinds. ok is false if none is missing.
func namedClaims(claims []corev1.PersistentVolumeClaim) (named []corev1.PersistentVolumeClaim, ok bool) {
	for i := range claims {
		if claims[i].Kind != "" {
			continue
		}
		if named == nil {
			named = slices.Clone(claims)
		}
		named[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(claimKind))
	}
	return named, named != nil
}
