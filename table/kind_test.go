package table_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/table"
)

// What the cells are is compared with the API server in e2e/table.

var now = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

var apiServices = schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}

func web() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "a", CreationTimestamp: metav1.NewTime(now.Add(-3 * time.Hour))},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", RestartCount: 2, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(now.Add(-time.Minute))}},
		}}},
	}
}

func Example() {
	pod, _ := table.Of(corev1.SchemeGroupVersion.WithKind("Pod"))
	cells, err := pod.Cells(web(), now)
	if err != nil {
		panic(err)
	}
	for i, column := range pod.Columns() {
		if column.Priority == 0 {
			fmt.Printf("%s: %v\n", column.Name, cells[i])
		}
	}
	// Output:
	// Name: web
	// Ready: 0/1
	// Status: CrashLoopBackOff
	// Restarts: 2 (60s ago)
	// Age: 3h
}

func TestNamed(t *testing.T) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(web())
	if err != nil {
		t.Fatal(err)
	}
	metadata := &metav1.PartialObjectMetadata{ObjectMeta: web().ObjectMeta}
	for _, obj := range []runtime.Object{web(), metadata, &unstructured.Unstructured{Object: content}} {
		cells, err := table.Named().Cells(obj, now)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
		}
		if diff := cmp.Diff([]any{"web", "3h"}, cells); diff != "" {
			t.Errorf("%T (-want +got):\n%s", obj, diff)
		}
	}
	if _, err := table.Named().Cells(&metav1.Status{}, now); err == nil {
		t.Error("an object without metadata has cells")
	}
}

// TestUnfit checks that an object of another type is refused, and that the error does not
// quote it.
func TestUnfit(t *testing.T) {
	secret, _ := table.Of(corev1.SchemeGroupVersion.WithKind("Secret"))
	odd := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"key": map[string]any{"password": "12345"}}}}
	for _, obj := range []runtime.Object{web(), odd} {
		if _, err := secret.Cells(obj, now); err == nil || strings.Contains(err.Error(), "12345") || strings.Contains(err.Error(), "password") {
			t.Errorf("%T: %v", obj, err)
		}
	}
}

// TestUnseen has states that the defaults and the controllers of the server hide.
func TestUnseen(t *testing.T) {
	availability := func(conditions ...any) map[string]any {
		return map[string]any{"status": map[string]any{"conditions": conditions}}
	}
	for _, test := range []struct {
		kind    schema.GroupVersionKind
		content map[string]any
		column  string
		want    any
	}{
		{apiServices, availability(map[string]any{"type": "Other", "status": "True"}), "Available", "Unknown"},
		{apiServices, availability(map[string]any{"type": "Available", "status": "False"}), "Available", "False"},
		{apiServices, availability(map[string]any{"type": "Available", "status": "Unknown", "reason": "Starting"}), "Available", "Unknown (Starting)"},
		{apiServices, availability(map[string]any{"type": "Available", "status": "True", "reason": "Passed"}), "Available", "True"},
		{flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"), nil, "MissingPL", "?"},
		{resourcev1.SchemeGroupVersion.WithKind("DeviceTaintRule"), nil, "TimeAdded", ""},
		{storagev1.SchemeGroupVersion.WithKind("CSIDriver"), nil, "AttachRequired", true},
	} {
		kind, _ := table.Of(test.kind)
		cells, err := kind.Cells(&unstructured.Unstructured{Object: test.content}, now)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range kind.Columns() {
			if c.Name == test.column && cells[i] != test.want {
				t.Errorf("%s, %s of %v: %v, want %v", test.kind.Kind, c.Name, test.content, cells[i], test.want)
			}
		}
	}
}

func TestUnknownKinds(t *testing.T) {
	if _, ok := table.Of(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pod"}); ok {
		t.Error("a kind of another group has columns")
	}
}

// TestUnusableDefinitions checks that there are no columns for a version that is not
// there, or if a path cannot be parsed.
func TestUnusableDefinitions(t *testing.T) {
	crd := func(path string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
			"name": "v1", "additionalPrinterColumns": []any{map[string]any{"name": "A", "type": "string", "jsonPath": path}},
		}}}}}
	}
	for _, test := range []struct {
		name, path, version string
		want                bool
	}{
		{"usable", ".spec.a", "v1", true},
		{"other version", ".spec.a", "v2", false},
		{"bad path", ".spec[", "v1", false},
	} {
		if _, ok := table.OfDefinition(crd(test.path), test.version); ok != test.want {
			t.Errorf("%s: %v", test.name, ok)
		}
	}
	if _, ok := table.OfDefinition(&unstructured.Unstructured{Object: map[string]any{"spec": "x"}}, "v1"); ok {
		t.Error("a definition that cannot be read has columns")
	}
}

// TestCellsHaveColumns checks that each cell has a column, but for what the server sends
// without one, and each column a cell.
func TestCellsHaveColumns(t *testing.T) {
	for gvk := range scheme.Scheme.AllKnownTypes() {
		kind, ok := table.Of(gvk)
		if !ok {
			continue
		}
		obj, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := kind.Cells(obj, now)
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		want := len(kind.Columns())
		if gvk == networkingv1.SchemeGroupVersion.WithKind("IPAddress") {
			want++ // the age
		}
		if len(cells) != want {
			t.Errorf("%s: %d cells, want %d", gvk, len(cells), want)
		}
	}
}
