package relay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/jsonpath"

	"github.com/informctl/informctl/store"
)

// fieldLabels are the fields by which the objects of a kind can be selected, beside their
// name and namespace.
type fieldLabels struct {
	names []string
	of    func(obj runtime.Object) fields.Set
	alias map[string]string // other names of fields
	// refusal is what the server says of any other field; "" is the usual.
	refusal string
}

// labelsOf returns the field labels of a kind whose objects have the type T in v1.
func labelsOf[T any](of func(obj *T) fields.Set) *fieldLabels {
	return &fieldLabels{
		names: slices.Collect(maps.Keys(of(new(T)))),
		of: func(obj runtime.Object) fields.Set {
			if typed, ok := any(obj).(*T); ok {
				return of(typed)
			}
			var content map[string]any
			var err error
			if u, is := obj.(*unstructured.Unstructured); is {
				content = u.Object
			} else { // of another version
				content, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			}
			typed := new(T)
			if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed) != nil {
				return nil
			}
			return of(typed)
		},
	}
}

func (l *fieldLabels) with(alias map[string]string) *fieldLabels {
	l.alias = alias
	return l
}

func (l *fieldLabels) refusing(text string) *fieldLabels {
	l.refusal = text
	return l
}

// builtIn are the field labels of built-in kinds, as kube-apiserver 1.37 has them
// (pkg/apis/*/conversion.go and pkg/registry/*/strategy.go of Kubernetes).
var builtIn = map[schema.GroupVersionKind]*fieldLabels{
	corev1.SchemeGroupVersion.WithKind("Pod"): labelsOf(podFields).with(map[string]string{"spec.host": "spec.nodeName"}),
	corev1.SchemeGroupVersion.WithKind("Node"): labelsOf(func(n *corev1.Node) fields.Set {
		return fields.Set{"spec.unschedulable": strconv.FormatBool(n.Spec.Unschedulable)}
	}),
	corev1.SchemeGroupVersion.WithKind("ReplicationController"): labelsOf(func(rc *corev1.ReplicationController) fields.Set {
		return fields.Set{"status.replicas": strconv.Itoa(int(rc.Status.Replicas))}
	}),
	corev1.SchemeGroupVersion.WithKind("Namespace"): labelsOf(func(n *corev1.Namespace) fields.Set {
		return fields.Set{"status.phase": string(n.Status.Phase)}
	}),
	corev1.SchemeGroupVersion.WithKind("Secret"): labelsOf(func(s *corev1.Secret) fields.Set {
		return fields.Set{"type": string(s.Type)}
	}),
	corev1.SchemeGroupVersion.WithKind("Service"): labelsOf(func(s *corev1.Service) fields.Set {
		return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
	}),
	corev1.SchemeGroupVersion.WithKind("Event"): labelsOf(func(e *corev1.Event) fields.Set {
		source := e.Source.Component
		if source == "" {
			source = e.ReportingController
		}
		return eventFields(e.InvolvedObject, "involvedObject", fields.Set{
			"reason": e.Reason, "reportingComponent": e.ReportingController, "source": source, "type": e.Type,
		})
	}),
	eventsv1.SchemeGroupVersion.WithKind("Event"): labelsOf(func(e *eventsv1.Event) fields.Set {
		source := e.DeprecatedSource.Component
		if source == "" {
			source = e.ReportingController
		}
		return eventFields(e.Regarding, "regarding", fields.Set{
			"reason": e.Reason, "reportingController": e.ReportingController, "source": source, "type": e.Type,
		})
	}),
	batchv1.SchemeGroupVersion.WithKind("Job"): labelsOf(func(j *batchv1.Job) fields.Set {
		return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
	}).refusing("field label %q not supported for Job"),
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): labelsOf(func(r *certificatesv1.CertificateSigningRequest) fields.Set {
		return fields.Set{"spec.signerName": r.Spec.SignerName}
	}),
	certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"): labelsOf(func(b *certificatesv1.ClusterTrustBundle) fields.Set {
		return fields.Set{"spec.signerName": b.Spec.SignerName}
	}),
	certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"): labelsOf(func(r *certificatesv1.PodCertificateRequest) fields.Set {
		return fields.Set{"spec.signerName": r.Spec.SignerName, "spec.podName": r.Spec.PodName, "spec.nodeName": string(r.Spec.NodeName)}
	}),
	resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"): labelsOf(func(s *resourcev1.ResourceSlice) fields.Set {
		node := ""
		if s.Spec.NodeName != nil {
			node = *s.Spec.NodeName
		}
		return fields.Set{
			resourcev1.ResourceSliceSelectorNodeName: node, resourcev1.ResourceSliceSelectorDriver: s.Spec.Driver,
			resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name,
		}
	}).refusing("field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s"),
}

