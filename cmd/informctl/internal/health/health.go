// Package health says in words how an informer is.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/informctl/informctl/informer"
)

// State is one of few words, and a count while a list is under way.
func State(s informer.Status) string {
	switch {
	case s.CaughtUp && s.Synced:
		return "caught up"
	case s.Listing != "":
		return fmt.Sprintf("listing, %d", s.Listed)
	case s.Synced:
		return "synced, not caught up"
	}
	return "not synced"
}

// stale is how old a status may be. An informer takes two seconds at most to look at
// itself, unless something hangs.
const stale = 5 * time.Second

// Wrong says what is wrong; "" is nothing.
func Wrong(s informer.Status, now time.Time) string {
	var wrong []string
	if !s.Time.IsZero() && now.Sub(s.Time) > stale {
		wrong = append(wrong, "not seen for "+Ago(s.Time, now)+": the informer is held up, perhaps by its disk")
	}
	for _, problem := range []string{s.Behind, s.Missing, s.LastError} {
		if problem != "" && !slices.Contains(wrong, problem) {
			wrong = append(wrong, problem)
		}
	}
	if s.Memory != "" {
		wrong = append(wrong, "not persisted: "+s.Memory)
	}
	if s.RejectedCount > 0 {
		wrong = append(wrong, fmt.Sprintf("%d objects cannot be stored, such as %s", s.RejectedCount, s.RejectedFirst))
	}
	if s.Commits != nil && s.Commits.Degraded {
		wrong = append(wrong, "not written: "+s.Commits.Error)
	}
	if len(wrong) == 0 && (!s.CaughtUp || !s.Synced) {
		wrong = append(wrong, "not caught up")
	}
	return strings.Join(wrong, "; ")
}

// Waiting is the number of notifications that wait for handlers.
func Waiting(s informer.Status) (n int) {
	for _, h := range s.Handlers {
		n += h.Waiting
	}
	return n
}

// Ago is how long before now a time was, in short; "-" where it has not been.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}
