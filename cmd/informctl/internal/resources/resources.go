// Package resources knows the names of resources: as a user writes them, as an API server
// has them, and those that the commands treat in their own way.
package resources

import (
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/internal/builtin"
	"github.com/informctl/informctl/store"
)

// IsInCategory reports whether the resource of a scope is in a category of built-in
// resources.
func IsInCategory(s store.Scope, name string) bool {
	return strings.EqualFold(name, "all") && builtin.IsInAll(s.Resource)
}

// Meant returns the scopes whose resource a name means. Where resources of several groups
// have the name, such as services, it means the built-in ones, as it does for kubectl.
func Meant(scopes []store.Info, name string) []store.Info {
	var meant, builtIn []store.Info
	for _, info := range scopes {
		if !Is(info.Scope, name) {
			continue
		}
		meant = append(meant, info)
		if scheme.Scheme.IsGroupRegistered(info.Scope.Kind.Group) {
			builtIn = append(builtIn, info)
		}
	}
	if len(builtIn) > 0 {
		return builtIn
	}
	return meant
}

// Is reports whether the scope has the resource that a user named: its plural, its kind
// or its short name, each with or without a group, or with version and group.
func Is(s store.Scope, name string) bool {
	plural, group, _ := strings.Cut(s.Resource, ".")
	if group == "" {
		group = s.Kind.Group
	}
	name = strings.ToLower(name)
	first, rest, dotted := strings.Cut(name, ".")
	if long, ok := builtin.Long(first); ok {
		first = long
	}
	if first != strings.ToLower(plural) && first != strings.ToLower(s.Kind.Kind) {
		return false
	}
	version := strings.ToLower(s.Kind.Version)
	return !dotted || slices.Contains([]string{group, version + "." + group, version}, rest)
}

// The two resources as which the server serves one event.
const (
	CoreEvents  = "events"
	NewerEvents = "events.events.k8s.io"
)

// IsFrequent reports whether a resource changes all the time and few ask for its changes:
// leases are renewed, and events counted. No history is kept of it, and it is not
// published, unless that is asked for.
func IsFrequent(resource string) bool {
	return slices.Contains([]string{CoreEvents, NewerEvents, "leases.coordination.k8s.io"}, resource)
}

// Definitions is the resource of the definitions of custom resources.
const Definitions = "customresourcedefinitions.apiextensions.k8s.io"
