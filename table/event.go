package table

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	coreEvent = kindOf(coreEventCells, eventColumns()...)
	event     = kindOf(eventCells, eventColumns()...)
)

func eventColumns() [][]Column {
	return [][]Column{
		always("Last Seen", "Type", "Reason", "Object"), wide("Subobject", "Source"),
		always("Message"), wide("First Seen", "Count", "Name"),
	}
}

func coreEventCells(e *corev1.Event, now time.Time) []any {
	first := age(e.FirstTimestamp, now)
	if e.FirstTimestamp.IsZero() {
		first = age(metav1.Time(e.EventTime), now)
	}
	last := first
	if !e.LastTimestamp.IsZero() {
		last = age(e.LastTimestamp, now)
	}
	count := int64(e.Count)
	if e.Series != nil {
		last, count = age(metav1.Time(e.Series.LastObservedTime), now), int64(e.Series.Count)
	} else if count == 0 {
		count = 1 // the first one of what may become a series
	}
	component := or(e.Source.Component, e.ReportingController)
	instance := or(e.Source.Host, e.ReportingInstance)
	return []any{
		last, e.Type, e.Reason, objectText(e.InvolvedObject), e.InvolvedObject.FieldPath,
		sourceText(component, instance), strings.TrimSpace(e.Message), first, count, e.Name,
	}
}

// eventCells returns the cells of the same event in its other form.
func eventCells(e *eventsv1.Event, now time.Time) []any {
	core := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Reason: e.Reason, Message: e.Note, Type: e.Type,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp,
		Count: e.DeprecatedCount, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		core.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	return coreEventCells(core, now)
}

// objectText returns what an event is about.
func objectText(o corev1.ObjectReference) string {
	kind := strings.ToLower(o.Kind)
	if o.Name == "" {
		return kind
	}
	return kind + "/" + o.Name
}

// sourceText returns the component that has made an event, and its host or instance.
func sourceText(component, instance string) string {
	if instance == "" {
		return component
	}
	return fmt.Sprintf("%s, %s", component, instance)
}
