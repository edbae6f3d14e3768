package table

import (
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
)

var priorityClass = kindOf(priorityClassCells,
	always("Name"), ofType("integer", always("Value")), ofType("boolean", always("Global-Default")),
	always("Age", "PreemptionPolicy"))

func priorityClassCells(c *schedulingv1.PriorityClass, now time.Time) []any {
	return []any{
		c.Name, int64(c.Value), c.GlobalDefault, age(c.CreationTimestamp, now), string(pointed(c.PreemptionPolicy, "")),
	}
}
