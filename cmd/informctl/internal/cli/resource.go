package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/store"
)

// shortNames are the short names that an API server defines for its built-in resources.
// Those of custom resources are in their definitions.
var shortNames = map[string]string{
	"cm": "configmaps", "cs": "componentstatuses", "ep": "endpoints", "ev": "events",
	"limits": "limitranges", "no": "nodes", "ns": "namespaces", "po": "pods",
	"pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
	"rc": "replicationcontrollers", "sa": "serviceaccounts", "svc": "services",
	"deploy": "deployments", "ds": "daemonsets", "rs": "replicasets", "sts": "statefulsets",
	"cj": "cronjobs", "hpa": "horizontalpodautoscalers", "pdb": "poddisruptionbudgets",
	"ing": "ingresses", "netpol": "networkpolicies", "pc": "priorityclasses",
	"sc": "storageclasses", "vac": "volumeattributesclasses", "csr": "certificatesigningrequests",
	"crd": "customresourcedefinitions", "crds": "customresourcedefinitions",
}

// all are the built-in resources of the category "all".
var all = []string{
	"pods", "replicationcontrollers", "services", "daemonsets.apps", "deployments.apps", "replicasets.apps",
	"statefulsets.apps", "horizontalpodautoscalers.autoscaling", "cronjobs.batch", "jobs.batch",
}

// isInCategory reports whether the resource of a scope is in a category of built-in
// resources.
func isInCategory(s store.Scope, name string) bool {
	return strings.EqualFold(name, "all") && slices.Contains(all, s.Resource)
}

// wanted is one resource of a command line and the names of its objects.
type wanted struct {
	resource string   // as the user wrote it; "" means all
	names    []string // empty means all
}

// parseWanted parses the arguments in the same way as kubectl: RESOURCE[,RESOURCE...]
// [NAME...], or RESOURCE/NAME...
func parseWanted(cmd *cobra.Command, args []string) ([]wanted, error) {
	if len(args) == 0 {
		return []wanted{{}}, nil
	}
	var out []wanted
	if strings.Contains(args[0], "/") {
		for _, arg := range args {
			resource, name, ok := strings.Cut(arg, "/")
			if !ok || resource == "" || name == "" || strings.Contains(name, "/") {
				return nil, usagef(cmd, "%q is not RESOURCE/NAME", arg)
			}
			out = append(out, wanted{resource, []string{name}})
		}
		return out, nil
	}
	for _, name := range args[1:] {
		if name == "" || strings.Contains(name, "/") {
			return nil, usagef(cmd, "%q is no name; write RESOURCE NAME or RESOURCE/NAME", name)
		}
	}
	for resource := range strings.SplitSeq(args[0], ",") {
		if resource == "" {
			return nil, usagef(cmd, "%q names an empty resource", args[0])
		}
		out = append(out, wanted{resource, args[1:]})
	}
	return out, nil
}

// find returns the file's scopes of a resource.
func (d *database) find(resource string) ([]store.Info, error) {
	scopes := d.present()
	if resource == "" {
		return scopes, nil
	}
	var found []store.Info
	for _, info := range scopes {
		if isResource(info.Scope, resource) {
			found = append(found, info)
		}
	}
	if len(found) == 0 {
		resources, err := d.resourcesNamed(resource)
		if err != nil {
			return nil, err
		}
		for _, info := range scopes {
			if slices.Contains(resources, info.Scope.Resource) || isInCategory(info.Scope, resource) {
				found = append(found, info)
			}
		}
	}
	if len(found) == 0 {
		return nil, unknownResource(resource, d.path+" holds", d.resources(), "informctl info")
	}
	return found, nil
}

// isResource reports whether the scope has the resource that a user named: its plural,
// its kind or its short name, each with or without a group, or with version and group.
func isResource(s store.Scope, name string) bool {
	plural, group, _ := strings.Cut(s.Resource, ".")
	if group == "" {
		group = s.Kind.Group
	}
	name = strings.ToLower(name)
	first, rest, dotted := strings.Cut(name, ".")
	if long, ok := shortNames[first]; ok {
		first = long
	}
	if first != strings.ToLower(plural) && first != strings.ToLower(s.Kind.Kind) {
		return false
	}
	version := strings.ToLower(s.Kind.Version)
	return !dotted || slices.Contains([]string{group, version + "." + group, version}, rest)
}
