package codec_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/informctl/informctl/codec"
)

// realisticPod returns a pod of a deployment with a sidecar, as an API server returns it:
// about 7 KB of JSON.
func realisticPod() *corev1.Pod {
	when := metav1.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-7d4b9c6f5-x2x9k", GenerateName: "web-7d4b9c6f5-", Namespace: "shop", UID: "7e3b2c1d-5f6a-4b7c-8d9e-0a1b2c3d4e5f",
			ResourceVersion: "123456789", CreationTimestamp: when,
			Labels:          map[string]string{"app.kubernetes.io/name": "web", "pod-template-hash": "7d4b9c6f5", "tier": "front"},
			Annotations:     map[string]string{"prometheus.io/scrape": "true", "checksum/config": "0123456789abcdef0123456789abcdef"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b9c6f5", Controller: &yes}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-17", ServiceAccountName: "web", RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst,
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.2.3", HostIP: "192.0.2.7", StartTime: &when},
	}
	for _, m := range []string{"kube-controller-manager", "kubelet"} {
		pod.ManagedFields = append(pod.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: m, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &when, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:tier":{}}},"f:spec":{"f:containers":` +
				`{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:env":{},"f:resources":{},"f:ports":{},"f:livenessProbe":{}}}}}`),
		})
	}
	for _, name := range []string{"app", "proxy", "logs"} {
		pod.Spec.Containers = append(pod.Spec.Containers, realisticContainer(name))
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Ready: true, Image: "registry.example.com/shop/" + name + ":1.2.3", ContainerID: "containerd://0123456789abcdef",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: when}}, Started: &yes,
		})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
		}})
	}
	for _, c := range []corev1.PodConditionType{corev1.PodReady, corev1.PodInitialized, corev1.PodScheduled, corev1.ContainersReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: "True", LastTransitionTime: when})
	}
	return pod
}

func realisticContainer(name string) corev1.Container {
	c := corev1.Container{
		Name: name, Image: "registry.example.com/shop/" + name + ":1.2.3", ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("256Mi")},
			Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
		},
		LivenessProbe: &corev1.Probe{PeriodSeconds: 10, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http")},
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: name, MountPath: "/etc/" + name, ReadOnly: true}},
	}
	for i := range 12 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "a value of usual length"})
	}
	return c
}

func BenchmarkPod(b *testing.B) {
	pod := realisticPod()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		b.Fatal(err)
	}
	loose := &unstructured.Unstructured{Object: content}
	for _, of := range []struct {
		name  string
		codec codec.Codec
		obj   runtime.Object
	}{
		{"protobuf", mustFor(b, pod), pod},
		{"msgpack", mustMsgpack(b, pod), pod},
		{"unstructured", mustFor(b, loose), loose},
	} {
		data, err := of.codec.Encode(of.obj)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("encode/"+of.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := of.codec.Encode(of.obj); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+of.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := of.codec.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
