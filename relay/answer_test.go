package relay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// serverOf returns a Server of the objects of one kind, which have their keys as names.
func serverOf(t *testing.T, resource string, kind schema.GroupVersionKind, objects ...runtime.Object) *Server {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	scope := store.Scope{Resource: resource, Kind: kind}
	server, err := New(Collections{filled(t, db, scope, objects[0], objects...)}, Options{Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// get returns what a Server answers.
func get(t *testing.T, s *Server, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://localhost"+path, nil)
	r.Header.Set("Authorization", "Bearer x")
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestListOfOtherCodec lists objects of which one cannot be stored as protobuf.
func TestListOfOtherCodec(t *testing.T) {
	plain := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x", ResourceVersion: "1", Annotations: map[string]string{"pad": strings.Repeat("a", 300)}}}
	other := plain.DeepCopy()
	other.Name = "b"
	other.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}}}
	s := serverOf(t, "statefulsets.apps", appsv1.SchemeGroupVersion.WithKind("StatefulSet"), plain, other)
	w := get(t, s, "/apis/apps/v1/statefulsets", runtime.ContentTypeProtobuf)
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(w.Body.Bytes(), nil, nil)
	if list, ok := obj.(*appsv1.StatefulSetList); err != nil || !ok || len(list.Items) != 2 {
		t.Errorf("%d, %v, %v", w.Code, obj, err)
	}
}

// TestListOfKinds lists objects again and again that are stored with apiVersion and kind,
// as a transform may set them.
func TestListOfKinds(t *testing.T) {
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1", Annotations: map[string]string{"pad": strings.Repeat("a", 300)}},
	}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	for i := range 4 {
		for _, accept := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
			if w := get(t, s, "/api/v1/nodes", accept); w.Code != http.StatusOK {
				t.Errorf("list %d as %s: %d, %s", i+1, accept, w.Code, w.Body)
			}
		}
	}
}

// TestTableOfCompleted asks for a Table of pods of which one has ended.
func TestTableOfCompleted(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "x", ResourceVersion: "1"}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}
	running := pod.DeepCopy()
	running.Name, running.Status.Phase = "b", corev1.PodRunning
	s := serverOf(t, "pods", corev1.SchemeGroupVersion.WithKind("Pod"), pod, running)
	w := get(t, s, "/api/v1/pods?includeObject=None", "application/json;as=Table;g=meta.k8s.io;v=v1")
	var table metav1.Table
	if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || len(table.Rows) != 2 {
		t.Fatalf("%d, %v: %s", w.Code, err, w.Body)
	}
	if c := table.Rows[0].Conditions; len(c) != 1 || c[0].Type != metav1.RowCompleted {
		t.Errorf("the row of a pod that has ended has %v", c)
	}
	if c := table.Rows[1].Conditions; c != nil {
		t.Errorf("the row of a pod that runs has %v", c)
	}
}

// TestVersionOfMetadata asks for metadata in both versions that there are.
func TestVersionOfMetadata(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	for _, version := range []string{"v1", "v1beta1"} {
		for _, as := range []string{"Table", "PartialObjectMetadataList"} {
			w := get(t, s, "/api/v1/nodes", "application/json;as="+as+";g=meta.k8s.io;v="+version)
			if want := `"apiVersion":"meta.k8s.io/` + version + `"`; strings.Count(w.Body.String(), want) != 2 {
				t.Errorf("want %s twice: %s", want, w.Body)
			}
		}
	}
}

// TestMetadataAsProtobuf asks for metadata as protobuf, whose field numbers are not the
// same in both versions.
func TestMetadataAsProtobuf(t *testing.T) {
	var nodes []runtime.Object
	for _, name := range []string{"a", "b"} {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"}})
	}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), nodes...)
	for version, list := range map[string]interface {
		metav1.ListInterface
		Unmarshal([]byte) error
		Marshal() ([]byte, error)
	}{"v1": &metav1.PartialObjectMetadataList{}, "v1beta1": &metav1beta1.PartialObjectMetadataList{}} {
		w := get(t, s, "/api/v1/nodes", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v="+version)
		var unknown runtime.Unknown
		if err := unknown.Unmarshal(bytes.TrimPrefix(w.Body.Bytes(), protobufPrefix)); err != nil {
			t.Fatalf("%s: %d, %v", version, w.Code, err)
		}
		if err := list.Unmarshal(unknown.Raw); err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		var names []string
		switch l := list.(type) {
		case *metav1.PartialObjectMetadataList:
			for _, item := range l.Items {
				names = append(names, item.Name)
			}
		case *metav1beta1.PartialObjectMetadataList:
			for _, item := range l.Items {
				names = append(names, item.Name)
			}
		}
		if !slices.Equal(names, []string{"a", "b"}) || list.GetResourceVersion() != "1000" {
			t.Errorf("%s: the nodes are %q at resource version %q", version, names, list.GetResourceVersion())
		}
		if same, err := list.Marshal(); err != nil || !bytes.Equal(same, unknown.Raw) {
			t.Errorf("%s: the server has the fields in another order: %v", version, err)
		}
	}
}

