package testobjects

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fieldSet writes a FieldsV1 document in the order of its calls.
type fieldSet struct{ strings.Builder }

// leaf adds fields that contain no other fields.
func (f *fieldSet) leaf(names ...string) {
	for _, name := range names {
		f.element("f:" + name)
		f.WriteString("{}")
	}
}

// open adds a map that its manager owns as a whole. body adds the fields of the map.
func (f *fieldSet) open(name string, body func()) {
	f.within("f:"+name, func() {
		f.owned()
		body()
	})
}

// item adds the list item with the given key, a JSON object.
func (f *fieldSet) item(key string, body func()) {
	f.within("k:"+key, func() {
		f.owned()
		body()
	})
}

// within adds an element that its manager does not own itself. body adds the owned fields
// below.
func (f *fieldSet) within(element string, body func()) {
	f.element(element)
	f.WriteByte('{')
	body()
	f.WriteByte('}')
}

func (f *fieldSet) owned() { f.WriteString(`".":{}`) }

func (f *fieldSet) element(name string) {
	if s := f.String(); s != "" && !strings.HasSuffix(s, "{") {
		f.WriteByte(',')
	}
	f.WriteString(strconv.Quote(name))
	f.WriteByte(':')
}

func (f *fieldSet) entry(manager, apiVersion, subresource string, at metav1.Time) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: apiVersion, Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{" + f.String() + "}"), Subresource: subresource,
	}
}

// podManagedFields returns the entries of the two writers of pod.
func podManagedFields(pod *corev1.Pod) []metav1.ManagedFieldsEntry {
	var spec, status fieldSet
	spec.within("f:metadata", func() {
		spec.open("annotations", func() { spec.leaf(slices.Sorted(maps.Keys(pod.Annotations))...) })
		spec.leaf("generateName")
		spec.open("labels", func() { spec.leaf(slices.Sorted(maps.Keys(pod.Labels))...) })
		spec.open("ownerReferences", func() {
			for _, owner := range pod.OwnerReferences {
				spec.item(fmt.Sprintf(`{"uid":%q}`, owner.UID), func() {})
			}
		})
	})
	spec.within("f:spec", func() { spec.podSpec(&pod.Spec) })
	status.within("f:status", func() { status.podStatus(&pod.Status) })
	readyAt := pod.Status.Conditions[2].LastTransitionTime
	return []metav1.ManagedFieldsEntry{
		spec.entry("kube-controller-manager", "v1", "", pod.CreationTimestamp),
		status.entry("kubelet", "v1", "status", readyAt),
	}
}

func (f *fieldSet) podSpec(spec *corev1.PodSpec) {
	f.within("f:containers", func() {
		for k := range spec.Containers {
			c := &spec.Containers[k]
			f.item(fmt.Sprintf(`{"name":%q}`, c.Name), func() { f.container(c) })
		}
	})
	f.leaf("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName")
	f.open("securityContext", func() { f.leaf("fsGroup", "runAsNonRoot", "runAsUser") })
	f.leaf("serviceAccount", "serviceAccountName", "terminationGracePeriodSeconds", "tolerations")
	f.open("volumes", func() {
		for _, v := range spec.Volumes {
			f.item(fmt.Sprintf(`{"name":%q}`, v.Name), func() { f.volume(v) })
		}
	})
}

func (f *fieldSet) container(c *corev1.Container) {
	f.leaf("args")
	f.open("env", func() {
		for _, env := range c.Env {
			f.item(fmt.Sprintf(`{"name":%q}`, env.Name), func() { f.env(env) })
		}
	})
	f.leaf("image", "imagePullPolicy")
	f.probe("livenessProbe", c.LivenessProbe)
	f.leaf("name")
	f.open("ports", func() {
		for _, port := range c.Ports {
			f.item(fmt.Sprintf(`{"containerPort":%d,"protocol":%q}`, port.ContainerPort, port.Protocol), func() {
				f.leaf("containerPort", "name", "protocol")
			})
		}
	})
	f.probe("readinessProbe", c.ReadinessProbe)
	f.open("resources", func() {
		f.open("limits", func() { f.leaf("memory") })
		f.open("requests", func() { f.leaf("cpu", "memory") })
	})
	f.open("securityContext", func() {
		f.leaf("allowPrivilegeEscalation")
		f.open("capabilities", func() { f.leaf("drop") })
		f.leaf("readOnlyRootFilesystem")
	})
	f.leaf("terminationMessagePath", "terminationMessagePolicy")
	f.open("volumeMounts", func() {
		for _, mount := range c.VolumeMounts {
			f.item(fmt.Sprintf(`{"mountPath":%q}`, mount.MountPath), func() {
				f.leaf("mountPath", "name")
				if mount.ReadOnly {
					f.leaf("readOnly")
				}
			})
		}
	})
}

func (f *fieldSet) env(env corev1.EnvVar) {
	f.leaf("name")
	if env.ValueFrom == nil {
		f.leaf("value")
		return
	}
	f.open("valueFrom", func() {
		if env.ValueFrom.FieldRef != nil {
			f.leaf("fieldRef")
		} else {
			f.leaf("secretKeyRef")
		}
	})
}

func (f *fieldSet) probe(name string, probe *corev1.Probe) {
	if probe == nil {
		return
	}
	f.open(name, func() {
		f.leaf("failureThreshold")
		f.open("httpGet", func() { f.leaf("path", "port", "scheme") })
		f.leaf("periodSeconds", "successThreshold", "timeoutSeconds")
	})
}

func (f *fieldSet) volume(v corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		f.open("configMap", func() { f.leaf("defaultMode", "name") })
	case v.Secret != nil:
		f.open("secret", func() { f.leaf("defaultMode", "secretName") })
	case v.EmptyDir != nil:
		f.leaf("emptyDir")
	case v.Projected != nil:
		f.open("projected", func() { f.leaf("defaultMode", "sources") })
	}
	f.leaf("name")
}

func (f *fieldSet) podStatus(status *corev1.PodStatus) {
	f.within("f:conditions", func() {
		for _, condition := range status.Conditions {
			f.item(fmt.Sprintf(`{"type":%q}`, condition.Type), func() {
				f.leaf("lastProbeTime", "lastTransitionTime", "observedGeneration", "status", "type")
			})
		}
	})
	f.leaf("containerStatuses", "hostIP")
	f.open("hostIPs", func() {})
	f.leaf("observedGeneration", "phase", "podIP")
	f.open("podIPs", func() {
		for _, ip := range status.PodIPs {
			f.item(fmt.Sprintf(`{"ip":%q}`, ip.IP), func() { f.leaf("ip") })
		}
	})
	f.leaf("startTime")
}
