// Package v1alpha1 is the API of the sample controller: the kind Greeter and its client.
//
// # Concurrency
//
// A Client is safe for concurrent use.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of all types here.
	GroupVersion = schema.GroupVersion{Group: "samplecontroller.informctl.dev", Version: "v1alpha1"}
	// GreeterKind is the kind of Greeter, for owner references.
	GreeterKind = GroupVersion.WithKind("Greeter")
)

// Greeter requests a Deployment with a number of replicas that say hello.
type Greeter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GreeterSpec   `json:"spec"`
	Status GreeterStatus `json:"status,omitempty"`
}

// GreeterSpec is the requested state.
type GreeterSpec struct {
	// DeploymentName is the name of the Deployment in the Greeter's namespace. A
	// Deployment with an earlier name is deleted.
	DeploymentName string `json:"deploymentName"`
	// Replicas is the number of replicas of the Deployment; the CRD's default is 1.
	Replicas int32 `json:"replicas"`
}

// Applied is a condition of a Greeter: its Deployment matches the spec.
const Applied = "Applied"

// GreeterStatus is the observed state.
type GreeterStatus struct {
	// AvailableReplicas is the number of available replicas of the Deployment.
	AvailableReplicas int32 `json:"availableReplicas"`
	// Conditions contains only Applied.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GreeterList is a list of Greeters.
type GreeterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Greeter `json:"items"`
}

// AddToScheme adds the types here to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Greeter{}, &GreeterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