// TestIndentedList asks for a list for people, as curl and browsers do.
func TestIndentedList(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	plain := get(t, s, "/api/v1/nodes", "").Body.Bytes()
	var want bytes.Buffer
	if err := json.Indent(&want, bytes.TrimSpace(plain), "", "  "); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "/api/v1/nodes?pretty=true", "").Body.String(); got != want.String() {
		t.Errorf("got:\n%s\nwant:\n%s", got, want.String())
	}
}

// TestLongList asks for a list that is too long to be built, in forms that have to be.
func TestLongList(t *testing.T) {
	var nodes []runtime.Object
	for i := range 90 {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("n%02d", i), ResourceVersion: "1", Annotations: map[string]string{"pad": strings.Repeat("a", maxBuilt/80)},
		}})
	}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), nodes...)
	if w := get(t, s, "/api/v1/nodes?pretty=true", ""); w.Code != http.StatusOK || !json.Valid(w.Body.Bytes()) {
		t.Errorf("for people: %d, %.200s", w.Code, w.Body)
	}
	if w := get(t, s, "/api/v1/nodes", runtime.ContentTypeYAML); w.Code != http.StatusNotAcceptable {
		t.Errorf("as YAML: %d, %.200s", w.Code, w.Body)
	}
}

// TestResourceVersions asks for resource versions as clients may write them.
func TestResourceVersions(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	for rv, code := range map[string]int{"": 200, "0": 200, "00": 200, "9": 200, "09": 200, "x": 400, "-1": 400, "9.5": 400} {
		for _, path := range []string{"/api/v1/nodes", "/api/v1/nodes/a"} {
			if w := get(t, s, path+"?resourceVersion="+rv, ""); w.Code != code {
				t.Errorf("%s at %q: %d, want %d: %s", path, rv, w.Code, code, w.Body)
			}
		}
	}
}

