package testobjects

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodes is the number of nodes that pods run on.
const nodes = 500

// PodKey returns the namespace and name of pod i.
func PodKey(i int) (namespace, name string) {
	w := newWorkload(i%Workloads, 0)
	return w.namespace, w.podName(i)
}

func (w workload) podName(i int) string {
	return w.app + "-" + w.hash + "-" + suffix(i)
}

// Pod returns running pod i: about 13 KB as JSON and 9.6 KB as protobuf, more than half
// of that managed fields. It has two containers and belongs to one of 300 ReplicaSets in
// 51 namespaces; every 50th pod is in "default". An API server accepts it after
// [ClearServerFields], with the status written by UpdateStatus.
func Pod(i int, seed int64) *corev1.Pod {
	w := newWorkload(i%Workloads, seed)
	s := newSource(streamPod, i, seed)
	pod := &corev1.Pod{ObjectMeta: s.objectMeta(i, w.namespace, w.podName(i))}
	pod.Generation = 1
	pod.GenerateName = w.app + "-" + w.hash + "-"
	pod.Labels = w.labels()
	pod.Annotations = map[string]string{
		"checksum/config":                   w.checksum,
		"kubectl.kubernetes.io/restartedAt": pod.CreationTimestamp.Add(-time.Minute).Format(time.RFC3339),
		"prometheus.io/port":                fmt.Sprint(w.port),
		"prometheus.io/scrape":              "true",
		"mesh.example.com/status":           `{"containers":["proxy"],"revision":"stable","volumes":["proxy-config","proxy-data"]}`,
	}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "ReplicaSet", Name: w.app + "-" + w.hash, UID: w.uid,
		Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	node := s.IntN(nodes)
	pod.Spec = w.podSpec(fmt.Sprintf("node-%03d.example.internal", node), suffix(s.IntN(1<<20)))
	pod.Status = w.podStatus(s, pod, node)
	pod.ManagedFields = podManagedFields(pod)
	return pod
}

func (w workload) labels() map[string]string {
	return map[string]string{
		"app":                          w.app,
		"app.kubernetes.io/name":       w.app,
		"app.kubernetes.io/version":    w.version,
		"app.kubernetes.io/managed-by": "Helm",
		"pod-template-hash":            w.hash,
		"team":                         w.team,
		"tier":                         w.tier,
	}
}

func (w workload) podSpec(node, tokenSuffix string) corev1.PodSpec {
	token := "kube-api-access-" + tokenSuffix
	return corev1.PodSpec{
		Volumes:                       w.volumes(token),
		Containers:                    []corev1.Container{w.mainContainer(token), w.proxyContainer(token)},
		RestartPolicy:                 corev1.RestartPolicyAlways,
		TerminationGracePeriodSeconds: new(int64(30)),
		DNSPolicy:                     corev1.DNSClusterFirst,
		ServiceAccountName:            w.app,
		DeprecatedServiceAccount:      w.app,
		NodeName:                      node,
		SecurityContext:               &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), FSGroup: new(int64(65532))},
		SchedulerName:                 corev1.DefaultSchedulerName,
		Tolerations: []corev1.Toleration{
			{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
			{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(300))},
		},
		Priority:           new(int32(0)),
		EnableServiceLinks: new(true),
		PreemptionPolicy:   new(corev1.PreemptLowerPriority),
	}
}

func (w workload) volumes(token string) []corev1.Volume {
	mode := new(int32(0o644))
	configMap := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, DefaultMode: mode,
		}}
	}
	return []corev1.Volume{
		{Name: "config", VolumeSource: configMap(w.app + "-config")},
		{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: w.app + "-tls", DefaultMode: mode}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "proxy-config", VolumeSource: configMap("proxy-config")},
		{Name: token, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: mode,
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: new(int64(3607)), Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
					Path:     "namespace",
					FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
				}}}},
			},
		}}},
	}
}
