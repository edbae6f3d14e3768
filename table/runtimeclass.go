package table

import (
	"time"

	nodev1 "k8s.io/api/node/v1"
)

var runtimeClass = kindOf(runtimeClassCells, always("Name", "Handler", "Age"))

func runtimeClassCells(c *nodev1.RuntimeClass, now time.Time) []any {
	return []any{c.Name, c.Handler, age(c.CreationTimestamp, now)}
}
