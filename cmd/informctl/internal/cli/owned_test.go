package cli_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// widgets is the scope of a custom resource.
var widgets = store.Scope{
	Resource: "widgets.demo.informctl.dev", Form: store.Unstructured,
	Kind: schema.GroupVersionKind{Group: "demo.informctl.dev", Version: "v1", Kind: "Widget"},
}

// writeOwners writes a file with two Deployments of one namespace and one of another,
// their ReplicaSets and Pods. The Deployment a/web was deleted with all that it owned,
// and created again. A Pod is of a StatefulSet, which is not held, and widgets are of
// two Services and another Deployment, which are not either.
func writeOwners(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	meta := func(namespace, name string, uid, owner types.UID, ownerKind, ownerName string) metav1.ObjectMeta {
		m := objectMeta(namespace, name, "")
		if m.UID = uid; owner != "" {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: ownerKind, Name: ownerName, UID: owner}}
		}
		return m
	}
	deployment := func(namespace, name string, uid types.UID) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta(namespace, name, uid, "", "", "")}
	}
	replicas := func(namespace, name string, uid, owner types.UID, ownerName string) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: meta(namespace, name, uid, owner, "Deployment", ownerName)}
	}
	of := func(namespace, name string, uid, owner types.UID, ownerKind, ownerName string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: meta(namespace, name, uid, owner, ownerKind, ownerName)}
	}
	deleted := func(rv, key string) store.Batch {
		return store.Batch{RV: rv, Changes: []store.Change{{Key: key, RV: rv}}}
	}
	changed := func(rv string, obj interface {
		metav1.Object
		runtime.Object
	},
	) store.Batch {
		obj.SetResourceVersion(rv)
		return store.Batch{RV: rv, Changes: []store.Change{{Object: obj}}}
	}
	moved := of("a", "web-1-x", "pod-x", "rs-1", "ReplicaSet", "web-1")
	moved.Status.Phase = corev1.PodRunning
	writeScopeLog(t, db, store.Scope{Resource: "deployments.apps", Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
		[]runtime.Object{deployment("a", "web", "web-1"), deployment("a", "api", "api-1"), deployment("b", "web", "web-b")},
		deleted("20", "a/web"), changed("30", deployment("a", "web", "web-2")))
	writeScopeLog(t, db, store.Scope{Resource: "replicasets.apps", Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet")},
		[]runtime.Object{
			replicas("a", "web-1", "rs-1", "web-1", "web"), replicas("a", "api-1", "rs-2", "api-1", "api"),
			replicas("b", "web-1", "rs-b", "web-b", "web"),
		},
		deleted("21", "a/web-1"), changed("31", replicas("a", "web-2", "rs-3", "web-2", "web")))
	writeScopeLog(t, db, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")},
		[]runtime.Object{
			of("a", "web-1-x", "pod-x", "rs-1", "ReplicaSet", "web-1"), of("a", "web-1-y", "pod-y", "rs-1", "ReplicaSet", "web-1"),
			of("a", "api-1-x", "pod-api", "rs-2", "ReplicaSet", "api-1"), of("b", "web-1-x", "pod-b", "rs-b", "ReplicaSet", "web-1"),
			of("a", "db-0", "pod-db", "db", "StatefulSet", "db"), of("a", "alone", "pod-alone", "", "", ""),
		},
		changed("12", moved), deleted("22", "a/web-1-x"), deleted("23", "a/web-1-y"), deleted("24", "a/api-1-x"),
		deleted("25", "b/web-1-x"), deleted("26", "a/db-0"), deleted("27", "a/alone"),
		changed("32", of("a", "web-2-x", "pod-2", "rs-3", "ReplicaSet", "web-2")))
	owned := func(name, version, kind, ownerName string, owner types.UID) runtime.Object {
		w := atVersion(widget("a", name))
		w.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: ownerName, UID: owner}})
		w.SetUID(types.UID("widget-" + name))
		return w
	}
	writeScopeLog(t, db, widgets, []runtime.Object{
		owned("w", "v1", "Pod", "web-1-x", "pod-x"), owned("core", "v1", "Service", "front", "service"),
		owned("knative", "serving.knative.dev/v1", "Service", "front", "knative"), owned("other", "example.com/v1", "Deployment", "gone", "gone"),
	}, deleted("28", "a/w"), deleted("33", "a/core"), deleted("34", "a/knative"), deleted("35", "a/other"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
