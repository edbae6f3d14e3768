package kubectl_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/metadatainformer"
	"github.com/informctl/informctl/store/bolt"
)

// The files that informctl reads.
const (
	followed  = "file.db"     // of everything, which is followed
	copied    = "copy.db"     // a copy of it
	oldFile   = "old.db"      // of an older version of an API
	ofWidgets = "widgets.db"  // of custom resources without their definition
	ofMetas   = "metadata.db" // of a metadata informer
)

// world is a control plane with objects, and an informctl that follows it.
type world struct {
	*testing.T
	dir                string
	kubectl, informctl string // the programs
	kubeconfig         string
	file               string // that informctl reads unless it is told otherwise
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp := controlplanetest.Start(t, controlplane.Options{})
	kubectl, err := controlplane.Kubectl(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, dir: t.TempDir(), kubectl: kubectl, informctl: program.Informctl(t), kubeconfig: cp.Kubeconfig(), file: followed}
	if err := os.WriteFile(filepath.Join(w.dir, "keys"), []byte(strings.Repeat("1d", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.must(kubectl, "create", "-f", w.testdata("definition.yaml"))
	w.must(kubectl, "wait", "--for=condition=Established", "crd", "--all")
	w.must(kubectl, "create", "-f", w.testdata("objects.yaml"))
	w.follow()
	w.must(kubectl, "label", "configmaps", "settings", "-n", "other", "order=4", "--overwrite")
	w.copy()
	w.must(w.informctl, "run", "horizontalpodautoscalers.v1.autoscaling", "--once", "--db", oldFile)
	w.must(w.informctl, "run", "widgets", "--once", "--as", "reader", "--db", ofWidgets)
	w.holdMetadata(cp.Config())
	return w
}

// copy copies the file when it has what was told last.
func (w *world) copy() {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		if err := os.RemoveAll(filepath.Join(w.dir, copied)); err != nil {
			return false, err
		}
		if err := w.command(ctx, w.informctl, "snapshot", copied).Run(); err != nil {
			return false, err
		}
		out, err := w.command(ctx, w.informctl, "query", "configmaps", "-l", "order=4", "--count", "--db", copied).Output()
		return err == nil && string(out) == "1\n", nil
	})
	if err != nil {
		w.Fatalf("the file is not written: %v", err)
	}
}

// holdMetadata makes a file of the metadata of ConfigMaps.
func (w *world) holdMetadata(config *rest.Config) {
	w.Helper()
	db, err := bolt.Open(filepath.Join(w.dir, ofMetas), bolt.Options{})
	if err != nil {
		w.Fatal(err)
	}
	persistent, err := informer.NewFactory(db, config, informer.FactoryOptions{})
	if err != nil {
		w.Fatal(err)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		w.Fatal(err)
	}
	factory := metadatainformer.NewFactory(persistent, client, metadatainformer.Options{})
	factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Informer()
	ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), logr.Discard()))
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	cancel()
	factory.Shutdown()
	if err := db.Close(); err != nil {
		w.Fatal(err)
	}
}

func (w *world) testdata(name string) string {
	w.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		w.Fatal(err)
	}
	return path
}

// follow runs informctl until the test ends, and returns when it has everything.
func (w *world) follow() {
	w.Helper()
	var log bytes.Buffer
	cmd := w.command(context.WithoutCancel(w.Context()), w.informctl, "run", "--all")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			w.Logf("informctl ended with %v:\n%s", err, log.String())
		}
	})
	err := wait.PollUntilContextTimeout(w.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return w.command(ctx, w.informctl, "status").Run() == nil, nil
	})
	if err != nil {
		w.Fatal("informctl does not catch up")
	}
}

// command returns a command on the server or the file.
func (w *world) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "HOME="+w.dir, "INFORMCTL_DB="+w.file, "INFORMCTL_KEY_FILE=keys")
	return cmd
}

func (w *world) must(program string, args ...string) {
	w.Helper()
	if out, err := w.command(w.Context(), program, args...).CombinedOutput(); err != nil {
		w.Fatalf("%s %s: %v\n%s", filepath.Base(program), strings.Join(args, " "), err, out)
	}
}
