package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/informer"
)

const needsPostgres = "it needs PostgreSQL and a cluster; e2e/published runs the commands"

// notRunHere says why TestPageBlocks does not run a block of shell commands.
var notRunHere = map[string]string{
	"README.md: informctl run pods --once":                                                                        "e2e/quickstart runs it on a kube-apiserver",
	"README.md: cd e2e && go run ./controlplane/cmd/controlplane -dir /tmp/cp":                                    "it runs until interrupted; e2e tests start the same",
	"docs/postgres.md: export INFORMCTL_POSTGRES='postgres://owner@db.example.com/informctl?sslmode=verify-full'": needsPostgres,
	"docs/postgres.md: informctl run pods deployments.apps --postgres --db informers.db":                          needsPostgres,
	"docs/postgres.md: informctl postgres migrate --sql":                                                          needsPostgres,
	"docs/serving.md: informctl run --all --serve":                                                                "it runs until interrupted; e2e/relay runs it on a kube-apiserver",
	"docs/serving.md: informctl serve --at 10:02":                                                                 "it runs until interrupted; e2e/relay runs it on a kube-apiserver",
	"README.md: informctl run --all --serve &":                                                                    "it runs until interrupted; e2e/relay runs it on a kube-apiserver",
	"README.md: make demo":                      "it takes hours",
	"docs/reliability.md: go test ./store/bolt": "it takes hours",
	`docs/adopting.md: // +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get`: "a comment in Go",
	"docs/operating.md: docker build -f deploy/Dockerfile -t informctl:dev .":                                   "it needs docker and a cluster; tools/dockerfile and e2e/deploy check the files",
	"examples/samplecontroller/README.md: kubectl apply -f examples/samplecontroller/crd.yaml":                  "it needs kubectl; e2e/sample does the same on a kube-apiserver",
	"examples/samplecontroller/README.md: kubectl delete greeter hello":                                         "it needs kubectl; e2e/sample does the same on a kube-apiserver",
}

// nameOf returns the page and the first command of a block, without its comment.
func nameOf(page, block string) string {
	first, _, _ := strings.Cut(block, "\n")
	first, _, _ = strings.Cut(first, "  ")
	return page + ": " + first
}

// TestPageBlocks runs each block of shell commands of a page, or it is in notRunHere.
// TestRecipes runs those of recipes.md.
func TestPageBlocks(t *testing.T) {
	run := map[string]func(*testing.T, string){
		"docs/operating.md: (umask 077; openssl rand -hex 32 > key)":                                runSecrets,
		"docs/operating.md: curl --unix-socket /var/cache/app/informers.db.sock http://_/v1/status": runAskSocket,
		"docs/operating.md: informctl run --all --exclude events &":                                 runOverview,
		"docs/operating.md: #!/bin/sh":                                                              runCompletion,
		"docs/troubleshooting.md: informctl status --db FILE":                                       runFirstLook,
	}
	left := map[string]bool{}
	for name := range run {
		left[name] = true
	}
	for name := range notRunHere {
		left[name] = true
	}
	for page, text := range pages(t) {
		if page == "docs/recipes.md" {
			continue
		}
		for _, block := range shellBlocks(text) {
			name := nameOf(page, block)
			if !left[name] {
				t.Errorf("%s: run the block, or say in notRunHere why not", name)
			}
			delete(left, name)
			if run[name] != nil {
				t.Run(page, func(t *testing.T) { run[name](t, block) })
			}
		}
	}
	for name := range left {
		t.Errorf("%s: no page has this block", name)
	}
}

// needs skips the test if a tool of the block is not installed.
func needs(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("THE BLOCK IS NOT TESTED: %s is not installed", tool)
	}
}