// TestWatchFromZeros watches from 0, with bookmarks, as clients may write it. Only one
// that asks for initial events is sent the bookmark that ends them.
func TestWatchFromZeros(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	const watch = "/api/v1/nodes?watch=1&allowWatchBookmarks=true&timeoutSeconds=1"
	for query, want := range map[string]bool{"&resourceVersion=0": true, "&resourceVersion=00": false, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": true} {
		w := get(t, s, watch+query, "")
		ends := strings.Contains(w.Body.String(), metav1.InitialEventsAnnotationKey)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"ADDED"`) || ends != want {
			t.Errorf("%s: %d, %s", query, w.Code, w.Body)
		}
	}
}

// TestNotServed asks for what the documents of the server do not have: a custom resource
// that is younger than they are is there, and an aggregated API may be.
func TestNotServed(t *testing.T) {
	crd := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets.example.com", "resourceVersion": "1"},
		"spec": map[string]any{"group": "example.com", "versions": []any{
			map[string]any{"name": "v1", "served": true}, map[string]any{"name": "v2", "served": false},
		}},
	}}
	db := openFile(t, filepath.Join(t.TempDir(), "informers.db"))
	scope := store.Scope{Resource: definitions, Kind: crd.GroupVersionKind(), Form: store.Unstructured}
	s, err := New(Collections{filled(t, db, scope, crd, crd)}, Options{Token: "x", Documents: &Documents{
		groups: []apidiscoveryv2.APIGroupDiscovery{{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"}, Versions: []apidiscoveryv2.APIVersionDiscovery{
			{Version: "v1beta1", Freshness: apidiscoveryv2.DiscoveryFreshnessStale},
		}}},
		resources: map[schema.GroupVersionResource]apidiscoveryv2.APIResourceDiscovery{corev1.SchemeGroupVersion.WithResource("pods"): {}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for path, code := range map[string]int{
		"/apis/example.com/v1/namespaces/a/widgets/b": 403, "/apis/example.com/v2/widgets": 404, "/apis/example.com/v1/gadgets": 404,
		"/apis/metrics.k8s.io/v1beta1/nodes": 503, "/apis/metrics.k8s.io/v1/nodes": 404, "/api/v1/none": 404,
	} {
		if w := get(t, s, path, ""); w.Code != code {
			t.Errorf("%s: %d, want %d: %s", path, w.Code, code, w.Body)
		}
	}
}

// TestFieldsOfOtherVersions checks that kinds have the field labels of v1 in the versions
// before, and that null in a custom resource is as no field.
func TestFieldsOfOtherVersions(t *testing.T) {
	slice := builtInOf(resourcev1beta1.SchemeGroupVersion.WithKind("ResourceSlice"))
	of := &resourcev1beta1.ResourceSlice{Spec: resourcev1beta1.ResourceSliceSpec{NodeName: "n1", Driver: "d1"}}
	if set := slice.of(of); set["spec.nodeName"] != "n1" || set["spec.driver"] != "d1" || !strings.Contains(slice.refusal, "/v1beta1,") {
		t.Errorf("%v, and others are refused with %s", set, slice.refusal)
	}
	if builtInOf(resourcev1beta1.SchemeGroupVersion.WithKind("ResourceClaim")) != nil {
		t.Error("a ResourceClaim has field labels")
	}
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
		"name": "v1", "selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}},
	}}}}}
	labels := selectableFields(crd, "v1")
	for want, color := range map[string]any{"": nil, "red": "red", "3": int64(3)} {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": color}}}
		if set := labels.of(u); set["spec.color"] != want {
			t.Errorf("the field of %v is %v, want %q", color, set, want)
		}
	}
}

// TestPathsOfNamespaces asks for paths of what is, and is not, in a namespace.
func TestPathsOfNamespaces(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "namespaces", corev1.SchemeGroupVersion.WithKind("Namespace"), namespace)
	for path, code := range map[string]int{
		"/api/v1/namespaces": 200, "/api/v1/namespaces/a": 200, "/api/v1/namespaces/b": 404, "/api/v1/namespaces/a/namespaces": 404,
		"/api/v1/namespaces/a/namespaces/b": 404, "/api/v1/namespaces?fieldSelector=metadata.name%3Da": 200, "/api/v1/none": 403,
	} {
		if w := get(t, s, path, ""); w.Code != code {
			t.Errorf("%s: %d, want %d: %s", path, w.Code, code, w.Body)
		}
	}
}

// TestFieldsOfKinds asks for fields that a kind can, and cannot, be selected by.
func TestFieldsOfKinds(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}
	nodes := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), &corev1.Node{ObjectMeta: meta})
	sets := serverOf(t, "replicasets.apps", appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), &appsv1.ReplicaSet{ObjectMeta: meta})
	jobs := serverOf(t, "jobs.batch", batchv1.SchemeGroupVersion.WithKind("Job"), &batchv1.Job{ObjectMeta: meta})
	for _, test := range []struct {
		s              *Server
		path, selector string
		text           string // of the refusal
	}{
		{nodes, "/api/v1/nodes", "metadata.name=a", ""},
		{nodes, "/api/v1/nodes", "spec.unschedulable=false", ""},
		{nodes, "/api/v1/nodes", "metadata.namespace=a", "field label not supported: metadata.namespace"},
		{sets, "/apis/apps/v1/replicasets", "metadata.namespace=a", ""},
		{sets, "/apis/apps/v1/replicasets", "status.replicas=0", `\"status.replicas\" is not a known field selector`},
		{jobs, "/apis/batch/v1/jobs", "status.successful=0", ""},
		{jobs, "/apis/batch/v1/jobs", "status.failed=0", `field label \"status.failed\" not supported for Job`},
	} {
		w := get(t, test.s, test.path+"?fieldSelector="+url.QueryEscape(test.selector), "")
		if test.text == "" && w.Code != http.StatusOK || test.text != "" && (w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), test.text)) {
			t.Errorf("%s by %s: %d, %s", test.path, test.selector, w.Code, w.Body)
		}
	}
}

// TestMethods asks by methods that the server does not have: the answer is at once, and
// names the method.
func TestMethods(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodTrace} {
		for _, path := range []string{"/api/v1/nodes", "/api/v1/nodes/a", "/api/v1/nodes?watch=1&timeoutSeconds=1"} {
			r := httptest.NewRequestWithContext(t.Context(), method, "https://localhost"+path, nil)
			r.Header.Set("Authorization", "Bearer x")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			if want := "cannot " + strings.ToLower(method) + ";"; w.Code != http.StatusMethodNotAllowed || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s %s: %d, want 405 and %q: %s", method, path, w.Code, want, w.Body)
			}
		}
	}
}

