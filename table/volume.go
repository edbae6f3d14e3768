package table

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var persistentVolume = kindOf(persistentVolumeCells,
	always("Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass", "VolumeAttributesClass", "Reason", "Age"),
	wide("VolumeMode"))

func persistentVolumeCells(v *corev1.PersistentVolume, now time.Time) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	status := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		status = "Terminating"
	}
	return []any{
		v.Name, capacity(v.Spec.Capacity), accessModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy),
		status, claim, storageClassName(v.Annotations, &v.Spec.StorageClassName), pointed(v.Spec.VolumeAttributesClassName, unset),
		v.Status.Reason, age(v.CreationTimestamp, now), string(pointed(v.Spec.VolumeMode, unset)),
	}
}

var persistentVolumeClaim = kindOf(persistentVolumeClaimCells,
	always("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age"),
	wide("VolumeMode"))

func persistentVolumeClaimCells(c *corev1.PersistentVolumeClaim, now time.Time) []any {
	status := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		status = "Terminating"
	}
	size, modes := "", ""
	if c.Spec.VolumeName != "" {
		size, modes = capacity(c.Status.Capacity), accessModes(c.Status.AccessModes)
	}
	return []any{
		c.Name, status, c.Spec.VolumeName, size, modes, storageClassName(c.Annotations, c.Spec.StorageClassName),
		pointed(c.Spec.VolumeAttributesClassName, unset), age(c.CreationTimestamp, now), string(pointed(c.Spec.VolumeMode, unset)),
	}
}

func capacity(resources corev1.ResourceList) string {
	size := resources[corev1.ResourceStorage]
	return size.String()
}

// storageClassName returns the class that an annotation names, as was done before there
// was a field, or that of the field.
func storageClassName(annotations map[string]string, field *string) string {
	if name, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	return pointed(field, "")
}

// accessModes returns the abbreviations of modes, in a fixed order.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var short []string
	for _, mode := range []struct {
		corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"},
		{corev1.ReadOnlyMany, "ROX"},
		{corev1.ReadWriteMany, "RWX"},
		{corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, mode.PersistentVolumeAccessMode) {
			short = append(short, mode.short)
		}
	}
	return strings.Join(short, ",")
}
