package table

import (
	"fmt"
	"strings"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/resource"
)

var horizontalPodAutoscaler = kindOf(horizontalPodAutoscalerCells,
	always("Name", "Reference", "Targets", "MinPods", "MaxPods", "Replicas", "Age"))

func horizontalPodAutoscalerCells(h *autoscalingv2.HorizontalPodAutoscaler, now time.Time) []any {
	target := h.Spec.ScaleTargetRef
	minPods := unset
	if h.Spec.MinReplicas != nil {
		minPods = fmt.Sprint(*h.Spec.MinReplicas)
	}
	return []any{
		h.Name, target.Kind + "/" + target.Name, metricsText(h), minPods, int64(h.Spec.MaxReplicas),
		int64(h.Status.CurrentReplicas), age(h.CreationTimestamp, now),
	}
}

// mostMetrics is the number of metrics that a cell holds.
const mostMetrics = 2

func metricsText(h *autoscalingv2.HorizontalPodAutoscaler) string {
	var all []string
	for i, m := range h.Spec.Metrics {
		var current autoscalingv2.MetricStatus
		if i < len(h.Status.CurrentMetrics) {
			current = h.Status.CurrentMetrics[i]
		}
		all = append(all, metricText(m, current))
	}
	if more := len(all) - mostMetrics; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(all[:mostMetrics], ", "), more)
	}
	return or(strings.Join(all, ", "), none)
}

// metricText returns the current value of a metric and what it should be.
func metricText(m autoscalingv2.MetricSpec, s autoscalingv2.MetricStatus) string {
	var target autoscalingv2.MetricTarget
	var current *autoscalingv2.MetricValueStatus
	prefix, average := "", ""
	switch m.Type {
	case autoscalingv2.ExternalMetricSourceType:
		target, average = m.External.Target, " (avg)"
		if s.External != nil {
			current = &s.External.Current
		}
	case autoscalingv2.PodsMetricSourceType:
		target = m.Pods.Target
		if s.Pods != nil {
			current = &s.Pods.Current
		}
	case autoscalingv2.ObjectMetricSourceType:
		target, average = m.Object.Target, " (avg)"
		if s.Object != nil {
			current = &s.Object.Current
		}
	case autoscalingv2.ResourceMetricSourceType:
		target, prefix = m.Resource.Target, string(m.Resource.Name)+": "
		if s.Resource != nil {
			current = &s.Resource.Current
		}
	case autoscalingv2.ContainerResourceMetricSourceType:
		target, prefix = m.ContainerResource.Target, string(m.ContainerResource.Name)+": "
		if s.ContainerResource != nil {
			current = &s.ContainerResource.Current
		}
	default:
		return "<unknown type>"
	}
	text := prefix + targetText(target, current)
	if target.AverageValue != nil {
		text += average
	}
	return text
}

func targetText(target autoscalingv2.MetricTarget, current *autoscalingv2.MetricValueStatus) string {
	if current == nil {
		current = &autoscalingv2.MetricValueStatus{}
	}
	switch {
	case target.AverageValue != nil:
		return quantityText(current.AverageValue) + "/" + target.AverageValue.String()
	case target.AverageUtilization != nil:
		return percentText(current.AverageUtilization) + "/" + percentText(target.AverageUtilization)
	}
	return quantityText(current.Value) + "/" + quantityText(target.Value)
}

func quantityText(q *resource.Quantity) string {
	if q == nil {
		return unknown
	}
	return q.String()
}

func percentText(n *int32) string {
	if n == nil {
		return unknown
	}
	return fmt.Sprintf("%d%%", *n)
}
