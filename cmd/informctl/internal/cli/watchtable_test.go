package cli_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestWatchTables checks the columns of a watch: those of a custom resource come from its
// definition in the file, and metadata and objects of several resources have name and
// age.
func TestWatchTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, db, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
		"customresourcedefinitions.apiextensions.k8s.io", store.Unstructured, gadgetDefinition())
	defer followTables(t, path, db)()
	for resource, want := range map[string][]string{
		"gadgets":       {"EVENT NAMESPACE NAME PHASE MADE", "ADDED a one Ready 10d"},
		"nodes":         {"EVENT NAME STATUS ROLES AGE VERSION", "ADDED node-1 Unknown <none> 10d"},
		"configmaps":    {"EVENT NAMESPACE NAME AGE", "ADDED a settings 10d"},
		"gadgets,nodes": {"EVENT NAMESPACE NAME AGE", "ADDED a gadget.example.com/one 10d", "ADDED node/node-1 10d"},
	} {
		w := watchFor(t, resource, "--initial", "--db", path)
		var got []string
		for line := range strings.Lines(w.next(t, len(want))) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		slices.Sort(got[1:]) // the order of resources is not defined
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", resource, diff)
		}
		w.stop()
		w.ends(t, 0, "")
	}
}

// followTables follows one object of each of several resources and serves the file. stop
// ends that.
func followTables(t *testing.T, path string, db *bolt.DB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	var running sync.WaitGroup
	follow := func(scope store.Scope, list, obj runtime.Object) *informer.Informer {
		server := fakeapi.New(obj, list, fakeapi.Options{})
		if _, err := server.Create(obj); err != nil {
			t.Fatal(err)
		}
		inf, err := informer.New(server, obj, informer.Options{Backend: db, Scope: scope})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { inf.RunWithContext(ctx) })
		<-inf.HasSyncedChecker().Done()
		return inf
	}
	gadgets := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "GadgetList"}}
	informers := []*informer.Informer{
		follow(store.Scope{
			Resource: "gadgets.example.com", Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, Form: store.Unstructured,
		}, gadgets, gadget("a", "one", map[string]any{"phase": "Ready"})),
		follow(store.Scope{Resource: "nodes", Kind: corev1.SchemeGroupVersion.WithKind("Node")},
			&corev1.NodeList{}, &corev1.Node{ObjectMeta: objectMeta("", "node-1", "")}),
		follow(store.Scope{Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), Form: store.Metadata},
			&metav1.PartialObjectMetadataList{}, &metav1.PartialObjectMetadata{ObjectMeta: objectMeta("a", "settings", "")}),
	}
	running.Go(func() {
		if err := inspect.Serve(ctx, inspect.SocketPath(path), inspect.NewHandler(inspect.Of(db, informers...))); err != nil {
			t.Error(err)
		}
	})
	listens(t, path)
	return func() {
		cancel()
		running.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWatchWithoutFile checks that a watch of a process that goes on without its file
// prints custom resources, that their names are known, and that a file that has gone
// takes only the columns.
func TestWatchWithoutFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	db := bolt.WithoutFile(path, errors.New("on purpose"), bolt.Options{})
	defer followTables(t, path, db)()
	watch := func(args ...string) {
		t.Helper()
		w := watchFor(t, append(args, "--initial", "--db", path)...)
		if got := strings.Join(strings.Fields(w.next(t, 2)), " "); got != "EVENT NAMESPACE NAME AGE ADDED a one 10d" {
			t.Errorf("%q: it prints %q", args, got)
		}
		w.stop()
		w.ends(t, 0, "")
	}
	watch("gadgets", "one")
	if got := say(t.Context(), "query", "gadgets", "none", "-w", "--db", path); got.Code != 1 || !strings.Contains(got.Err, `"none" not found`) {
		t.Errorf("a name that is not there: %+v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	watch("gadgets")
}
