package table

import (
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var podDisruptionBudget = kindOf(podDisruptionBudgetCells,
	always("Name", "Min Available", "Max Unavailable"), ofType("integer", always("Allowed Disruptions")), always("Age"))

func podDisruptionBudgetCells(b *policyv1.PodDisruptionBudget, now time.Time) []any {
	return []any{
		b.Name, boundText(b.Spec.MinAvailable), boundText(b.Spec.MaxUnavailable),
		int64(b.Status.DisruptionsAllowed), age(b.CreationTimestamp, now),
	}
}

func boundText(bound *intstr.IntOrString) string {
	if bound == nil {
		return "N/A"
	}
	return bound.String()
}
