package table

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

var replicationController = kindOf(replicationControllerCells,
	always("Name"), ofType("integer", always("Desired", "Current", "Ready")), always("Age"),
	wide("Containers", "Images", "Selector"))

func replicationControllerCells(r *corev1.ReplicationController, now time.Time) []any {
	names, images := "", ""
	if r.Spec.Template != nil {
		names, images = containers(r.Spec.Template.Spec.Containers)
	}
	return []any{
		r.Name, int64(pointed(r.Spec.Replicas, 1)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		age(r.CreationTimestamp, now), names, images, labelled(r.Spec.Selector),
	}
}
