package table

import (
	"strings"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
)

var resourceClaim = kindOf(resourceClaimCells, always("Name", "State", "Age"))

func resourceClaimCells(c *resourcev1.ResourceClaim, now time.Time) []any {
	return []any{c.Name, claimState(c), age(c.CreationTimestamp, now)}
}

// claimState returns all that can be said of a claim. One that is deleted is not pending.
func claimState(c *resourcev1.ResourceClaim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch allocated := c.Status.Allocation != nil; {
	case allocated && len(c.Status.ReservedFor) > 0:
		states = append(states, "allocated", "reserved")
	case allocated:
		states = append(states, "allocated")
	case len(states) == 0:
		states = append(states, "pending")
	}
	return strings.Join(states, ",")
}

var resourceSlice = kindOf(resourceSliceCells, always("Name", "Node", "Driver", "Pool", "Age"))

func resourceSliceCells(s *resourcev1.ResourceSlice, now time.Time) []any {
	return []any{s.Name, pointed(s.Spec.NodeName, ""), s.Spec.Driver, s.Spec.Pool.Name, age(s.CreationTimestamp, now)}
}

var deviceTaintRule = kindOf(deviceTaintRuleCells, always("Name", "Key", "Value", "Effect", "TimeAdded", "Age"))

func deviceTaintRuleCells(r *resourcev1.DeviceTaintRule, now time.Time) []any {
	t, added := r.Spec.Taint, ""
	if t.TimeAdded != nil {
		added = age(*t.TimeAdded, now)
	}
	return []any{r.Name, t.Key, t.Value, string(t.Effect), added, age(r.CreationTimestamp, now)}
}
