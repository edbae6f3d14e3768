package table

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

var configMap = kindOf(configMapCells, always("Name", "Data", "Age"))

func configMapCells(c *corev1.ConfigMap, now time.Time) []any {
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), age(c.CreationTimestamp, now)}
}

var secret = kindOf(secretCells, always("Name", "Type", "Data", "Age"))

func secretCells(s *corev1.Secret, now time.Time) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), age(s.CreationTimestamp, now)}
}

var serviceAccount = kindOf(serviceAccountCells, always("Name", "Age"))

func serviceAccountCells(s *corev1.ServiceAccount, now time.Time) []any {
	return []any{s.Name, age(s.CreationTimestamp, now)}
}

var namespace = kindOf(namespaceCells, always("Name", "Status", "Age"))

func namespaceCells(n *corev1.Namespace, now time.Time) []any {
	return []any{n.Name, string(n.Status.Phase), age(n.CreationTimestamp, now)}
}

var podTemplate = kindOf(podTemplateCells, always("Name", "Containers", "Images", "Pod Labels"))

func podTemplateCells(t *corev1.PodTemplate, _ time.Time) []any {
	names, images := containers(t.Template.Spec.Containers)
	return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
}

var resourceQuota = kindOf(resourceQuotaCells, always("Name", "Request", "Limit", "Age"))

func resourceQuotaCells(q *corev1.ResourceQuota, now time.Time) []any {
	var requests, limits []string
	for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
		used, hard := q.Status.Used[name], q.Status.Hard[name]
		text := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(string(name), "limits.") {
			limits = append(limits, text)
		} else {
			requests = append(requests, text)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), age(q.CreationTimestamp, now)}
}

var limitRange = kindOf(limitRangeCells, always("Name"), ofType("date", always("Created At")))

func limitRangeCells(l *corev1.LimitRange, _ time.Time) []any {
	return []any{l.Name, createdAt(l.CreationTimestamp)}
}
