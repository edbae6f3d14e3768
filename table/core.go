package table

import (
	"time"

	corev1 "k8s.io/api/core/v1"
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
