package testobjects

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeImages is the number of images in a node's status, which is the kubelet's default
// limit.
const nodeImages = 50

// Node returns node i: about 13 KB as JSON, most of that the images that it has. It is
// cluster-scoped.
func Node(i int, seed int64) *corev1.Node {
	s := newSource(streamNode, i, seed)
	name := fmt.Sprintf("node-%06d.example.internal", i)
	node := &corev1.Node{ObjectMeta: s.objectMeta(i, "", name)}
	zone := s.pick([]string{"zone-a", "zone-b", "zone-c"})
	node.Labels = map[string]string{
		"app":                              domains[i%len(domains)],
		"kubernetes.io/arch":               "amd64",
		"kubernetes.io/hostname":           name,
		"kubernetes.io/os":                 "linux",
		"node.kubernetes.io/instance-type": s.pick([]string{"standard-8", "standard-16", "memory-16"}),
		"topology.kubernetes.io/region":    "region-1",
		"topology.kubernetes.io/zone":      zone,
	}
	node.Annotations = map[string]string{
		"csi.volume.kubernetes.io/nodeid":                        fmt.Sprintf(`{"disk.csi.example.com":"%s"}`, name),
		"node.alpha.kubernetes.io/ttl":                           "0",
		"volumes.kubernetes.io/controller-managed-attach-detach": "true",
	}
	node.Spec = corev1.NodeSpec{
		PodCIDR:    fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256),
		PodCIDRs:   []string{fmt.Sprintf("10.%d.%d.0/24", i/256%256, i%256)},
		ProviderID: "example://" + zone + "/" + s.hex(16),
	}
	node.Status = s.nodeStatus(node)
	node.ManagedFields = nodeManagedFields(node)
	return node
}

func (s source) nodeStatus(node *corev1.Node) corev1.NodeStatus {
	quantities := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
			corev1.ResourceEphemeralStorage: resource.MustParse("101430960Ki"), corev1.ResourcePods: resource.MustParse("110"),
		}
	}
	status := corev1.NodeStatus{
		Capacity:    quantities("16", "65806284Ki"),
		Allocatable: quantities("15890m", "63024588Ki"),
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("172.16.%d.%d", s.IntN(256), s.IntN(256))},
			{Type: corev1.NodeHostName, Address: node.Name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: s.hex(32), SystemUUID: string(s.uid()), BootID: string(s.uid()),
			KernelVersion: "6.12.63", OSImage: "Example Linux 13", ContainerRuntimeVersion: "containerd://2.2.0",
			KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64",
		},
	}
	changed := s.after(node.CreationTimestamp, time.Hour)
	for _, c := range []struct {
		condition corev1.NodeConditionType
		status    corev1.ConditionStatus
		reason    string
	}{
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"},
		{corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"},
	} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: c.condition, Status: c.status, LastHeartbeatTime: s.after(changed, 24*time.Hour), LastTransitionTime: changed,
			Reason: c.reason, Message: "kubelet: " + c.reason,
		})
	}
	for range nodeImages {
		repository := "registry.example.com/" + s.pick(domains) + "/" + s.pick(roles)
		status.Images = append(status.Images, corev1.ContainerImage{
			Names:     []string{repository + "@sha256:" + s.hex(64), repository + ":v1." + fmt.Sprint(s.IntN(40))},
			SizeBytes: 10_000_000 + s.Int64N(400_000_000),
		})
	}
	return status
}

func nodeManagedFields(node *corev1.Node) []metav1.ManagedFieldsEntry {
	var spec, status fieldSet
	spec.within("f:metadata", func() {
		spec.open("labels", func() { spec.leaf("kubernetes.io/arch", "kubernetes.io/hostname", "kubernetes.io/os") })
	})
	spec.within("f:spec", func() { spec.leaf("podCIDR", "podCIDRs", "providerID") })
	status.within("f:status", func() {
		status.open("conditions", func() {
			for _, c := range node.Status.Conditions {
				status.item(fmt.Sprintf(`{"type":%q}`, c.Type), func() { status.leaf("lastHeartbeatTime", "message", "reason", "status") })
			}
		})
		status.leaf("images")
	})
	return []metav1.ManagedFieldsEntry{
		spec.entry("kube-controller-manager", "v1", "", node.CreationTimestamp),
		status.entry("kubelet", "v1", "status", node.Status.Conditions[0].LastHeartbeatTime),
	}
}
