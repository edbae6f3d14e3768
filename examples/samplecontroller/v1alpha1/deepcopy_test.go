package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/examples/samplecontroller/v1alpha1"
)

func greeter() *v1alpha1.Greeter {
	return &v1alpha1.Greeter{
		ObjectMeta: metav1.ObjectMeta{Name: "hello", Labels: map[string]string{"app": "hello"}},
		Spec:       v1alpha1.GreeterSpec{DeploymentName: "hello", Replicas: 2},
		Status: v1alpha1.GreeterStatus{
			AvailableReplicas: 1, Conditions: []metav1.Condition{{Type: v1alpha1.Applied, Status: metav1.ConditionTrue}},
		},
	}
}

func change(g *v1alpha1.Greeter) {
	g.Labels["app"] = "changed"
	g.Spec.Replicas = 3
	g.Status.Conditions[0].Status = metav1.ConditionFalse
}

// TestDeepCopy checks that a copy is equal and does not change with the original.
func TestDeepCopy(t *testing.T) {
	one, list := greeter(), &v1alpha1.GreeterList{Items: []v1alpha1.Greeter{*greeter()}}
	copies := []runtime.Object{one.DeepCopyObject(), list.DeepCopyObject()}
	if diff := cmp.Diff([]runtime.Object{one, list}, copies); diff != "" {
		t.Errorf("copies differ (-object +copy):\n%s", diff)
	}
	change(one)
	change(&list.Items[0])
	want := []runtime.Object{greeter(), &v1alpha1.GreeterList{Items: []v1alpha1.Greeter{*greeter()}}}
	if diff := cmp.Diff(want, copies); diff != "" {
		t.Errorf("changing the objects changed their copies (-want +got):\n%s", diff)
	}
	var none *v1alpha1.Greeter
	if none.DeepCopyObject() != nil {
		t.Error("the copy of nil is not nil")
	}
}
