package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestRestoreOfTwoResources checks what restore prints of an object that is one of two
// resources: of an event that of core, as kubectl does, and of others nothing.
func TestRestoreOfTwoResources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	deleted := store.Batch{RV: "11", Changes: []store.Change{{Key: "a/x", RV: "11"}}}
	events := &corev1.Event{ObjectMeta: objectMeta("a", "x", ""), Message: "of core"}
	writeLog(t, db, "events", "Event", []runtime.Object{events}, deleted)
	newer := &eventsv1.Event{ObjectMeta: objectMeta("a", "x", ""), Note: "newer"}
	writeScopeLog(t, db, store.Scope{Resource: "events.events.k8s.io", Kind: eventsv1.SchemeGroupVersion.WithKind("Event")}, []runtime.Object{newer}, deleted)
	for _, group := range []string{"a.example.com", "b.example.com"} {
		kind := schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Cluster"}
		cluster := &unstructured.Unstructured{}
		cluster.SetGroupVersionKind(kind)
		cluster.SetNamespace("a")
		cluster.SetName("x")
		writeScopeLog(t, db, store.Scope{Resource: "clusters." + group, Kind: kind, Form: store.Unstructured}, []runtime.Object{cluster}, deleted)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, at := range [][]string{nil, {"--at", "10"}} {
		for resource, want := range map[string]string{"events": "message: of core", "events.events.k8s.io": "note: newer", "clusters.b.example.com": "apiVersion: b.example.com/v1"} {
			got := say(t.Context(), append([]string{"restore", resource, "x", "-n", "a", "--db", path}, at...)...)
			if got.Code != 0 || !strings.Contains(got.Out, want) {
				t.Errorf("%s %s: %+v", resource, at, got)
			}
		}
		got := say(t.Context(), append([]string{"restore", "clusters", "x", "-n", "a", "--db", path}, at...)...)
		want := `informctl: 2 objects have that name, clusters.a.example.com "a/x" and clusters.b.example.com "a/x"; name the resource of one, as clusters.a.example.com` + "\n"
		if got.Code != 1 || got.Err != want {
			t.Errorf("%s: exit code %d, %s", at, got.Code, got.Err)
		}
	}
}

// TestRestoreOfWhatServersRefuse checks that restore leaves out what an API server
// refuses in an object that is created, or what makes its controllers take it for lost.
func TestRestoreOfWhatServersRefuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	deleted := store.Batch{RV: "11", Changes: []store.Change{{Key: "a/x", RV: "11"}}}
	debugged := &corev1.Pod{ObjectMeta: objectMeta("a", "x", ""), Spec: corev1.PodSpec{
		Containers:          []corev1.Container{{Name: "app"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}},
	}}
	writeLog(t, db, "pods", "Pod", []runtime.Object{debugged}, deleted)
	bound := &corev1.PersistentVolumeClaim{ObjectMeta: objectMeta("a", "x", ""), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v1"}}
	bound.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}
	writeLog(t, db, "persistentvolumeclaims", "PersistentVolumeClaim", []runtime.Object{bound}, deleted)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]string{"pods": "name: app", "pvc": "volumeName: v1"} {
		got := say(t.Context(), "restore", resource, "x", "-n", "a", "--db", path)
		if got.Code != 0 || !strings.Contains(got.Out, want) || strings.Contains(got.Out, "debugger") || strings.Contains(got.Out, "annotations") {
			t.Errorf("%s: %+v", resource, got)
		}
	}
}
