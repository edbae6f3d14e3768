package encoded_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
)

// world is a control plane with objects of all kinds.
type world struct {
	cp        *controlplane.ControlPlane
	http      *http.Client
	dynamic   dynamic.Interface
	resources []resource
}

// resource is a resource of the server whose kind is in client-go's scheme.
type resource struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
}

func (r resource) path() string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Resource
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Resource
}

func newWorld(t *testing.T) *world {
	t.Helper()
	// Also the versions that are not served by default.
	cp := controlplanetest.Start(t, controlplane.Options{APIServerArgs: []string{"--runtime-config=api/all=true"}})
	cfg := cp.Config()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	cfg.QPS = -1
	w := &world{cp: cp, http: client, dynamic: dynamic.NewForConfigOrDie(cfg)}
	w.findResources(t, discovery.NewDiscoveryClientForConfigOrDie(cfg))
	if err := controlplane.Load(t.Context(), cfg, controlplane.LoadOptions{Pods: pods}); err != nil {
		t.Fatal(err)
	}
	w.createAll(t)
	return w
}

// pods is the number of varied pods.
const pods = 300

// findResources finds the resources that can be listed, watched and created.
func (w *world) findResources(t *testing.T, client discovery.DiscoveryInterface) {
	t.Helper()
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			verbs := []string(r.Verbs)
			kind := gv.WithKind(r.Kind)
			if strings.Contains(r.Name, "/") || !scheme.Scheme.Recognizes(kind) ||
				!slices.Contains(verbs, "list") || !slices.Contains(verbs, "watch") || !slices.Contains(verbs, "create") {
				continue
			}
			w.resources = append(w.resources, resource{gv.WithResource(r.Name), kind, r.Namespaced})
		}
	}
	if len(w.resources) == 0 {
		t.Fatal("the server has no resource in client-go's scheme")
	}
}

func (w *world) resourceOf(t *testing.T, kind schema.GroupVersionKind) resource {
	t.Helper()
	at := slices.IndexFunc(w.resources, func(r resource) bool { return r.kind == kind })
	if at < 0 {
		t.Fatalf("the server has no resource for %s", kind)
	}
	return w.resources[at]
}

// client is for the objects of a resource in the namespace default, or in none.
func (w *world) client(r resource) dynamic.ResourceInterface {
	if r.namespaced {
		return w.dynamic.Resource(r.GroupVersionResource).Namespace("default")
	}
	return w.dynamic.Resource(r.GroupVersionResource)
}

// createAll creates the objects of testdata/objects.yaml.
func (w *world) createAll(t *testing.T) {
	t.Helper()
	f, err := os.Open("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		w.create(t, obj)
	}
}

// create creates an object with its status.
func (w *world) create(t *testing.T, obj *unstructured.Unstructured) {
	t.Helper()
	client := w.client(w.resourceOf(t, obj.GroupVersionKind()))
	created, err := client.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("create %s %s: %v", obj.GetKind(), obj.GetName(), err)
		return
	}
	if status, ok := obj.Object["status"]; ok {
		created.Object["status"] = status
		if _, err := client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
			t.Fatalf("update the status of %s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// get requests protobuf. The caller closes the body.
func (w *world) get(t *testing.T, r resource, query string) io.ReadCloser {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.cp.Config().Host+r.path()+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", runtime.ContentTypeProtobuf)
	resp, err := w.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s%s: %s", r.path(), query, resp.Status)
	}
	return resp.Body
}