// shell runs a script in a directory, and returns its output and its exit code.
func shell(t *testing.T, dir, script string, args ...string) said {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-euc", script}, args...)...)
	var out, errOut strings.Builder
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &errOut
	_ = cmd.Run()
	return said{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
}

// pageServer makes a server with some resources that of the kubeconfig.
func pageServer(t *testing.T) {
	t.Helper()
	verbs := metav1.Verbs{"list", "watch"}
	t.Setenv("KUBECONFIG", runServerOf(t, resources{
		"v1": {
			{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: verbs},
			{Name: "secrets", SingularName: "secret", Namespaced: true, Kind: "Secret", Verbs: verbs},
			{Name: "events", SingularName: "event", Namespaced: true, Kind: "Event", Verbs: verbs},
		},
		"apps/v1": {{Name: "deployments", SingularName: "deployment", Namespaced: true, Kind: "Deployment", Verbs: verbs}},
	}, func(*http.Request) *metav1.Status { return nil }))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("INFORMCTL_DB", "")
}

// shortDir returns a directory whose path leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "") //nolint:usetesting // the path of t.TempDir has the name of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// once returns a line of a block; a command that follows a cluster ends.
func once(line string) string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "informctl run") {
		return line
	}
	line, _, _ = strings.Cut(line, " &")
	return line + " --once"
}

func runSecrets(t *testing.T, block string) {
	needs(t, "openssl")
	pageServer(t)
	dir := t.TempDir()
	script := ""
	for line := range strings.Lines(block) {
		script += once(line) + "\n"
	}
	if got := shell(t, dir, script); got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	if key, err := os.Stat(filepath.Join(dir, "key")); err != nil || key.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v, %v", key, err)
	}
}

// holdWell holds the file as a process with an informer that is well.
func holdWell(t *testing.T, path string) {
	t.Helper()
	writeCluster(t, path)
	well := informer.Status{Scope: informer.ScopeStatus{Resource: "pods"}, Synced: true, CaughtUp: true, Start: "resumed"}
	holdServing(t, path, testKeys(t), func(rest http.Handler) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/", rest)
		mux.HandleFunc("/v1/status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode([]informer.Status{well}) })
		return mux
	})
}

func runAskSocket(t *testing.T, block string) {
	needs(t, "curl")
	path := filepath.Join(shortDir(t), "informers.db")
	holdWell(t, path)
	script := strings.ReplaceAll(block, "/var/cache/app/informers.db", path)
	if got := shell(t, t.TempDir(), script); got.Code != 0 || !strings.Contains(got.Out, `"pods"`) {
		t.Errorf("%+v", got)
	}
}

func runFirstLook(t *testing.T, block string) {
	needs(t, "curl")
	dir := shortDir(t)
	holdWell(t, filepath.Join(dir, "FILE"))
	for line := range strings.Lines(block) {
		if got := shell(t, dir, line); got.Code != 0 || !strings.Contains(got.Out, "pods") {
			t.Errorf("%s%+v", line, got)
		}
	}
}

// runOverview runs each line in a directory of its own: they are no script.
func runOverview(t *testing.T, block string) {
	pageServer(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "informers.db")
	writeHistory(t, path)
	for line := range strings.Lines(block) {
		dir := t.TempDir()
		for _, name := range []string{"informers.db", "before.db", "after.db"} {
			if err := copyFile(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		code, says := 0, ""
		switch {
		case strings.HasPrefix(line, "informctl watch"):
			code, says = 1, "no process keeps informers.db"
		case strings.HasPrefix(line, "informctl top"):
			code, says = 1, "terminal"
		case strings.HasPrefix(line, "informctl restore"):
			code, says = 1, "no deletion of pods" // of that name
		case strings.HasPrefix(line, "informctl query pods --at"):
			code, says = 1, "the log begins at" // the file was just made
		case strings.HasPrefix(line, "informctl diff informers.db --since"):
			code, says = 4, "the log begins at"
		}
		if got := shell(t, dir, once(line)); got.Code != code || !strings.Contains(got.Err, says) {
			t.Errorf("%s%+v", line, got)
		}
	}
}

func runCompletion(t *testing.T, block string) {
	path := filepath.Join(t.TempDir(), "kubectl_complete-informer")
	if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	got := shell(t, t.TempDir(), fmt.Sprintf("sh %s que", path))
	if got.Code != 0 || !strings.HasPrefix(got.Out, "query\t") {
		t.Errorf("%+v", got)
	}
}
