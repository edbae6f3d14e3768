package table

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

var storageClass = kindOf(storageClassCells,
	always("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"))

func storageClassCells(s *storagev1.StorageClass, now time.Time) []any {
	name := s.Name
	if s.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
		name += " (default)"
	}
	return []any{
		name, s.Provisioner, string(pointed(s.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)),
		string(pointed(s.VolumeBindingMode, storagev1.VolumeBindingImmediate)), pointed(s.AllowVolumeExpansion, false),
		age(s.CreationTimestamp, now),
	}
}

var volumeAttributesClass = kindOf(volumeAttributesClassCells, always("Name", "DriverName", "Age"))

func volumeAttributesClassCells(c *storagev1.VolumeAttributesClass, now time.Time) []any {
	return []any{c.Name, c.DriverName, age(c.CreationTimestamp, now)}
}

var volumeAttachment = kindOf(volumeAttachmentCells,
	always("Name"), ofFormat("name", always("Attacher")), always("PV", "Node"), ofType("boolean", always("Attached")), always("Age"))

func volumeAttachmentCells(a *storagev1.VolumeAttachment, now time.Time) []any {
	return []any{
		a.Name, a.Spec.Attacher, pointed(a.Spec.Source.PersistentVolumeName, ""), a.Spec.NodeName, a.Status.Attached,
		age(a.CreationTimestamp, now),
	}
}

var csiDriver = kindOf(csiDriverCells,
	always("Name"), ofType("boolean", always("AttachRequired", "PodInfoOnMount", "StorageCapacity")),
	always("TokenRequests"), ofType("boolean", always("RequiresRepublish")), always("Modes", "Age"))

func csiDriverCells(d *storagev1.CSIDriver, now time.Time) []any {
	s := d.Spec
	var modes, audiences []string
	for _, m := range s.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	for _, r := range s.TokenRequests {
		audiences = append(audiences, r.Audience)
	}
	requests := unset
	if s.TokenRequests != nil {
		requests = strings.Join(audiences, ",")
	}
	return []any{
		d.Name, pointed(s.AttachRequired, true), pointed(s.PodInfoOnMount, false), pointed(s.StorageCapacity, false),
		requests, pointed(s.RequiresRepublish, false), list(modes), age(d.CreationTimestamp, now),
	}
}

var csiNode = kindOf(csiNodeCells, always("Name"), ofType("integer", always("Drivers")), always("Age"))

func csiNodeCells(n *storagev1.CSINode, now time.Time) []any {
	return []any{n.Name, int64(len(n.Spec.Drivers)), age(n.CreationTimestamp, now)}
}

var csiStorageCapacity = kindOf(csiStorageCapacityCells, always("Name"), ofType("date", always("Created At")))

func csiStorageCapacityCells(c *storagev1.CSIStorageCapacity, _ time.Time) []any {
	return []any{c.Name, createdAt(c.CreationTimestamp)}
}
