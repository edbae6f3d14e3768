package cli_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// recipe is a command on docs/recipes.md and the output below it.
var recipe = regexp.MustCompile("(?s)```sh\n(.*?)```\n\n```text\n(.*?)```")

// TestRecipes runs the commands of docs/recipes.md, in their order, and compares their
// output with the page.
func TestRecipes(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(docs, "recipes.md"))
	if err != nil {
		t.Fatal(err)
	}
	recipes := recipe.FindAllStringSubmatch(string(page), -1)
	if n := strings.Count(string(page), "```sh\n"); n != len(recipes) || n < 8 {
		t.Fatalf("%d commands on the page, %d of them with an output", n, len(recipes))
	}
	dir := t.TempDir()
	t.Setenv("INFORMCTL_DB", filepath.Join(dir, "cluster.db"))
	writeCluster(t, os.Getenv("INFORMCTL_DB"))
	createAndDelete(t, os.Getenv("INFORMCTL_DB"), store.Scope{Resource: "services", Kind: corev1.SchemeGroupVersion.WithKind("Service")}, service("a", "api", "api"))
	deleteDeployment(t, os.Getenv("INFORMCTL_DB"))
	for _, r := range recipes {
		command, want := r[1], r[2]
		name, _, _ := strings.Cut(command, "\n")
		t.Run(name, func(t *testing.T) {
			for _, tool := range []string{"sqlite3", "jq"} {
				if _, err := exec.LookPath(tool); strings.Contains(command, tool+" ") && err != nil {
					t.Skipf("THE RECIPE IS NOT TESTED: %s is not installed", tool)
				}
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir = dir
			var errOut strings.Builder
			cmd.Stderr = &errOut
			got, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, errOut.String())
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("(-page +got):\n%s\n%s", diff, errOut.String())
			}
		})
	}
}

// createAndDelete writes objects that were there for a while.
func createAndDelete(t *testing.T, path string, scope store.Scope, objects ...metav1.Object) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := openScope(t, db, scope)
	if s.Checkpoint().RV == "" {
		load(t, s, "1000")
	}
	created, deleted := store.Batch{RV: "1001"}, store.Batch{RV: "1002"}
	for _, obj := range objects {
		obj.SetResourceVersion("1001")
		created.Changes = append(created.Changes, store.Change{Object: obj.(runtime.Object)})
		deleted.Changes = append(deleted.Changes, store.Change{Key: obj.GetNamespace() + "/" + obj.GetName(), RV: "1002"})
	}
	apply(t, s, created)
	apply(t, s, deleted)
	if err := errors.Join(s.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// deleteDeployment writes a Deployment that was deleted with its ReplicaSet and its Pods.
func deleteDeployment(t *testing.T, path string) {
	t.Helper()
	owned := func(name string, uid types.UID, kind, owner string, ownerUID types.UID) metav1.ObjectMeta {
		m := objectMeta("a", name, "shop")
		m.UID, m.OwnerReferences = uid, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner, UID: ownerUID}}
		return m
	}
	shop := objectMeta("a", "shop", "shop")
	shop.UID = "1c55"
	createAndDelete(t, path, store.Scope{Resource: "deployments.apps", Kind: appsv1.SchemeGroupVersion.WithKind("Deployment")},
		&appsv1.Deployment{ObjectMeta: shop})
	createAndDelete(t, path, store.Scope{Resource: "replicasets.apps", Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet")},
		&appsv1.ReplicaSet{ObjectMeta: owned("shop-5d9c", "7e02", "Deployment", "shop", "1c55")})
	createAndDelete(t, path, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")},
		&corev1.Pod{ObjectMeta: owned("shop-5d9c-1", "93d1", "ReplicaSet", "shop-5d9c", "7e02")},
		&corev1.Pod{ObjectMeta: owned("shop-5d9c-2", "93d2", "ReplicaSet", "shop-5d9c", "7e02")})
}
