package cli_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeCluster makes a file of kinds that refer to each other: nodes, the pods on them,
// and the Services and claims of these pods. Of each kind one is without the others.
func writeCluster(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	full, cordoned, empty := node("node-1", "4", "8Gi"), node("node-2", "2", "4Gi"), node("node-3", "2", "4Gi")
	cordoned.Spec.Unschedulable = true
	database := clusterPod("b", "db-0", "db", "node-1", "10.1.1.7", 3*time.Hour, "1500m", "2Gi")
	database.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"},
	}}}
	for kind, objects := range map[string][]runtime.Object{
		"Node": {full, cordoned, empty},
		"Pod": {
			clusterPod("a", "web-1", "web", "node-1", "10.0.1.5", 3*time.Hour, "500m", "256Mi", "250m", "64Mi"),
			clusterPod("a", "web-2", "web", "node-2", "10.0.2.6", 2*time.Hour, "1", "1Gi"),
			database,
			clusterPod("b", "queued", "batch", "", "", 20*time.Minute, "100m", "10M"),
			clusterPod("b", "new", "batch", "", "", 5*time.Minute, "", ""),
		},
		"Service": {service("a", "web", "web"), service("b", "cache", "cache"), service("b", "elsewhere", "")},
		"PersistentVolumeClaim": {
			&corev1.PersistentVolumeClaim{ObjectMeta: objectMeta("b", "data-db-0", "db")},
			&corev1.PersistentVolumeClaim{ObjectMeta: objectMeta("b", "left", "")},
		},
	} {
		plural := map[string]string{"Node": "nodes", "Pod": "pods", "Service": "services", "PersistentVolumeClaim": "persistentvolumeclaims"}[kind]
		fill(t, db, corev1.SchemeGroupVersion.WithKind(kind), plural, store.Typed, objects...)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func node(name, cpu, memory string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: objectMeta("", name, ""),
		Status:     corev1.NodeStatus{Allocatable: resourceList(cpu, memory)},
	}
}

// clusterPod returns a pod of that age with a container for each two requests; it is
// Pending without an address.
func clusterPod(namespace, name, app, node, ip string, age time.Duration, requests ...string) *corev1.Pod {
	p := pod(namespace, name, app)
	p.CreationTimestamp = metav1.NewTime(now.Add(-age))
	p.Spec.NodeName, p.Spec.Containers = node, nil
	for i := 0; i < len(requests); i += 2 {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "main", Image: "registry.example.com/" + app + ":v1.10.2",
			Resources: corev1.ResourceRequirements{Requests: resourceList(requests[i], requests[i+1])},
		})
	}
	if p.Status = (corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip}); ip == "" {
		p.Status.Phase = corev1.PodPending
	}
	return p
}

func resourceList(cpu, memory string) corev1.ResourceList {
	if cpu == "" {
		return nil
	}
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
}

// service returns a Service that selects the pods of an app; without one it selects none.
func service(namespace, name, app string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: objectMeta(namespace, name, "")}
	if app != "" {
		s.Spec.Selector = map[string]string{"app": app}
	}
	return s
}
