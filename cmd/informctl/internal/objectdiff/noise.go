package objectdiff

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// heartbeats matches the fields that say when somebody has last looked, as of the
// conditions of a node.
var heartbeats = regexp.MustCompile(`^status\.conditions\[[^\]]*\]\.(lastHeartbeatTime|lastProbeTime)$`)

// isHeartbeat reports whether a field of an object of a resource only says that somebody
// is still there: the times of a Lease, and those at which a condition was last probed.
func isHeartbeat(resource, field string) bool {
	if resource == "leases.coordination.k8s.io" && (field == "spec.renewTime" || field == "spec.acquireTime") {
		return true
	}
	return heartbeats.MatchString(field)
}

// IsNoise reports whether a field of an object of a resource changes without a change of
// the object: it is a heartbeat, the resource version or a part of managedFields.
func IsNoise(resource, field string) bool {
	return field == "metadata.resourceVersion" || isAt("metadata.managedFields", field) || isHeartbeat(resource, field)
}

// NoteNoise says how many updates have changed nothing but noise, and which option shows
// them.
func NoteNoise(updates int, option string) string {
	what := "updates"
	if updates == 1 {
		what = "update"
	}
	return fmt.Sprintf("%d %s changed only heartbeat times or managedFields, which %s shows", updates, what, option)
}

// eventCounts are the fields of an Event that say how often it has happened.
var eventCounts = []string{"count", "deprecatedCount", "deprecatedLastTimestamp", "lastTimestamp", "series"}

// PartOf returns the part of an object that fields are of, if all of them are of one that
// controllers write again and again: "status", also with a new generation, or the "count"
// of an Event. Else it is "", also for a generation alone, whose reason may be left out,
// and where an element of a list without keys differs: several of such differences are
// not those of one.
func PartOf(resource string, fields []ChangedField) (part string) {
	isEvent := resource == "events" || resource == "events.events.k8s.io"
	for _, f := range fields {
		of := ""
		switch {
		case f.Path == "metadata.generation":
			continue
		case isAt("status", f.Path):
			of = "status"
		case isEvent && slices.ContainsFunc(eventCounts, func(name string) bool { return isAt(name, f.Path) }):
			of = "count"
		}
		if of == "" || part != "" && part != of || placed.MatchString(f.Path) {
			return ""
		}
		part = of
	}
	return part
}

// placed matches a path through an element of a list that has no key.
var placed = regexp.MustCompile(`\[\d+\]`)

// isAt reports whether a field is at a path or below it.
func isAt(path, field string) bool {
	rest, is := strings.CutPrefix(field, path)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
