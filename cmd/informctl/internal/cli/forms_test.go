package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeForms writes a file with the pods of a namespace and the metadata of all pods. The
// metadata was written last.
func writeForms(t *testing.T, path, cluster string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	whole := openScope(t, db, store.Scope{Cluster: cluster, Resource: "pods", Kind: kind, Namespace: "a"})
	metadata := openScope(t, db, store.Scope{Cluster: cluster, Resource: "pods", Kind: kind, Form: store.Metadata})
	pods := func(rv string, phase corev1.PodPhase, names ...string) (pods, metadata []runtime.Object) {
		for _, name := range names {
			p := pod("a", name, "web")
			p.UID, p.ResourceVersion, p.Status.Phase = "uid-of-"+p.UID, rv, phase
			pods = append(pods, p)
			metadata = append(metadata, &metav1.PartialObjectMetadata{ObjectMeta: p.ObjectMeta})
		}
		return pods, metadata
	}
	listed, listedMetadata := pods("9", corev1.PodPending, "db", "gone", "web")
	ran, ranMetadata := pods("12", corev1.PodRunning, "web")
	load(t, whole, "10", listed...)
	load(t, metadata, "10", append(listedMetadata, &metav1.PartialObjectMetadata{ObjectMeta: objectMeta("b", "other", "web")})...)
	apply(t, whole, store.Batch{RV: "12", Changes: []store.Change{{Object: ran[0]}}})
	apply(t, metadata, store.Batch{RV: "12", Changes: []store.Change{{Object: ranMetadata[0]}}})
	deletion := store.Batch{RV: "14", Changes: []store.Change{{Key: "a/db", RV: "14"}}}
	apply(t, whole, deletion)
	apply(t, metadata, deletion)
	apply(t, metadata, store.Batch{RV: "16", Changes: []store.Change{{Key: "a/gone", RV: "16"}}})
	for _, closes := range []func() error{whole.Close, metadata.Close, db.Close} {
		if err := closes(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMetadataBesideObjects checks that a scope of metadata hides no object that another
// scope has whole, and says what is no longer there.
func TestMetadataBesideObjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeForms(t, path, "")
	const phases = "custom-columns=N:.metadata.name,P:.status.phase,RV:.metadata.resourceVersion"
	for name, tt := range map[string]struct {
		args []string
		want string // the words of standard output
	}{
		"objects": {[]string{"query", "pods", "-o", phases, "--no-headers"}, "web Running 12 other <none> 7"},
		"one":     {[]string{"query", "pods/web", "-n", "a", "-o", "jsonpath={.spec.nodeName}"}, "node-1"},
		"where":   {[]string{"query", "pods", "--where", `object.status.phase == "Running"`, "-o", "name"}, "pod/web"},
		"then":    {[]string{"query", "pods", "-n", "a", "-o", phases, "--no-headers", "--at", "10"}, "db Pending 9 gone Pending 9 web Pending 9"},
		"count":   {[]string{"query", "pods", "-n", "a", "--count"}, "1"},
	} {
		got := say(t.Context(), append(tt.args, "--db", path)...)
		if words := strings.Join(strings.Fields(got.Out), " "); words != tt.want {
			t.Errorf("%s: %q, want %q\n%s", name, words, tt.want, got.Err)
		}
	}
	told := say(t.Context(), "history", "pods", "web", "-o", "wide", "--db", path)
	if strings.Count(told.Out, "\n") != 2 || !strings.Contains(told.Out, "status.phase: \"Pending\" -> \"Running\"") {
		t.Errorf("history: %s%s", told.Out, told.Err)
	}
	for _, at := range [][]string{nil, {"--at", "10"}} {
		got := say(t.Context(), append([]string{"restore", "pods/db", "-n", "a", "--db", path}, at...)...)
		if got.Code != 0 || !strings.Contains(got.Out, "image: image:1") {
			t.Errorf("restore %q: exit code %d, %s%s", at, got.Code, got.Out, got.Err)
		}
	}
}

// TestMetadataBesideObjectsLive checks that diff compares whole objects with the server
// where the file has them.
func TestMetadataBesideObjectsLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeForms(t, path, "kube-system/one")
	web := pod("a", "web", "web")
	web.UID, web.ResourceVersion, web.Status.Phase = "uid-of-f4a1", "20", corev1.PodFailed
	config, _ := podServer(t, "one", web, &metav1.PartialObjectMetadata{ObjectMeta: objectMeta("b", "other", "web")})
	got := say(t.Context(), "diff", path, "--live", "pods", "--kubeconfig", config)
	want := "~ pods a/web\n    metadata.resourceVersion: \"12\" -> \"20\"\n    status.phase: \"Running\" -> \"Failed\"\n"
	if got.Code != 1 || got.Out != want {
		t.Errorf("exit code %d, %s%s, want 1, %s", got.Code, got.Out, got.Err, want)
	}
}
