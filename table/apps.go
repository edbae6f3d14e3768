package table

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var deployment = kindOf(deploymentCells,
	always("Name", "Ready", "Up-to-date", "Available", "Age"),
	wide("Containers", "Images", "Selector"))

func deploymentCells(d *appsv1.Deployment, now time.Time) []any {
	names, images := containers(d.Spec.Template.Spec.Containers)
	return []any{
		d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, pointed(d.Spec.Replicas, 1)),
		int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d.CreationTimestamp, now),
		names, images, selector(d.Spec.Selector),
	}
}

var replicaSet = kindOf(replicaSetCells,
	always("Name"), ofType("integer", always("Desired", "Current", "Ready")), always("Age"),
	wide("Containers", "Images", "Selector"))

func replicaSetCells(r *appsv1.ReplicaSet, now time.Time) []any {
	names, images := containers(r.Spec.Template.Spec.Containers)
	return []any{
		r.Name, int64(pointed(r.Spec.Replicas, 1)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas),
		age(r.CreationTimestamp, now), names, images, selector(r.Spec.Selector),
	}
}

var statefulSet = kindOf(statefulSetCells,
	always("Name", "Ready", "Age"),
	wide("Containers", "Images"))

func statefulSetCells(s *appsv1.StatefulSet, now time.Time) []any {
	names, images := containers(s.Spec.Template.Spec.Containers)
	return []any{
		s.Name, fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, pointed(s.Spec.Replicas, 1)),
		age(s.CreationTimestamp, now), names, images,
	}
}

var daemonSet = kindOf(daemonSetCells,
	always("Name"), ofType("integer", always("Desired", "Current", "Ready", "Up-to-date", "Available")),
	always("Node Selector", "Age"),
	wide("Containers", "Images", "Selector"))

func daemonSetCells(d *appsv1.DaemonSet, now time.Time) []any {
	names, images := containers(d.Spec.Template.Spec.Containers)
	s := d.Status
	return []any{
		d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady),
		int64(s.UpdatedNumberScheduled), int64(s.NumberAvailable), labelled(d.Spec.Template.Spec.NodeSelector),
		age(d.CreationTimestamp, now), names, images, selector(d.Spec.Selector),
	}
}

var controllerRevision = kindOf(controllerRevisionCells, always("Name", "Controller", "Revision", "Age"))

func controllerRevisionCells(r *appsv1.ControllerRevision, now time.Time) []any {
	controller := none
	if owner := metav1.GetControllerOfNoCopy(r); owner != nil {
		kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
		controller = strings.ToLower(kind.String()) + "/" + owner.Name
	}
	return []any{r.Name, controller, r.Revision, age(r.CreationTimestamp, now)}
}
