package table

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var node = kindOf(nodeCells,
	always("Name", "Status", "Roles", "Age", "Version"),
	wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"))

func nodeCells(n *corev1.Node, now time.Time) []any {
	info := n.Status.NodeInfo
	return []any{
		n.Name, nodeStatus(n), nodeRoles(n), age(n.CreationTimestamp, now), info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		or(info.OSImage, unknown), kernel(info), or(info.ContainerRuntimeVersion, unknown),
	}
}

func nodeStatus(n *corev1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the roles that labels give a node: one form has the role in its key,
// the older one in its value.
func nodeRoles(n *corev1.Node) string {
	var roles []string
	for key, value := range n.Labels {
		if role, is := strings.CutPrefix(key, "node-role.kubernetes.io/"); is && role != "" {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return list(slices.Compact(roles))
}

// kernel returns the version of a node's kernel and what it is built for.
func kernel(info corev1.NodeSystemInfo) string {
	version := or(info.KernelVersion, unknown)
	if info.Architecture == "" {
		return version
	}
	return version + " (" + info.Architecture + ")"
}

func nodeAddress(n *corev1.Node, of corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == of {
			return a.Address
		}
	}
	return none
}
