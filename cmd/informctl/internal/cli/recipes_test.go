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
	corev1 "k8s.io/api/core/v1"

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
	createAndDelete(t, os.Getenv("INFORMCTL_DB"), service("a", "api", "api"))
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

// createAndDelete writes a Service that was there for a while.
func createAndDelete(t *testing.T, path string, s *corev1.Service) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	services := openScope(t, db, store.Scope{Resource: "services", Kind: corev1.SchemeGroupVersion.WithKind("Service")})
	s.ResourceVersion = "1001"
	apply(t, services, store.Batch{RV: "1001", Changes: []store.Change{{Object: s}}})
	apply(t, services, store.Batch{RV: "1002", Changes: []store.Change{{Key: s.Namespace + "/" + s.Name, RV: "1002"}}})
	if err := errors.Join(services.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}
