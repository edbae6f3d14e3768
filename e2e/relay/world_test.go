package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
)

// world is a control plane and an informctl that serves what is there.
type world struct {
	client dynamic.Interface
	disco  *discovery.DiscoveryClient
	// server and relay are who is asked.
	server, relay peer
	kinds         []*metav1.APIResourceList // that the server has
}

// peer is one of the two that are asked the same.
type peer struct {
	name   string
	url    string
	config *rest.Config
	http   *http.Client
}

func newPeer(t *testing.T, name string, config *rest.Config) peer {
	t.Helper()
	config = rest.CopyConfig(config)
	config.DisableCompression = true
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return peer{name, config.Host, config, client}
}

// newWorld starts both, with a few hundred objects.
func newWorld(t *testing.T) *world {
	t.Helper()
	cp := controlplanetest.Start(t, controlplane.Options{})
	w := &world{server: newPeer(t, "the server", cp.Config())}
	var err error
	if w.client, err = dynamic.NewForConfigAndClient(cp.Config(), w.server.http); err != nil {
		t.Fatal(err)
	}
	if w.disco, err = discovery.NewDiscoveryClientForConfigAndClient(cp.Config(), w.server.http); err != nil {
		t.Fatal(err)
	}
	if err := controlplane.Load(t.Context(), cp.Config(), controlplane.LoadOptions{Pods: 200, Widgets: 20}); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"../table/testdata/*.yaml", "testdata/*.yaml"} {
		w.load(t, file)
	}
	w.makeCustom(t)
	if w.kinds, err = discovery.ServerPreferredResources(w.disco); err != nil {
		t.Fatal(err)
	}
	// The server forgets the changes: a watch cannot begin before them.
	if err := cp.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.serve(t, cp)
	return w
}

// load creates the objects of files.
func (w *world) load(t *testing.T, pattern string) {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(w.disco)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096); ; {
			u := &unstructured.Unstructured{}
			if err := dec.Decode(&u.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			gvk := u.GroupVersionKind()
			mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				t.Fatal(err)
			}
			namespace := ""
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				namespace = metav1.NamespaceDefault
			}
			w.create(t, mapping.Resource, namespace, u)
		}
	}
}

// create creates an object with its status, in a namespace if it names none.
func (w *world) create(t *testing.T, gvr schema.GroupVersionResource, namespace string, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	if u.GetNamespace() != "" {
		namespace = u.GetNamespace()
	}
	client := w.client.Resource(gvr).Namespace(namespace)
	created, err := client.Create(t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create %s %q: %v", u.GetKind(), u.GetName(), err)
	}
	status, ok := u.Object["status"]
	if !ok {
		return created
	}
	created.Object["status"] = status
	if created, err = client.UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("write the status of %s %q: %v", u.GetKind(), u.GetName(), err)
	}
	return created
}

var gadgets = schema.GroupVersionResource{Group: "test.informctl.example", Version: "v1", Resource: "gadgets"}

func gadget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": gadgets.GroupVersion().String(), "kind": "Gadget",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"of": "test"}}, "spec": spec,
	}}
}

// makeCustom creates custom resources when the server serves them.
func (w *world) makeCustom(t *testing.T) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := w.client.Resource(gadgets).List(ctx, metav1.ListOptions{})
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("no custom resources are served: %v", err)
	}
	for name, spec := range map[string]map[string]any{
		"red": {"color": "red", "size": int64(1), "ready": true, "ratio": 0.5}, "blue": {"color": "blue", "size": int64(2), "ready": false, "ratio": 2.0},
		"none": {},
	} {
		w.create(t, gadgets, metav1.NamespaceDefault, gadget(name, spec))
	}
}

// serve runs informctl until the test ends, and returns when it has everything.
func (w *world) serve(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	dir := t.TempDir()
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program.Informctl(t), "run", "--all", "--serve", "--db", filepath.Join(dir, "informers.db"))
	cmd.Dir, cmd.Stderr = dir, &log
	cmd.Env = append(os.Environ(), "INFORMCTL_DB=", "KUBECONFIG="+cp.Kubeconfig(), "XDG_CACHE_HOME="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("informctl ended with %v:\n%s", err, log.String())
		}
	})
	kubeconfig := filepath.Join(dir, "informers.db.kubeconfig")
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return false, nil
		}
		if w.relay.http == nil {
			w.relay = newPeer(t, "informctl", config)
		}
		for _, path := range []string{"/readyz", "/openapi/v3", "/openapi/v3/apis/test.informctl.example/v1"} {
			if a, err := w.relay.ask(ctx, request{path: path}); err != nil || a.code != http.StatusOK {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("informctl does not serve: %v", err)
	}
	for path := range w.collections() {
		w.settle(t, path)
	}
}

// collections yields the paths of all that informctl holds, with the resource.
func (w *world) collections() map[string]metav1.APIResource {
	out := map[string]metav1.APIResource{}
	for _, list := range w.kinds {
		for _, r := range list.APIResources {
			root := "/apis/"
			if list.GroupVersion == "v1" {
				root = "/api/"
			}
			// Secrets are not held, and the events of both groups are the same.
			if slices.Contains(r.Verbs, "watch") && r.Name != "secrets" && list.GroupVersion != "events.k8s.io/v1" {
				gv := schema.FromAPIVersionAndKind(list.GroupVersion, r.Kind)
				r.Group, r.Version = gv.Group, gv.Version
				out[root+list.GroupVersion+"/"+r.Name] = r
			}
		}
	}
	return out
}

// settle waits until informctl has what the server has of a collection. It returns the
// resource version of the list then.
func (w *world) settle(t *testing.T, path string) string {
	t.Helper()
	newest, count := w.newest(t, path)
	var last answer
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		a, err := w.relay.ask(ctx, request{path: path + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + newest, accept: partialList})
		if last = a; err != nil || a.code != http.StatusOK {
			return false, err
		}
		return strings.Count(string(a.body), `"name":`) > 0 || count == 0, nil
	})
	if err != nil {
		t.Fatalf("informctl has not %s at %s: %v\n%s", path, newest, err, last)
	}
	return listVersion(t, last.body)
}

// newest returns the highest resource version of the objects of a collection, and how
// many these are.
func (w *world) newest(t *testing.T, path string) (string, int) {
	t.Helper()
	a, err := w.server.ask(t.Context(), request{path: path, accept: partialList})
	if err != nil {
		t.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatalf("%s: %v\n%s", path, err, a)
	}
	newest := 0
	for _, item := range list.Items {
		if n, err := strconv.Atoi(item.ResourceVersion); err == nil && n > newest {
			newest = n
		}
	}
	return strconv.Itoa(newest), len(list.Items)
}

// listVersion returns the resource version of a list.
func listVersion(t *testing.T, body []byte) string {
	t.Helper()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}
