package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// podServer starts an API server that serves pods, in pages, and the Namespace whose UID
// identifies the cluster. It returns the path of a kubeconfig and the size of the largest
// page.
func podServer(t *testing.T, uid types.UID, pods ...runtime.Object) (kubeconfig string, largest *int) {
	t.Helper()
	largest = new(int)
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/namespaces/kube-system", func(w http.ResponseWriter, _ *http.Request) {
		ns := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: uid}}
		ns.APIVersion, ns.Kind = "v1", "Namespace"
		answer(w, ns)
	})
	mux.HandleFunc("/api/v1/namespaces/{namespace}/pods", func(w http.ResponseWriter, r *http.Request) {
		within := slices.DeleteFunc(slices.Clone(pods), func(obj runtime.Object) bool {
			return obj.(metav1.Object).GetNamespace() != r.PathValue("namespace")
		})
		answer(w, map[string]any{"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{"resourceVersion": "2000"}, "items": within})
	})
	mux.HandleFunc("/api/v1/pods", func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		list := map[string]any{"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{"resourceVersion": "2000"}}
		to := len(pods)
		if limit > 0 && from+limit < to {
			to = from + limit
			list["metadata"] = map[string]any{"resourceVersion": "2000", "continue": strconv.Itoa(to)}
		}
		*largest = max(*largest, to-from)
		list["items"] = pods[from:to]
		answer(w, list)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return kubeconfigOf(t, server), largest
}

// kubeconfigOf returns the path of a kubeconfig of a server.
func kubeconfigOf(t *testing.T, server *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u"}],
		"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// clusterFile makes a file with the pods of a cluster.
func clusterFile(t *testing.T, cluster string, form store.Form, pods ...runtime.Object) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fillScope(t, db, nil, store.Scope{Cluster: cluster, Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod"), Form: form}, pods...)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestDiffLive checks that diff finds missing objects and changed fields between a file
// and its cluster, which have more than a page of objects.
func TestDiffLive(t *testing.T) {
	var before, after []runtime.Object
	for i := range 1200 {
		p := pod("many", fmt.Sprintf("pod-%04d", i), "web")
		if i != 700 {
			before = append(before, p)
		}
		if i != 1100 {
			q := p.DeepCopy()
			if i == 3 {
				q.Spec.NodeName = "node-2"
			}
			after = append(after, q)
		}
	}
	after = append(after, pod("a", "new", "db"))
	kubeconfig, largest := podServer(t, "here", after...)
	const changed = "~ pods many/pod-0003\n    spec.nodeName: \"node-1\" -> \"node-2\"\n"
	path := clusterFile(t, "kube-system/here", store.Typed, before...)
	check := func(want said, args ...string) {
		t.Helper()
		got := say(t.Context(), append([]string{"diff", path, "--live", "--kubeconfig", kubeconfig}, args...)...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", args, diff)
		}
	}
	all := said{
		changed + "+ pods many/pod-0700\n+ pods a/new\n- pods many/pod-1100\n",
		"informctl: 2 added, 1 removed, 1 changed, of 1201\n", 1,
	}
	for _, held := range []bool{false, true} {
		if held {
			_, _ = hold(t, path)
		}
		check(all)
		check(all, "pods")
		check(said{changed + "+ pods many/pod-0700\n- pods many/pod-1100\n", "informctl: 1 added, 1 removed, 1 changed, of 1200\n", 1}, "-n", "many")
		check(said{"+ pods a/new\n", "informctl: 1 added, 0 removed, 0 changed, of 1\n", 1}, "-l", "app=db")
		check(said{"", "informctl: 0 added, 0 removed, 0 changed, of 0\n", 0}, "-n", "nothing")
	}
	if *largest != 500 {
		t.Errorf("the largest page had %d objects, want 500", *largest)
	}
}

// TestDiffLiveNamed checks that only the named object is compared, of a named file and of
// the one by default, and that a name which neither side has is an error.
func TestDiffLiveNamed(t *testing.T) {
	changed := pod("b", "one", "db")
	changed.Spec.NodeName = "node-2"
	kubeconfig, _ := podServer(t, "here", pod("a", "new", "web"), pod("a", "one", "web"), changed, pod("b", "two", "web"))
	path := clusterFile(t, "kube-system/here", store.Typed,
		pod("a", "gone", "web"), pod("a", "one", "web"), pod("b", "one", "db"), pod("b", "other", "web"))
	t.Setenv("INFORMCTL_DB", path)
	for _, tt := range []struct {
		args []string
		out  string
		code int
	}{
		{[]string{"pods/one"}, "~ pods b/one\n    spec.nodeName: \"node-1\" -> \"node-2\"\n", 1},
		{[]string{path, "pods/one"}, "~ pods b/one\n    spec.nodeName: \"node-1\" -> \"node-2\"\n", 1},
		{[]string{"pods/one", "-n", "a"}, "", 0},
		{[]string{"pods/one", "-l", "app=web"}, "", 0},
		{[]string{"pods/gone"}, "- pods a/gone\n", 1},
		{[]string{"pods/new"}, "+ pods a/new\n", 1},
		{[]string{"pods/new", "-l", "app=db"}, "", 0},
		{[]string{"pods/none"}, "", 4},
		{[]string{"pods/new", "-n", "b"}, "", 4},
	} {
		got := say(t.Context(), append([]string{"diff", "--live", "--kubeconfig", kubeconfig}, tt.args...)...)
		if got.Out != tt.out || got.Code != tt.code {
			t.Errorf("%q: %+v, want %q and exit code %d", tt.args, got, tt.out, tt.code)
		}
		if tt.code == 4 && !regexp.MustCompile(`^informctl: pods "\w+" not found in (namespace b of )?`+regexp.QuoteMeta(path)+` and http://127\.0\.0\.1:\d+\n$`).MatchString(got.Err) {
			t.Errorf("%q: %s", tt.args, got.Err)
		}
	}
}

// TestDiffLiveNamespace checks that the server is asked for the namespace of -n only, for
// all objects of kinds without namespaces, and for one object if there is a name.
func TestDiffLiveNamespace(t *testing.T) {
	pods, _ := podServer(t, "here", pod("a", "one", "web"), pod("b", "two", "web"))
	config, err := clientcmd.BuildConfigFromFlags("", pods)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "s") { // a list
			asked = append(asked, strings.TrimSpace(r.URL.Path+" "+r.URL.Query().Get("fieldSelector")))
		}
		if r.URL.Path == "/api/v1/nodes" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": [{"metadata": {"name": "new"}}]}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(resource, kind, namespace string) store.Scope {
		return store.Scope{Cluster: "kube-system/here", Resource: resource, Kind: corev1.SchemeGroupVersion.WithKind(kind), Namespace: namespace}
	}
	fillScope(t, db, nil, of("pods", "Pod", ""), pod("b", "two", "web"), pod("a", "gone", "web"))
	fillScope(t, db, nil, of("pods", "Pod", "b"), pod("b", "two", "web"))
	fillScope(t, db, nil, of("nodes", "Node", ""))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got := say(t.Context(), "diff", path, "--live", "-n", "a", "--kubeconfig", kubeconfigOf(t, server))
	if want := "+ nodes new\n+ pods a/one\n- pods a/gone\n"; got.Code != 1 || got.Out != want {
		t.Errorf("%+v, want %q", got, want)
	}
	slices.Sort(asked)
	if diff := cmp.Diff([]string{"/api/v1/namespaces/a/nodes", "/api/v1/namespaces/a/pods", "/api/v1/nodes"}, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
	asked = nil
	if got := say(t.Context(), "diff", path, "--live", "-n", "a", "pods/one", "--kubeconfig", kubeconfigOf(t, server)); got.Out != "+ pods a/one\n" {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]string{"/api/v1/namespaces/a/pods metadata.name=one"}, asked); diff != "" {
		t.Errorf("asked for one (-want +got):\n%s", diff)
	}
}

// TestDiffLiveForms checks that a file of unstructured objects or of metadata is compared
// only in the fields that it contains.
func TestDiffLiveForms(t *testing.T) {
	p := pod("a", "one", "web")
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	content["apiVersion"], content["kind"] = "v1", "Pod"
	changed := p.DeepCopy()
	changed.Spec.NodeName = "node-2"
	kubeconfig, _ := podServer(t, "here", changed)
	for form, tt := range map[store.Form]struct {
		stored runtime.Object
		want   said
	}{
		store.Unstructured: {
			&unstructured.Unstructured{Object: content},
			said{"~ pods a/one\n    spec.nodeName: \"node-1\" -> \"node-2\"\n", "informctl: 0 added, 0 removed, 1 changed, of 1\n", 1},
		},
		store.Metadata: {
			&metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta},
			said{"", "informctl: 0 added, 0 removed, 0 changed, of 1\n", 0},
		},
	} {
		path := clusterFile(t, "kube-system/here", form, tt.stored)
		if diff := cmp.Diff(tt.want, say(t.Context(), "diff", path, "--live", "--kubeconfig", kubeconfig)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", form, diff)
		}
	}
}

// TestDiffLiveTrouble checks that a wrong cluster, a missing cluster and wrong usage
// result in one line each, and not in the exit code of a difference.
func TestDiffLiveTrouble(t *testing.T) {
	kubeconfig, _ := podServer(t, "here")
	down := filepath.Join(t.TempDir(), "kubeconfig")
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAll(text, []byte("127.0.0.1:1"))
	if err := os.WriteFile(down, text, 0o600); err != nil {
		t.Fatal(err)
	}
	here := clusterFile(t, "kube-system/here", store.Typed, pod("a", "one", ""))
	there := clusterFile(t, "kube-system/there", store.Typed, pod("a", "one", ""))
	for name, tt := range map[string]struct {
		args []string
		want string
		code int
	}{
		"another cluster":       {[]string{there, "--live", "--kubeconfig", kubeconfig}, "is of another cluster than ", 4},
		"no server":             {[]string{here, "--live", "--kubeconfig", down}, " cannot be reached: identify the cluster: ", 4},
		"unreadable kubeconfig": {[]string{here, "--live", "--kubeconfig", here}, "kubeconfig: ", 4},
		"no kubeconfig":         {[]string{here, "--live", "--kubeconfig", here + ".none"}, "kubeconfig: ", 4},
		"no file":               {[]string{here + ".none", "--live", "--kubeconfig", kubeconfig}, "no such file", 4},
		"unknown resource":      {[]string{here, "wheels", "--live", "--kubeconfig", kubeconfig}, `unknown resource "wheels"`, 4},
	} {
		got := say(t.Context(), append([]string{"diff"}, tt.args...)...)
		if got.Code != tt.code || got.Out != "" || strings.Count(got.Err, "\n") != 1 || !strings.Contains(got.Err, tt.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	t.Setenv("INFORMCTL_DB", here)
	if got := say(t.Context(), "diff", "pods", "--live", "--kubeconfig", kubeconfig); got.Code != 1 || got.Out != "- pods a/one\n" {
		t.Errorf("of the file by default: %+v", got)
	}
	for _, args := range [][]string{{"--live"}, {here, "pods", "more", "--live"}, {here}} {
		if got := say(t.Context(), append([]string{"diff"}, args...)...); got.Code != 64 {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestDiffLeavesOut checks that diff does not say that nothing differs where a resource
// is left out, since its first list is not complete: with --live, unless that is of
// another cluster or namespace, with --since, and in either of two files.
func TestDiffLeavesOut(t *testing.T) {
	one, two := pod("a", "one", "web"), pod("a", "two", "web")
	kubeconfig, _ := podServer(t, "here", one)
	of := func(cluster, namespace string, pods ...runtime.Object) string {
		path := clusterFile(t, "kube-system/here", store.Typed, pods...)
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fillScope(t, db, nil, store.Scope{Cluster: cluster, Namespace: namespace, Resource: "services", Kind: corev1.SchemeGroupVersion.WithKind("Service"), Form: store.Typed})
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const (
		note = "informctl: services: left out, its first list is not complete; informctl run completes it, informctl wipe drops it\n"
		out  = "informctl: 1 of 2 resources could not be compared\n"
	)
	same, others := of("kube-system/here", "", one), of("kube-system/there", "", one)
	whole := clusterFile(t, "kube-system/here", store.Typed, one)
	db, err := bolt.Open(whole, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	services := store.Scope{Cluster: "kube-system/here", Resource: "services", Kind: corev1.SchemeGroupVersion.WithKind("Service")}
	fillScope(t, db, nil, services, service("a", "front", "web"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	// Another scope has what this one is without.
	covered := of("kube-system/here", "a", one)
	if db, err = bolt.Open(covered, bolt.Options{}); err != nil {
		t.Fatal(err)
	}
	fillScope(t, db, nil, services, service("a", "front", "web"))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		end  string
	}{
		{[]string{same, "--live"}, 4, note + "informctl: 0 added, 0 removed, 0 changed, of 1\n" + out},
		{[]string{same, "--live", "pods"}, 0, "informctl: 0 added, 0 removed, 0 changed, of 1\n"},
		{[]string{of("kube-system/here", "", two), "--live"}, 1, note + "informctl: 1 added, 1 removed, 0 changed, of 2\n"},
		{[]string{others, "--live"}, 0, "informctl: 0 added, 0 removed, 0 changed, of 1\n"},
		{[]string{of("kube-system/here", "b", one), "--live", "-n", "a"}, 0, "informctl: 0 added, 0 removed, 0 changed, of 1\n"},
		{[]string{same, "--since", "1000"}, 4, out},
		{[]string{whole, same}, 4, note + "informctl: 0 added, 0 removed, 0 changed, of 1\n" + out},
		{[]string{same, whole}, 4, note + "informctl: 0 added, 0 removed, 0 changed, of 1\n" + out},
		{[]string{same, others}, 4, note + note + "informctl: 0 added, 0 removed, 0 changed, of 1\n" + out},
		{[]string{whole, of("kube-system/here", "b", two)}, 1, "informctl: 1 added, 1 removed, 0 changed, of 2\n"},
		{[]string{whole, of("kube-system/here", "b", one), "-n", "a"}, 1, "informctl: 0 added, 1 removed, 0 changed, of 2\n"},
		{[]string{whole, covered}, 0, "informctl: 0 added, 0 removed, 0 changed, of 2\n"},
		{[]string{covered, whole, "services"}, 0, "informctl: 0 added, 0 removed, 0 changed, of 1\n"},
		{[]string{whole, same, "pods"}, 0, "informctl: 0 added, 0 removed, 0 changed, of 1\n"},
		{[]string{whole, same, "services"}, 4, "first list is not complete: services; informctl run completes it, informctl wipe drops it\n"},
	} {
		args := append([]string{"diff"}, tt.args...)
		if slices.Contains(args, "--live") {
			args = append(args, "--kubeconfig", kubeconfig)
		}
		got := say(t.Context(), args...)
		if got.Code != tt.code || !strings.HasSuffix(got.Err, tt.end) {
			t.Errorf("%q: exit code %d, want %d:\n%s", tt.args, got.Code, tt.code, got.Err)
		}
	}
}
