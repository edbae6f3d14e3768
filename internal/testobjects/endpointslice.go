package testobjects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointSlice returns endpoint slice i, about 4 KB as JSON: 5 to 14 endpoints of a
// service.
func EndpointSlice(i int, seed int64) *discoveryv1.EndpointSlice {
	s := newSource(streamEndpointSlice, i, seed)
	service := fmt.Sprintf("%s-%06d", domains[i%len(domains)], i)
	slice := &discoveryv1.EndpointSlice{ObjectMeta: s.objectMeta(i, namespaceOf(i), service+"-"+suffix(i))}
	slice.GenerateName = service + "-"
	slice.Generation = 1 + s.Int64N(50)
	slice.Labels = map[string]string{
		"app":                                    domains[i%len(domains)],
		"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
		discoveryv1.LabelServiceName:             service,
	}
	slice.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Service", Name: service, UID: s.uid(), Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	slice.AddressType = discoveryv1.AddressTypeIPv4
	slice.Ports = []discoveryv1.EndpointPort{
		{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))},
		{Name: new("metrics"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(9090))},
	}
	workload := newWorkload(i%Workloads, seed)
	for n := range 5 + s.IntN(10) {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", s.IntN(256), s.IntN(256), s.IntN(256))},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprintf("node-%03d.example.internal", s.IntN(nodes))),
			Zone:       new(s.pick([]string{"zone-a", "zone-b", "zone-c"})),
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: slice.Namespace, Name: workload.podName(20*i + n), UID: s.uid()},
		})
	}
	var fields fieldSet
	fields.leaf("addressType", "endpoints")
	fields.within("f:metadata", func() {
		fields.open("labels", func() { fields.leaf("endpointslice.kubernetes.io/managed-by", discoveryv1.LabelServiceName) })
	})
	fields.leaf("ports")
	slice.ManagedFields = []metav1.ManagedFieldsEntry{fields.entry("kube-controller-manager", "discovery.k8s.io/v1", "", slice.CreationTimestamp)}
	return slice
}
