package table

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var pod = kindOf(podCells,
	always("Name", "Ready", "Status", "Restarts", "Age"),
	wide("IP", "Node", "Nominated Node", "Readiness Gates"))

func podCells(p *corev1.Pod, now time.Time) []any {
	s := summaryOf(p)
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.containers), s.status, s.restarts.text(now), age(p.CreationTimestamp, now),
		or(ip, none), or(p.Spec.NodeName, none), or(p.Status.NominatedNodeName, none), readinessGates(p),
	}
}

// podSummary is what the containers of a pod add up to.
type podSummary struct {
	ready, containers int
	status            string
	restarts          restarts
}

// restarts are a number of restarts and the time of the last one.
type restarts struct {
	count int32
	last  metav1.Time
}

func (r *restarts) add(s corev1.ContainerStatus) {
	r.count += s.RestartCount
	if t := s.LastTerminationState.Terminated; t != nil && r.last.Before(&t.FinishedAt) {
		r.last = t.FinishedAt
	}
}

func (r restarts) text(now time.Time) string {
	if r.count == 0 || r.last.IsZero() {
		return fmt.Sprint(r.count)
	}
	return fmt.Sprintf("%d (%s ago)", r.count, age(r.last, now))
}

func summaryOf(p *corev1.Pod) podSummary {
	s := podSummary{containers: len(p.Spec.Containers), status: cmp.Or(p.Status.Reason, string(p.Status.Phase))}
	if slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated
	}) {
		s.status = corev1.PodReasonSchedulingGated
	}
	sidecars := sidecarsOf(p)
	s.containers += len(sidecars)
	restarted, initializing := s.addInit(p, sidecars)
	if initializing && !is(p, corev1.PodInitialized) {
		s.restarts = restarted
	} else {
		s.addMain(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
		s.status = "Terminating"
	}
	return s
}

// sidecarsOf returns the names of the init containers that run as long as the pod does.
func sidecarsOf(p *corev1.Pod) map[string]bool {
	names := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			names[c.Name] = true
		}
	}
	return names
}

// addInit adds the init containers. They define the status of the pod as long as one of
// them, the first one that is not done, initializes it. It returns the restarts of all
// that it has looked at; those of sidecars stay with the pod.
func (s *podSummary) addInit(p *corev1.Pod, sidecars map[string]bool) (all restarts, initializing bool) {
	for i, c := range p.Status.InitContainerStatuses {
		all.add(c)
		sidecar := sidecars[c.Name]
		if sidecar {
			s.restarts.add(c)
		}
		switch terminated := c.State.Terminated; {
		case terminated != nil && terminated.ExitCode == 0:
			continue
		case sidecar && c.Started != nil && *c.Started:
			if c.Ready {
				s.ready++
			}
			continue
		case terminated != nil:
			s.status = "Init:" + terminationText(terminated)
		case c.State.Waiting != nil && c.State.Waiting.Reason != "" && c.State.Waiting.Reason != "PodInitializing":
			s.status = "Init:" + c.State.Waiting.Reason
		default:
			s.status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return all, true
	}
	return all, false
}

// addMain adds the containers. The first one that does not run defines the status, except
// that "Completed" yields to what the others do: run, or fail.
func (s *podSummary) addMain(p *corev1.Pod) {
	running, failure := false, ""
	for _, c := range slices.Backward(p.Status.ContainerStatuses) {
		s.restarts.add(c)
		switch terminated := c.State.Terminated; {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case terminated != nil:
			s.status = terminationText(terminated)
			if terminated.ExitCode != 0 {
				failure = s.status
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	switch {
	case s.status != "Completed":
	case running && is(p, corev1.PodReady):
		s.status = "Running"
	case failure != "":
		s.status = failure
	case running:
		s.status = "NotReady"
	}
}

// terminationText says why a container has terminated.
func terminationText(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// is reports whether a condition of a pod is true.
func is(p *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return none
	}
	passed := 0
	for _, gate := range p.Spec.ReadinessGates {
		if is(p, gate.ConditionType) {
			passed++
		}
	}
	return fmt.Sprintf("%d/%d", passed, len(p.Spec.ReadinessGates))
}
