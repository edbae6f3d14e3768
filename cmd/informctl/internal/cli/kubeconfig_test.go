package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/informctl/informctl/relay"
)

// TestKubeconfigOfServed checks that the kubeconfig of what serves a file may be
// exported: its path is good in any directory, and other commands go on with the same
// file.
func TestKubeconfigOfServed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("INFORMCTL_DB", "")
	listen := func(config string) {
		l, err := relay.Listen(t.Context(), 0, config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	file := filepath.Join(dir, "x.db")
	writeFile(t, file)
	t.Chdir(dir)
	for _, config := range []string{file + ".kubeconfig", file + ".serve.kubeconfig"} {
		listen(config)
		t.Setenv("KUBECONFIG", config)
		if got := say(t.Context(), "info"); got.Code != 0 || got.Err != "" || !strings.Contains(got.Out, "pods") {
			t.Errorf("%s: %+v", filepath.Base(config), got)
		}
	}
	for _, args := range [][]string{{"--db", "x.db"}, {"--serve"}, {"--once", "--server", "http://127.0.0.1:1"}, {"--once", "--cluster", "other"}} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		got := say(ctx, append([]string{"run", "pods"}, args...)...)
		want := "would be followed into itself; name that of the cluster with --kubeconfig"
		if cancel(); got.Code != 1 || strings.Contains(got.Err, want) == (args[0] == "--once") {
			t.Errorf("%s: %+v", args, got)
		}
	}
	for _, args := range [][]string{{"audit", "--db", "x.db"}, {"diff", "x.db", "--live"}} {
		want := "x.db is served with, and would be compared with itself; name that of the cluster with --kubeconfig"
		if got := say(t.Context(), args...); got.Code != 4 || !strings.Contains(got.Err, want) {
			t.Errorf("%s: %+v", args, got)
		}
	}
	if got := say(t.Context(), "publish", "pods"); got.Code != 1 || !strings.Contains(got.Err, "is served with, and would be published as a cluster; name that of the cluster") {
		t.Errorf("%+v", got)
	}
	if got := say(t.Context(), "kubeconfig", "--db", "x.db"); got.Out != file+".kubeconfig\n" {
		t.Errorf("%+v", got)
	}

	// The file of the directory is the same one, and needs no note.
	if err := os.Rename(file, "informers.db"); err != nil {
		t.Fatal(err)
	}
	listen("informers.db.kubeconfig")
	t.Setenv("KUBECONFIG", filepath.Join(dir, "informers.db.kubeconfig"))
	if got := say(t.Context(), "info"); got.Code != 0 || got.Err != "" {
		t.Errorf("%+v", got)
	}

	// Another kubeconfig of that name is one of a cluster.
	if err := os.WriteFile("y.db.kubeconfig", []byte(kubeconfig("http://127.0.0.1:1")), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "y.db.kubeconfig"))
	if got := say(t.Context(), "info", "--context", "c"); got.Code != 1 || !strings.Contains(got.Err, "/cache/informctl/c.db: no such file") {
		t.Errorf("%+v", got)
	}
}
