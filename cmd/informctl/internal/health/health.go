// Package health describes the state of an informer in words.
package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/informctl/informctl/informer"
)

// State returns a short description, with a count during a list.
func State(s informer.Status) string {
	switch {
	case s.CaughtUp && s.Synced && IsDisconnected(s):
		return "disconnected"
	case s.CaughtUp && s.Synced:
		return "caught up"
	case s.Listing != "":
		return fmt.Sprintf("listing, %d", s.Listed)
	case s.Synced:
		return "synced, not caught up"
	}
	return "not synced"
}

// IsDisconnected reports whether the last request to the server has failed, so that
// nothing comes until one succeeds.
func IsDisconnected(s informer.Status) bool { return s.LastError != "" }

// stale is the maximal age of a status. An informer updates its status at least every two
// seconds, unless something hangs.
const stale = 5 * time.Second

// Wrong returns a description of what is wrong, "" if nothing is.
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
	if s.Commits != nil && s.Commits.Degraded && s.Memory == "" {
		wrong = append(wrong, "not written: "+s.Commits.Error)
	}
	if len(wrong) == 0 && (!s.CaughtUp || !s.Synced) {
		wrong = append(wrong, "not caught up")
	}
	return strings.Join(wrong, "; ")
}

// Waiting returns the number of notifications that wait for handlers.
func Waiting(s informer.Status) (n int) {
	for _, h := range s.Handlers {
		n += h.Waiting
	}
	return n
}

// Ago returns in short how long before now t was, "-" if t is zero.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now.Sub(t)))
}

// Size formats a number of bytes with about three digits.
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n)/1024, 0
	for ; value >= 999.5 && unit < 3; unit++ {
		value /= 1024
	}
	decimals := 0
	if value < 9.95 {
		decimals = 1
	}
	return fmt.Sprintf("%.*f %s", decimals, value, []string{"KiB", "MiB", "GiB", "TiB"}[unit])
}
