// Package v1alpha1 is the API of the sample controller: the kind Greeter, and a
// client of it.
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
	// GroupVersion is that of every type here.
	GroupVersion = schema.GroupVersion{Group: "samplecontroller.informctl.dev", Version: "v1alpha1"}
	// GreeterKind is the kind of Greeter, for owner references.
	GreeterKind = GroupVersion.WithKind("Greeter")
)

// Greeter asks for a Deployment of that many replicas which say hello.
type Greeter struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GreeterSpec   `json:"spec"`
	Status GreeterStatus `json:"status,omitempty"`
}

// GreeterSpec is what is asked for.
type GreeterSpec struct {
	// DeploymentName names the Deployment, in the Greeter's namespace. The one of
	// an earlier name is deleted.
	DeploymentName string `json:"deploymentName"`
	// Replicas are those of the Deployment; the CRD's default is 1.
	Replicas int32 `json:"replicas"`
}

// Applied is the type of a Greeter's condition: its Deployment is as the spec says.
const Applied = "Applied"

// GreeterStatus is what has been done about it.
type GreeterStatus struct {
	// AvailableReplicas are those of the Deployment.
	AvailableReplicas int32 `json:"availableReplicas"`
	// Conditions are Applied and no other.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GreeterList is a list of Greeters.
type GreeterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Greeter `json:"items"`
}

// AddToScheme makes a scheme know the types here.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Greeter{}, &GreeterList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
