package table_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
)

// deletedAnnotation marks objects of testdata that are deleted after they are created. A
// finalizer keeps them.
const deletedAnnotation = "test/deleted"

// world is a control plane and the objects that the test has created there.
type world struct {
	*testing.T
	client  dynamic.Interface
	typed   kubernetes.Interface
	server  rest.Interface
	mapper  meta.RESTMapper
	created map[string]int // number of objects by resource
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp := controlplanetest.Start(t, controlplane.Options{})
	w := &world{T: t, created: map[string]int{}}
	httpClient, err := rest.HTTPClientFor(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	w.client, err = dynamic.NewForConfigAndClient(cp.Config(), httpClient)
	if err != nil {
		t.Fatal(err)
	}
	w.typed, err = kubernetes.NewForConfigAndClient(cp.Config(), httpClient)
	if err != nil {
		t.Fatal(err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(cp.Config(), httpClient)
	if err != nil {
		t.Fatal(err)
	}
	w.server = disco.RESTClient()
	groups, err := restmapper.GetAPIGroupResources(disco)
	if err != nil {
		t.Fatal(err)
	}
	w.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return w
}

// load creates the objects of files.
func (w *world) load(pattern string) {
	w.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		w.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			w.Fatal(err)
		}
		for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
			u := &unstructured.Unstructured{}
			if err := dec.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				w.Fatalf("%s: %v", file, err)
			}
			w.create(u)
		}
	}
}

// create creates an object with its status. Objects of a namespaced resource are put into
// "default" if they name no namespace.
func (w *world) create(u *unstructured.Unstructured) {
	w.Helper()
	gvk := u.GroupVersionKind()
	mapping, err := w.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		w.Fatalf("%s %q: %v", gvk.Kind, u.GetName(), err)
	}
	w.createIn(mapping, u)
}

func (w *world) createIn(mapping *meta.RESTMapping, u *unstructured.Unstructured) {
	w.Helper()
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && u.GetNamespace() == "" {
		u.SetNamespace(metav1.NamespaceDefault)
	}
	client := w.client.Resource(mapping.Resource).Namespace(u.GetNamespace())
	created, err := client.Create(w.Context(), u, metav1.CreateOptions{})
	if err != nil {
		w.Errorf("create %s %q: %v", u.GetKind(), u.GetName(), err)
		return
	}
	w.created[mapping.Resource.GroupResource().String()]++
	if status, ok := u.Object["status"]; ok && mapping.GroupVersionKind.Group != testGroup {
		created.Object["status"] = status
		if _, err := client.UpdateStatus(w.Context(), created, metav1.UpdateOptions{}); err != nil {
			w.Errorf("write the status of %s %q: %v", u.GetKind(), u.GetName(), err)
		}
	}
	if u.GetAnnotations()[deletedAnnotation] != "" {
		if !slices.Contains(u.GetFinalizers(), "test/keep") {
			w.Fatalf("%s %q would be gone", u.GetKind(), u.GetName())
		}
		if err := client.Delete(w.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
			w.Fatalf("delete %s %q: %v", u.GetKind(), u.GetName(), err)
		}
	}
}
