package table

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

var lease = kindOf(leaseCells, always("Name", "Holder", "Age"))

func leaseCells(l *coordinationv1.Lease, now time.Time) []any {
	return []any{l.Name, pointed(l.Spec.HolderIdentity, ""), age(l.CreationTimestamp, now)}
}
