package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// skewedServer serves two pods with a field that no Go type has, as a server of that
// cluster and version. It returns the path of a kubeconfig.
func skewedServer(t *testing.T, cluster, version string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pod := func(name string) any {
			return map[string]any{
				"metadata": map[string]any{"namespace": "a", "name": name, "uid": name, "resourceVersion": "5"},
				"spec":     map[string]any{"nodeName": "n1", "future": "x"},
			}
		}
		var body any
		switch r.URL.Path {
		case "/api":
			body = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
		case "/apis":
			body = metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		case "/version":
			body = map[string]string{"major": "1", "gitVersion": version}
		case "/api/v1":
			body = metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1", APIResources: []metav1.APIResource{
				{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"list", "watch"}},
			}}
		case "/api/v1/namespaces/kube-system":
			body = corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: types.UID(cluster)}}
		default:
			body = map[string]any{
				"apiVersion": "v1", "kind": "PodList", "metadata": map[string]any{"resourceVersion": "5"}, "items": []any{pod("p"), pod("q")},
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig(s.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNewerServer checks that each command which shows objects of a newer server says
// once that fields may be left out, and of how many objects; also when the file was kept
// with another cluster since.
func TestNewerServer(t *testing.T) {
	const phrase = "are left out"
	for version, newer := range map[string]bool{"v1.99.1+k3s1": true, "v1.20.0": false, "": false} {
		config := skewedServer(t, "one", version)
		path := filepath.Join(t.TempDir(), "informers.db")
		want := map[bool]int{true: 1}[newer]
		check := func(objects string, got said, args ...string) {
			t.Helper()
			if n := strings.Count(got.Err, phrase); got.Code != 0 || n != want || n > 0 && !strings.Contains(got.Err, objects) {
				t.Errorf("server %q: %q says it %d times, want %d, of %s: %+v", version, args, n, want, objects, got)
			}
		}
		for range 2 { // cold, then warm
			check("objects=2", say(t.Context(), "run", "pods", "--once", "--kubeconfig", config, "--db", path), "run")
		}
		for args, objects := range map[string]string{
			"query pods p -n a -o yaml": "of 1 objects", "query pods -o json": "of 2 objects", "query pods": "of 2 objects",
			"export": "of 2 objects", "info": "of 2 objects", "diff " + path + " --live --kubeconfig " + config: "of 2 objects",
		} {
			args := strings.Fields(args)
			if args[0] != "diff" {
				args = append(args, "--db", path)
			}
			check(objects, say(t.Context(), args...), args...)
		}
		_, stop := hold(t, path) // a process that is asked
		check("of 2 objects", say(t.Context(), "query", "pods", "--db", path), "query")
		check("of 2 objects", say(t.Context(), "info", "--db", path), "info")
		stop()
		other := skewedServer(t, "two", map[bool]string{true: "v1.20.0", false: "v1.99.1"}[newer])
		if got := say(t.Context(), "run", "pods", "--once", "--kubeconfig", other, "--db", path); got.Code != 0 {
			t.Errorf("the run of another cluster: %+v", got)
		}
		check("of 2 objects", say(t.Context(), "query", "pods", "--db", path, "--of-cluster", "one"), "query, behind another cluster")
	}
}

// TestVersionOfTypes checks that the version which servers are compared with is that of
// the Go types: a server of it is not newer, and one of the next version is.
func TestVersionOfTypes(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`k8s\.io/api v0\.(\d+)\.`).FindSubmatch(b)
	if found == nil {
		t.Fatal("go.mod has no k8s.io/api")
	}
	minor, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	for i, newer := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "informers.db")
		config := skewedServer(t, "one", fmt.Sprintf("v1.%d.9", minor+i))
		if got := say(t.Context(), "run", "pods", "--once", "--kubeconfig", config, "--db", path); strings.Contains(got.Err, "newer than") != newer {
			t.Errorf("a server of version 1.%d: %+v", minor+i, got)
		}
	}
}

// TestImportOfNewerServer checks that import says of how many objects it leaves out
// fields.
func TestImportOfNewerServer(t *testing.T) {
	for lines, want := range map[string]string{
		`{"metadata":{"namespace":"a","name":"p"},"spec":{"future":"x"}}`:                            "are left out, of 1 objects",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"p","future":{"a":[]}}}`: "are left out, of 1 objects",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"a","name":"p"}}`:                   "",
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "export.jsonl")
		header := `{"informctlExport":1,"following":0,"scope":{"resource":"pods","apiVersion":"v1","kind":"Pod","form":"typed","resourceVersion":"10","objects":1}}`
		if err := os.WriteFile(file, []byte(header+"\n"+lines+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := say(t.Context(), "import", file, "--db", filepath.Join(dir, "imported.db"))
		if got.Code != 0 || want == "" && strings.Contains(got.Err, "left out") || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v, want %q", lines, got, want)
		}
	}
}
