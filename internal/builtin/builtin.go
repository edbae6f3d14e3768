// Package builtin knows the resources of an API server that are there without a
// definition: their groups and short names, the category "all", and which are of the
// whole cluster.
package builtin

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// shortNames are the short names that an API server defines for its built-in resources.
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

// all are the resources of the category "all".
var all = []string{
	"pods", "replicationcontrollers", "services", "daemonsets.apps", "deployments.apps", "replicasets.apps",
	"statefulsets.apps", "horizontalpodautoscalers.autoscaling", "cronjobs.batch", "jobs.batch",
}

// clusterScoped are the resources whose objects are in no namespace.
var clusterScoped = []string{
	"componentstatuses", "namespaces", "nodes", "persistentvolumes",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	"validatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicybindings.admissionregistration.k8s.io",
	"mutatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
	"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
	"certificatesigningrequests.certificates.k8s.io", "clustertrustbundles.certificates.k8s.io",
	"flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
	"ingressclasses.networking.k8s.io", "ipaddresses.networking.k8s.io", "servicecidrs.networking.k8s.io",
	"runtimeclasses.node.k8s.io", "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	"deviceclasses.resource.k8s.io", "resourceslices.resource.k8s.io", "priorityclasses.scheduling.k8s.io",
	"csidrivers.storage.k8s.io", "csinodes.storage.k8s.io", "storageclasses.storage.k8s.io",
	"volumeattachments.storage.k8s.io", "volumeattributesclasses.storage.k8s.io",
}

// Long returns the plural of a short name.
func Long(short string) (plural string, ok bool) {
	plural, ok = shortNames[short]
	return plural, ok
}

// ShortNames returns the short names of a resource, sorted.
func ShortNames(resource string) []string {
	plural, _, _ := strings.Cut(resource, ".")
	var out []string
	for short, long := range shortNames {
		if long == plural {
			out = append(out, short)
		}
	}
	slices.Sort(out)
	return out
}

// IsInAll reports whether a resource is in the category "all".
func IsInAll(resource string) bool { return slices.Contains(all, resource) }

// IsClusterScoped reports whether a resource is built in and in no namespace.
func IsClusterScoped(resource string) bool { return slices.Contains(clusterScoped, resource) }

// apis has the types of Kubernetes' own APIs, and none that a program has added to
// client-go's scheme.
var apis = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(s))
	return s
})

// ConfirmGone returns an error if the objects of a resource that the server does not
// serve may exist: it is of one of Kubernetes' own APIs, which can be switched off, or
// moved to another group, with its objects in etcd. The server always serves the core
// group.
func ConfirmGone(resource schema.GroupResource) error {
	if resource.Group != "" && apis().IsGroupRegistered(resource.Group) {
		return fmt.Errorf("%s is built in and not served: its objects may still exist", resource)
	}
	return nil
}
