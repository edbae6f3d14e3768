package testobjects

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus returns the status that a kubelet writes for a running pod. One of 50 pods is
// not ready.
func (w workload) podStatus(s source, pod *corev1.Pod, node int) corev1.PodStatus {
	scheduled := pod.CreationTimestamp
	started := s.after(metav1.NewTime(scheduled.Add(time.Second)), 10*time.Second)
	ready := s.after(metav1.NewTime(started.Add(5*time.Second)), 2*time.Minute)
	isReady := s.IntN(50) != 0
	hostIP := fmt.Sprintf("10.%d.%d.%d", 16+node/250, node%250, 10+node%100)
	podIP := fmt.Sprintf("100.%d.%d.%d", 64+node/250, node%250, 2+s.IntN(250))
	return corev1.PodStatus{
		ObservedGeneration: 1,
		Phase:              corev1.PodRunning,
		Conditions:         podConditions(scheduled, started, ready, isReady),
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		PodIP:              podIP,
		PodIPs:             []corev1.PodIP{{IP: podIP}},
		StartTime:          &scheduled,
		ContainerStatuses: []corev1.ContainerStatus{
			s.containerStatus(pod.Spec.Containers[0], w.imageID, started, isReady),
			s.containerStatus(pod.Spec.Containers[1], w.proxyImageID, started, true),
		},
		QOSClass: corev1.PodQOSBurstable,
	}
}

func podConditions(scheduled, started, ready metav1.Time, isReady bool) []corev1.PodCondition {
	condition := func(kind corev1.PodConditionType, at metav1.Time) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, ObservedGeneration: 1, Status: corev1.ConditionTrue, LastTransitionTime: at}
	}
	conditions := []corev1.PodCondition{
		condition(corev1.PodReadyToStartContainers, started),
		condition(corev1.PodInitialized, scheduled),
		condition(corev1.PodReady, ready),
		condition(corev1.ContainersReady, ready),
		condition(corev1.PodScheduled, scheduled),
	}
	if !isReady {
		for k := 2; k <= 3; k++ {
			conditions[k].Status = corev1.ConditionFalse
			conditions[k].Reason = "ContainersNotReady"
			conditions[k].Message = "containers with unready status: [app]"
		}
	}
	return conditions
}

func (s source) containerStatus(c corev1.Container, imageID string, started metav1.Time, ready bool) corev1.ContainerStatus {
	repository, _, _ := strings.Cut(c.Image, ":") // The registry's name has no port.
	status := corev1.ContainerStatus{
		Name:         c.Name,
		State:        corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}},
		Ready:        ready,
		Image:        c.Image,
		ImageID:      repository + "@sha256:" + imageID,
		ContainerID:  "containerd://" + s.hex(64),
		Started:      new(true),
		Resources:    c.Resources.DeepCopy(),
		RestartCount: 0,
	}
	if s.IntN(20) != 0 {
		return status
	}
	status.RestartCount = 1 + s.Int32N(12)
	finished := started
	started = s.after(started, 24*time.Hour)
	status.State.Running.StartedAt = started
	status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", StartedAt: finished, FinishedAt: started, ContainerID: "containerd://" + s.hex(64),
	}
	return status
}
