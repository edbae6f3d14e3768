package all_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
)

const (
	group  = "example.com"
	reader = "reader" // the user of the command
)

// world is a control plane and the command.
type world struct {
	*testing.T
	cp         *controlplane.ControlPlane
	client     dynamic.Interface
	typed      kubernetes.Interface
	program    string
	kubeconfig string
	dir        string
	copies     int      // how many there are of the file
	followed   []string // what the server serves and the user may read
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, cp: controlplanetest.Start(t, controlplane.Options{}), program: program.Informctl(t), dir: t.TempDir()}
	var err error
	if w.client, err = dynamic.NewForConfig(w.cp.Config()); err != nil {
		t.Fatal(err)
	}
	if w.typed, err = kubernetes.NewForConfig(w.cp.Config()); err != nil {
		t.Fatal(err)
	}
	w.allow(w.readable())
	cfg, err := clientcmd.LoadFromFile(w.cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range cfg.AuthInfos {
		user.Impersonate = reader
	}
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.dir, "keys"), []byte(strings.Repeat("1d", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// readable returns rules for everything that can be watched except Secrets, and fills
// w.followed.
func (w *world) readable() []rbacv1.PolicyRule {
	w.Helper()
	lists, err := w.typed.Discovery().ServerPreferredResources()
	if err != nil {
		w.Fatal(err)
	}
	read := []string{"get", "list", "watch"}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: read}}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			w.Fatal(err)
		}
		for _, r := range list.APIResources {
			name := gv.WithResource(r.Name).GroupResource().String()
			if !slices.Contains(r.Verbs, "watch") || name == "secrets" || name == "events.events.k8s.io" {
				continue
			}
			w.followed = append(w.followed, name)
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gv.Group}, Resources: []string{r.Name}, Verbs: read})
		}
	}
	return rules
}

// allow gives the user a role with rules.
func (w *world) allow(rules []rbacv1.PolicyRule) {
	w.Helper()
	meta := metav1.ObjectMeta{GenerateName: "reader-"}
	role, err := w.typed.RbacV1().ClusterRoles().Create(w.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if err == nil {
		_, err = w.typed.RbacV1().ClusterRoleBindings().Create(w.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: reader}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	controlplanetest.AwaitRights(w, w.cp)
}

// allowSecrets creates a Secret and lets the user read it.
func (w *world) allowSecrets() {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s-1"}}
	if _, err := w.typed.CoreV1().Secrets(metav1.NamespaceDefault).Create(w.Context(), secret, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.allow([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}}})
}

// requests returns the requests of the command since a time.
func (w *world) requests(since time.Time) []controlplane.Request {
	w.Helper()
	all, err := w.cp.Requests(since)
	if err != nil {
		w.Fatal(err)
	}
	return slices.DeleteFunc(all, func(r controlplane.Request) bool { return !strings.HasPrefix(r.UserAgent, "informctl/") })
}

func (w *world) definitions() dynamic.ResourceInterface {
	return w.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

// column is a printer column.
func column(name, path string) map[string]any {
	return map[string]any{"name": name, "type": "string", "jsonPath": path}
}

// define creates the definition of a custom resource with a column.
func (w *world) define(plural, kind, version string) {
	w.Helper()
	_, err := w.definitions().Create(w.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{
				"name": version, "served": true, "storage": true,
				"schema":                   map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				"additionalPrinterColumns": []any{column("Size", ".spec.size")},
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// changeVersions changes the versions of a definition.
func (w *world) changeVersions(plural string, change func(versions []any) []any) {
	w.Helper()
	crd, err := w.definitions().Get(w.Context(), plural+"."+group, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	spec := crd.Object["spec"].(map[string]any)
	spec["versions"] = change(spec["versions"].([]any))
	if _, err := w.definitions().Update(w.Context(), crd, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) addColumn(plural string) {
	w.Helper()
	w.changeVersions(plural, func(versions []any) []any {
		v := versions[0].(map[string]any)
		v["additionalPrinterColumns"] = append(v["additionalPrinterColumns"].([]any), column("Color", ".spec.color"))
		return versions
	})
}

// addVersion adds a version that the server prefers.
func (w *world) addVersion(plural, version string) {
	w.Helper()
	w.changeVersions(plural, func(versions []any) []any {
		v := (&unstructured.Unstructured{Object: versions[0].(map[string]any)}).DeepCopy().Object
		v["name"], v["storage"] = version, false
		return append(versions, v)
	})
}

func (w *world) undefine(plural string) {
	w.Helper()
	if err := w.definitions().Delete(w.Context(), plural+"."+group, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// makes creates a custom resource as soon as the server serves it.
func (w *world) makes(plural, kind, name string) {
	w.Helper()
	client := w.client.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}).Namespace(metav1.NamespaceDefault)
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1", "kind": kind, "metadata": map[string]any{"name": name},
		"spec": map[string]any{"size": "large", "color": "red"},
	}}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for {
		_, err := client.Create(w.Context(), obj, metav1.CreateOptions{})
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			w.Fatal(err)
		}
	}
}
