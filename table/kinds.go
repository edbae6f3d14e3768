package table

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kinds are the kinds that have columns of their own.
var kinds = map[schema.GroupVersionKind]Kind{
	corev1.SchemeGroupVersion.WithKind("ConfigMap"):             configMap,
	corev1.SchemeGroupVersion.WithKind("Endpoints"):             endpoints,
	corev1.SchemeGroupVersion.WithKind("Event"):                 coreEvent,
	corev1.SchemeGroupVersion.WithKind("LimitRange"):            limitRange,
	corev1.SchemeGroupVersion.WithKind("Namespace"):             namespace,
	corev1.SchemeGroupVersion.WithKind("Node"):                  node,
	corev1.SchemeGroupVersion.WithKind("PersistentVolume"):      persistentVolume,
	corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"): persistentVolumeClaim,
	corev1.SchemeGroupVersion.WithKind("Pod"):                   pod,
	corev1.SchemeGroupVersion.WithKind("PodTemplate"):           podTemplate,
	corev1.SchemeGroupVersion.WithKind("ReplicationController"): replicationController,
	corev1.SchemeGroupVersion.WithKind("ResourceQuota"):         resourceQuota,
	corev1.SchemeGroupVersion.WithKind("Secret"):                secret,
	corev1.SchemeGroupVersion.WithKind("Service"):               service,
	corev1.SchemeGroupVersion.WithKind("ServiceAccount"):        serviceAccount,

	admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicy"):          mutatingPolicy,
	admissionv1.SchemeGroupVersion.WithKind("MutatingAdmissionPolicyBinding"):   mutatingPolicyBinding,
	admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"):     mutatingWebhooks,
	admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"):        validatingPolicy,
	admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicyBinding"): validatingPolicyBinding,
	admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"):   validatingWebhooks,

	appsv1.SchemeGroupVersion.WithKind("ControllerRevision"): controllerRevision,
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"):          daemonSet,
	appsv1.SchemeGroupVersion.WithKind("Deployment"):         deployment,
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"):         replicaSet,
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"):        statefulSet,

	autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"): horizontalPodAutoscaler,

	batchv1.SchemeGroupVersion.WithKind("CronJob"): cronJob,
	batchv1.SchemeGroupVersion.WithKind("Job"):     job,

	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): certificateSigningRequest,
	certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"):        clusterTrustBundle,
	certificatesv1.SchemeGroupVersion.WithKind("PodCertificateRequest"):     podCertificateRequest,

	coordinationv1.SchemeGroupVersion.WithKind("Lease"): lease,

	discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"): endpointSlice,

	eventsv1.SchemeGroupVersion.WithKind("Event"): event,

	flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"):                 flowSchema,
	flowcontrolv1.SchemeGroupVersion.WithKind("PriorityLevelConfiguration"): priorityLevel,

	networkingv1.SchemeGroupVersion.WithKind("IPAddress"):     ipAddress,
	networkingv1.SchemeGroupVersion.WithKind("Ingress"):       ingress,
	networkingv1.SchemeGroupVersion.WithKind("IngressClass"):  ingressClass,
	networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"): networkPolicy,
	networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"):   serviceCIDR,

	nodev1.SchemeGroupVersion.WithKind("RuntimeClass"): runtimeClass,

	policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"): podDisruptionBudget,

	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"):        clusterRole,
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"): clusterRoleBinding,
	rbacv1.SchemeGroupVersion.WithKind("Role"):               role,
	rbacv1.SchemeGroupVersion.WithKind("RoleBinding"):        roleBinding,

	resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"): deviceTaintRule,
	resourcev1.SchemeGroupVersion.WithKind("ResourceClaim"):   resourceClaim,
	resourcev1.SchemeGroupVersion.WithKind("ResourceSlice"):   resourceSlice,

	schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"): priorityClass,

	storagev1.SchemeGroupVersion.WithKind("CSIDriver"):             csiDriver,
	storagev1.SchemeGroupVersion.WithKind("CSINode"):               csiNode,
	storagev1.SchemeGroupVersion.WithKind("CSIStorageCapacity"):    csiStorageCapacity,
	storagev1.SchemeGroupVersion.WithKind("StorageClass"):          storageClass,
	storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"):      volumeAttachment,
	storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"): volumeAttributesClass,

	migrationv1.SchemeGroupVersion.WithKind("StorageVersionMigration"): storageVersionMigration,

	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: definition,
	{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:             apiService,
}
