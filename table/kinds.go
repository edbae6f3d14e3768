package table

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds are the kinds that have columns of their own.
var kinds = map[schema.GroupVersionKind]Kind{
	corev1.SchemeGroupVersion.WithKind("ConfigMap"):             configMap,
	corev1.SchemeGroupVersion.WithKind("Endpoints"):             endpoints,
	corev1.SchemeGroupVersion.WithKind("Event"):                 coreEvent,
	corev1.SchemeGroupVersion.WithKind("Namespace"):             namespace,
	corev1.SchemeGroupVersion.WithKind("Node"):                  node,
	corev1.SchemeGroupVersion.WithKind("PersistentVolume"):      persistentVolume,
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"): persistentVolumeClaim,
	corev1.SchemeGroupVersion.WithKind("Pod"):                   pod,
	corev1.SchemeGroupVersion.WithKind("ReplicationController"): replicationController,
	corev1.SchemeGroupVersion.WithKind("Secret"):                secret,
	corev1.SchemeGroupVersion.WithKind("Service"):               service,
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"):        serviceAccount,

	appsv1.SchemeGroupVersion.WithKind("DaemonSet"):   daemonSet,
	appsv1.SchemeGroupVersion.WithKind("Deployment"):  deployment,
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):  replicaSet,
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"): statefulSet,

	autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"): horizontalPodAutoscaler,

	batchv1.SchemeGroupVersion.WithKind("CronJob"): cronJob,
	batchv1.SchemeGroupVersion.WithKind("Job"):     job,

	coordinationv1.SchemeGroupVersion.WithKind("Lease"): lease,

	discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"): endpointSlice,

	eventsv1.SchemeGroupVersion.WithKind("Event"): event,

	networkingv1.SchemeGroupVersion.WithKind("Ingress"):       ingress,
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"): networkPolicy,

	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): podDisruptionBudget,

	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):        clusterRole,
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"): clusterRoleBinding,
	rbacv1.SchemeGroupVersion.WithKind("Role"):               role,
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"):        roleBinding,

	storagev1.SchemeGroupVersion.WithKind("StorageClass"): storageClass,

	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: definition,
}
