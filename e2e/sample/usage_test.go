package sample_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/informctl/informctl/e2e/program"
)

// TestWithoutServer checks that bad input results in one line and an exit code, and that
// the program waits for a server that is down.
func TestWithoutServer(t *testing.T) {
	program, dir := program.Build(t, "samplecontroller", root, "./examples/samplecontroller"), t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"down": {Server: "https://127.0.0.1:1"}},
		Contexts:       map[string]*clientcmdapi.Context{"down": {Cluster: "down"}},
		CurrentContext: "down",
	}, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	notOurs := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(notOurs, []byte(strings.Repeat("notes, and no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(dir, "informers.db")
	running := start(t, program, filepath.Join(dir, "running.log"), "--kubeconfig", kubeconfig, "--db", db)
	running.awaitLog("Waiting for the API server")

	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"unknown flag":     {[]string{"--bogus"}, 64, "-bogus"},
		"no number":        {[]string{"--workers", "many"}, 64, `"many"`},
		"no workers":       {[]string{"--workers", "0"}, 64, "--workers is 0"},
		"no file":          {[]string{"--db", ""}, 64, "--db is empty"},
		"argument":         {[]string{"pods"}, 64, `"pods"`},
		"no kubeconfig":    {[]string{"--kubeconfig", filepath.Join(dir, "none")}, 1, "no such file"},
		"not a kubeconfig": {[]string{"--kubeconfig", notOurs}, 1, "kubeconfig"},
		"not a database":   {[]string{"--kubeconfig", kubeconfig, "--db", notOurs}, 1, "notes.txt"},
		"file in use":      {[]string{"--kubeconfig", kubeconfig, "--db", db}, 1, "locked by another process"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, c.args...)
			cmd.Dir = dir
			out, err := cmd.Output()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != c.code {
				t.Fatalf("ended with %v, want exit code %d", err, c.code)
			}
			line := string(exit.Stderr)
			if !strings.HasPrefix(line, "samplecontroller: ") || strings.Count(line, "\n") != 1 || !strings.Contains(line, c.want) {
				t.Errorf("said %q, want one line with %q", line, c.want)
			}
			if len(out) > 0 {
				t.Errorf("standard output is %q", out)
			}
		})
	}
	running.terminate()
}