// TestPodIPs selects pods by status.podIPs: the server takes it, and has no value for it.
func TestPodIPs(t *testing.T) {
	pod := onePod(0, 1)
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}}
	s := serverOf(t, "pods", corev1.SchemeGroupVersion.WithKind("Pod"), pod)
	for selector, want := range map[string]int{"status.podIPs=10.0.0.1": 0, "status.podIPs!=10.0.0.1": 1, "status.podIPs=": 1} {
		w := get(t, s, "/api/v1/pods?fieldSelector="+url.QueryEscape(selector), "")
		var list corev1.PodList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK || len(list.Items) != want {
			t.Errorf("%s: %d, want %d items: %s, %v", selector, w.Code, want, w.Body, err)
		}
	}
}

// TestContinueAhead goes on with a list of a file that an older copy has replaced.
func TestContinueAhead(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "1"}}
	s := serverOf(t, "nodes", corev1.SchemeGroupVersion.WithKind("Node"), node)
	w := get(t, s, "/api/v1/nodes?continue="+continueToken{RV: "99999999", After: "A"}.String(), "")
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusGone || status.Continue == "" {
		t.Fatalf("%d, want 410 with a continue: %s, %v", w.Code, w.Body, err)
	}
	if w := get(t, s, "/api/v1/nodes?continue="+status.Continue, ""); w.Code != http.StatusOK {
		t.Errorf("the list does not go on: %d, %s", w.Code, w.Body)
	}
}

// TestContinueWithResourceVersion checks that a continue parameter beside a resource
// version is refused, as the server refuses it.
func TestContinueWithResourceVersion(t *testing.T) {
	named := func(name string) runtime.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "x", ResourceVersion: "1"}}
	}
	s := serverOf(t, "configmaps", corev1.SchemeGroupVersion.WithKind("ConfigMap"), named("a"), named("b"))
	w := get(t, s, "/api/v1/configmaps?limit=1", runtime.ContentTypeJSON)
	var list corev1.ConfigMapList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || list.Continue == "" {
		t.Fatalf("%d, %s, %v", w.Code, w.Body, err)
	}
	for rv, want := range map[string]int{"": http.StatusOK, "0": http.StatusOK, "1": http.StatusBadRequest} {
		w := get(t, s, "/api/v1/configmaps?limit=1&continue="+url.QueryEscape(list.Continue)+"&resourceVersion="+rv, runtime.ContentTypeJSON)
		if w.Code != want {
			t.Errorf("resource version %q: %d, want %d: %s", rv, w.Code, want, w.Body)
		}
	}
}

// TestDiscoveryHasAnOrder asks again and again for the discovery that is made of what is
// held: kubectl takes the first group that has a name, and its first version.
func TestDiscoveryHasAnOrder(t *testing.T) {
	db := openFile(t, filepath.Join(t.TempDir(), "informers.db"))
	var held Collections
	for _, gv := range []schema.GroupVersion{
		{Group: "networking.istio.io", Version: "v1beta1"},
		{Group: "networking.istio.io", Version: "v1"},
		{Group: "gateway.networking.k8s.io", Version: "v1"},
		{Group: "networking.istio.io", Version: "v1alpha3"},
		{Group: "a.example.com", Version: "v1"},
		{Group: "apps", Version: "v1"},
	} {
		scope := store.Scope{Resource: "gateways." + gv.Group, Kind: gv.WithKind("Gateway"), Form: store.Unstructured}
		held = append(held, filled(t, db, scope, &unstructured.Unstructured{}))
	}
	s, err := New(held, Options{Token: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	first := get(t, s, "/apis", "").Body.String()
	var groups metav1.APIGroupList
	if err := json.Unmarshal([]byte(first), &groups); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			got = append(got, v.GroupVersion)
		}
	}
	want := []string{
		"apps/v1", "a.example.com/v1", "gateway.networking.k8s.io/v1",
		"networking.istio.io/v1", "networking.istio.io/v1beta1", "networking.istio.io/v1alpha3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the discovery has %v, want %v", got, want)
	}
	for range 50 {
		if again := get(t, s, "/apis", "").Body.String(); again != first {
			t.Fatalf("the discovery is\n%s\nand then\n%s", first, again)
		}
	}
}
