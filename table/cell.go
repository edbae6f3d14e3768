package table

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Cells of values that are not there.
const (
	none    = "<none>"
	unknown = "<unknown>"
	unset   = "<unset>"
)

// age returns the time since t, as kubectl writes it.
func age(t metav1.Time, now time.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(now.Sub(t.Time))
}

// createdAt returns a time as the kinds print it that have no age.
func createdAt(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// or returns text, or other if there is none.
func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// pointed returns the value of a pointer, or other if it is nil.
func pointed[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}

// list returns texts separated by commas, or <none>.
func list(texts []string) string { return or(strings.Join(texts, ","), none) }

// shortList returns the first texts, and how many more there are, or "".
func shortList(texts []string, most int) string {
	if more := len(texts) - most; more > 0 {
		return fmt.Sprintf("%s + %d more...", strings.Join(texts[:most], ","), more)
	}
	return strings.Join(texts, ",")
}

// selector returns a label selector as text.
func selector(s *metav1.LabelSelector) string { return or(metav1.FormatLabelSelector(s), none) }

// labelled returns labels as text.
func labelled(labels map[string]string) string {
	return metav1.FormatLabelSelector(metav1.SetAsLabelSelector(labels))
}

// containers returns the cells of the names and the images of containers.
func containers(of []corev1.Container) (names, images string) {
	var n, i []string
	for _, c := range of {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}
