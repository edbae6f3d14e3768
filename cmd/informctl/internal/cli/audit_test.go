package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// auditCluster is the identity of auditServer's cluster.
const auditCluster = "kube-system/the-cluster"

// writeAudited makes a file with checkpoint 1000.
func writeAudited(t *testing.T, path, cluster string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind schema.GroupVersionKind, resource string, form store.Form, objects ...runtime.Object) {
		fillScope(t, db, []index.Index{index.Namespace()}, store.Scope{Cluster: cluster, Resource: resource, Kind: kind, Form: form}, objects...)
	}
	write(corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed,
		pod("a", "same", "web"), pod("a", "uid", "web"), pod("a", "content", "web"),
		pod("a", "version", "web"), pod("a", "changed", "web"), pod("a", "gone", "web"))
	write(corev1.SchemeGroupVersion.WithKind("Node"), "nodes", store.Typed,
		&corev1.Node{ObjectMeta: objectMeta("", "same", "")}, &corev1.Node{ObjectMeta: objectMeta("", "ghost", "")})
	write(corev1.SchemeGroupVersion.WithKind("ConfigMap"), "configmaps", store.Typed)
	write(schema.GroupVersionKind{Group: "demo.informctl.dev", Version: "v1", Kind: "Widget"},
		"widgets.demo.informctl.dev", store.Unstructured, atVersion(widget("default", "same")), atVersion(widget("default", "content")))
	write(corev1.SchemeGroupVersion.WithKind("Service"), "services", store.Typed)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func atVersion(u *unstructured.Unstructured) *unstructured.Unstructured {
	u.SetUID("f4a1")
	u.SetResourceVersion("7")
	return u
}

// auditServer starts an API server with the objects of writeAudited and some differences.
// Its pages have two objects. It refuses to list deployments.
func auditServer(t *testing.T) (url string) {
	t.Helper()
	changed := func(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
		change(p)
		return p
	}
	at := func(rv string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = rv } }
	other := atVersion(widget("default", "content"))
	if err := unstructured.SetNestedField(other.Object, "new", "spec", "added"); err != nil {
		t.Fatal(err)
	}
	lists := map[string]struct {
		rv    string
		items []any
	}{
		"/api/v1/pods": {"2000", []any{
			pod("a", "same", "web"),
			changed(pod("a", "uid", "web"), func(p *corev1.Pod) { p.UID = "another" }),
			changed(pod("a", "content", "web"), func(p *corev1.Pod) { p.Spec.NodeName = "hunter2" }),
			changed(pod("a", "version", "web"), at("800")),
			changed(pod("a", "changed", "web"), at("1500")),
			changed(pod("a", "missing", "web"), at("900")),
			changed(pod("a", "later", "web"), at("1600")),
		}},
		"/api/v1/nodes":                       {"1000", []any{&corev1.Node{ObjectMeta: objectMeta("", "same", "")}}},
		"/api/v1/configmaps":                  {"999", []any{}},
		"/apis/demo.informctl.dev/v1/widgets": {"2000", []any{atVersion(widget("default", "same")), other}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		q := r.URL.Query()
		if r.URL.Path == "/api/v1/namespaces/kube-system" {
			_ = json.NewEncoder(w).Encode(corev1.Namespace{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "the-cluster"},
			})
			return
		}
		if r.URL.Path == "/apis/apps/v1/deployments" {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: "deployments.apps is forbidden: no such right"})
			return
		}
		list, ok := lists[r.URL.Path]
		if !ok || q.Get("resourceVersion") != "" || q.Get("limit") != "500" {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "no such thing"})
			return
		}
		from, _ := strconv.Atoi(q.Get("continue"))
		items, more := list.items[from:], ""
		if len(items) > 2 {
			items, more = items[:2], strconv.Itoa(from+2)
		}
		kind := map[string]string{"/api/v1/pods": "PodList", "/api/v1/nodes": "NodeList", "/api/v1/configmaps": "ConfigMapList"}[r.URL.Path]
		version := "v1"
		if kind == "" {
			kind, version = "WidgetList", "demo.informctl.dev/v1"
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"apiVersion": version, "kind": kind,
			"metadata": map[string]any{"resourceVersion": list.rv, "continue": more}, "items": items,
		})
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func kubeconfig(server string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, server)
}
