package table

import (
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

var flowSchema = kindOf(flowSchemaCells,
	always("Name", "PriorityLevel", "MatchingPrecedence", "DistinguisherMethod", "Age", "MissingPL"))

func flowSchemaCells(s *flowcontrolv1.FlowSchema, now time.Time) []any {
	method := none
	if m := s.Spec.DistinguisherMethod; m != nil {
		method = string(m.Type)
	}
	return []any{
		s.Name, s.Spec.PriorityLevelConfiguration.Name, int64(s.Spec.MatchingPrecedence), method,
		age(s.CreationTimestamp, now), isDangling(s),
	}
}

// isDangling returns whether the priority level of a schema is missing.
func isDangling(s *flowcontrolv1.FlowSchema) string {
	for _, c := range s.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}

var priorityLevel = kindOf(priorityLevelCells,
	always("Name", "Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit", "Age"))

func priorityLevelCells(p *flowcontrolv1.PriorityLevelConfiguration, now time.Time) []any {
	var shares, queues, hand, length any = none, none, none, none
	if l := p.Spec.Limited; l != nil {
		shares = int64(pointed(l.NominalConcurrencyShares, 0))
		if q := l.LimitResponse.Queuing; q != nil {
			queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
	}
	return []any{p.Name, string(p.Spec.Type), shares, queues, hand, length, age(p.CreationTimestamp, now)}
}