// otherVersions are those in which kinds have the field labels of v1.
var otherVersions = map[schema.GroupKind][]string{
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest").GroupKind(): {"v1beta1"},
	certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle").GroupKind():        {"v1beta1", "v1alpha1"},
	certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest").GroupKind():     {"v1beta1", "v1alpha1"},
	resourcev1.SchemeGroupVersion.WithKind("ResourceSlice").GroupKind():                 {"v1beta2", "v1beta1"},
}

// builtInOf returns the field labels of a built-in kind, nil if there are none.
func builtInOf(kind schema.GroupVersionKind) *fieldLabels {
	if !slices.Contains(otherVersions[kind.GroupKind()], kind.Version) {
		return builtIn[kind]
	}
	l := *builtIn[kind.GroupKind().WithVersion("v1")]
	l.refusal = strings.Replace(l.refusal, "/v1,", "/"+kind.Version+",", 1)
	return &l
}

// nodeField is the field by which agents select the pods of their node.
const nodeField = "spec.nodeName"

// podFields has no value for status.podIPs: the server takes the label, and does not set
// the field.
func podFields(p *corev1.Pod) fields.Set {
	return fields.Set{
		nodeField: p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy),
		"spec.schedulerName": p.Spec.SchedulerName, "spec.serviceAccountName": p.Spec.ServiceAccountName,
		"spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork), "status.phase": string(p.Status.Phase),
		"status.podIP": p.Status.PodIP, "status.podIPs": "", "status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}

func eventFields(of corev1.ObjectReference, name string, set fields.Set) fields.Set {
	for field, value := range map[string]string{
		"kind": of.Kind, "namespace": of.Namespace, "name": of.Name, "uid": string(of.UID),
		"apiVersion": of.APIVersion, "resourceVersion": of.ResourceVersion, "fieldPath": of.FieldPath,
	} {
		set[name+"."+field] = value
	}
	return set
}

// fieldLabels returns the field labels of the scope beside name and namespace, nil if
// there are none, as without the objects. Those of a custom resource are in its
// definition (KEP-4358).
func (s *served) fieldLabels() *fieldLabels {
	if s.Scope.Form == store.Metadata {
		return nil
	}
	if l := builtInOf(s.Scope.Kind); l != nil || s.Scope.Form != store.Unstructured {
		return l
	}
	crd := s.server.definitionOf(s.Collection)
	if crd == nil {
		return nil
	}
	return selectableFields(crd, s.Scope.Kind.Version)
}

func selectableFields(crd *unstructured.Unstructured, version string) *fieldLabels {
	paths := map[string]*jsonpath.JSONPath{}
	selectable, _, _ := unstructured.NestedSlice(definedVersion(crd, version), "selectableFields")
	for _, f := range selectable {
		f, _ := f.(map[string]any)
		path, _ := f["jsonPath"].(string)
		parsed := jsonpath.New(path).AllowMissingKeys(true)
		if len(path) > 1 && parsed.Parse("{"+path+"}") == nil {
			paths[path[1:]] = parsed
		}
	}
	return &fieldLabels{
		names: slices.Collect(maps.Keys(paths)),
		of: func(obj runtime.Object) fields.Set {
			u, ok := obj.(*unstructured.Unstructured)
			if !ok {
				return nil
			}
			set := fields.Set{}
			for name, path := range paths {
				set[name] = ""
				found, err := path.FindResults(u.Object)
				if err != nil || len(found) == 0 || len(found[0]) == 0 || !found[0][0].CanInterface() {
					continue
				}
				if value := found[0][0].Interface(); value != nil { // null is as absent
					set[name] = fmt.Sprint(value)
				}
			}
			return set
		},
	}
}

// fieldSet returns the values of an object by which a field selector selects.
func (l *fieldLabels) fieldSet(obj runtime.Object) (fields.Set, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	set := fields.Set{}
	if l != nil {
		set = l.of(obj)
	}
	if set == nil {
		return nil, fmt.Errorf("the fields of a %T cannot be read", obj)
	}
	set[nameField], set[namespaceField] = m.GetName(), m.GetNamespace()
	return set, nil
}

const nameField, namespaceField = "metadata.name", "metadata.namespace"

// convertor is what the handlers ask for the field labels. No object is converted.
type convertor struct {
	runtime.ObjectConvertor
	of *served
}

// ConvertFieldLabel implements runtime.ObjectConvertor.
func (c convertor) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	l := c.of.fieldLabels()
	switch {
	case l == nil:
		return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
	case label == nameField, label == namespaceField && c.of.server.isNamespaced(c.of):
		return label, value, nil
	case slices.Contains(l.names, label):
		return label, value, nil
	case l.alias[label] != "":
		return l.alias[label], value, nil
	}
	return "", "", fmt.Errorf(cmp.Or(l.refusal, "field label not supported: %s"), label)
}

// ConvertToVersion implements runtime.ObjectConvertor.
func (convertor) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}
