package testobjects

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const serviceAccountPath = "/var/run/secrets/kubernetes.io/serviceaccount"

func (w workload) mainContainer(token string) corev1.Container {
	c := container("app", w.image, resources(w.cpu, w.memory))
	c.Args = []string{"--config=/etc/app/config.yaml", "--shutdown-timeout=25s", "--metrics-address=:9090"}
	c.Ports = []corev1.ContainerPort{
		{Name: "http", ContainerPort: w.port, Protocol: corev1.ProtocolTCP},
		{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP},
	}
	for _, setting := range w.env {
		c.Env = append(c.Env, corev1.EnvVar{Name: setting[0], Value: setting[1]})
	}
	c.Env = append(c.Env,
		fromField("POD_NAME", "metadata.name"),
		fromField("POD_IP", "status.podIP"),
		corev1.EnvVar{Name: "DATABASE_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: w.app + "-database"}, Key: "password",
		}}},
	)
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "config", MountPath: "/etc/app", ReadOnly: true},
		{Name: "tls", MountPath: "/etc/tls", ReadOnly: true},
		{Name: "tmp", MountPath: "/tmp"},
		{Name: token, MountPath: serviceAccountPath, ReadOnly: true},
	}
	c.LivenessProbe = httpProbe("/healthz", intstr.FromString("http"), 10)
	c.ReadinessProbe = httpProbe("/readyz", intstr.FromString("http"), 5)
	return c
}

func (w workload) proxyContainer(token string) corev1.Container {
	c := container("proxy", w.proxyImage, resources("100m", "128Mi"))
	c.Args = []string{"sidecar", "--domain=$(POD_NAMESPACE).svc.cluster.local", "--concurrency=2", "--log-level=warning"}
	c.Ports = []corev1.ContainerPort{{Name: "proxy-admin", ContainerPort: 15000, Protocol: corev1.ProtocolTCP}}
	c.Env = []corev1.EnvVar{
		fromField("POD_NAMESPACE", "metadata.namespace"),
		fromField("HOST_IP", "status.hostIP"),
		{Name: "PROXY_CLUSTER", Value: w.app + "." + w.namespace},
		{Name: "PROXY_DISCOVERY_ADDRESS", Value: "discovery.mesh-system.svc:15012"},
	}
	c.VolumeMounts = []corev1.VolumeMount{
		{Name: "proxy-config", MountPath: "/etc/proxy", ReadOnly: true},
		{Name: token, MountPath: serviceAccountPath, ReadOnly: true},
	}
	c.ReadinessProbe = httpProbe("/ready", intstr.FromInt32(15000), 15)
	return c
}

// container returns a container with the fields that the API server defaults.
func container(name, image string, limits corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{
		Name:                     name,
		Image:                    image,
		Resources:                limits,
		TerminationMessagePath:   corev1.TerminationMessagePathDefault,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		ImagePullPolicy:          corev1.PullIfNotPresent,
		SecurityContext: &corev1.SecurityContext{
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
		},
	}
}

// resources limits memory only, which makes the pod Burstable.
func resources(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)},
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(cpu),
			corev1.ResourceMemory: resource.MustParse(memory),
		},
	}
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}

func httpProbe(path string, port intstr.IntOrString, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:     corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: port, Scheme: corev1.URISchemeHTTP}},
		TimeoutSeconds:   2,
		PeriodSeconds:    period,
		SuccessThreshold: 1,
		FailureThreshold: 3,
	}
}
