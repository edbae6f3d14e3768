package quickstart_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
)

const namespace = "default"

// world is a control plane with pods, and a directory for programs.
type world struct {
	t      *testing.T
	cp     *controlplane.ControlPlane
	client kubernetes.Interface
	bin    string // directory of the programs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, bin: t.TempDir(), cp: controlplanetest.Start(t, controlplane.Options{})}
	var err error
	if w.client, err = kubernetes.NewForConfig(w.cp.Config()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web-1", "web-2"} {
		w.create(t, name)
	}
	return w
}

func (w *world) create(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
	if _, err := w.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) remove(t *testing.T, name string) {
	t.Helper()
	if err := w.client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
}

// build builds the package in dir, or the given files, into a program.
func (w *world) build(t *testing.T, dir, name string, files ...string) {
	t.Helper()
	if len(files) == 0 {
		files = []string{"."}
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", filepath.Join(w.bin, name)}, files...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", dir, err, out)
	}
}

// size returns the size of a program.
func (w *world) size(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(w.bin, name))
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// output is the output of a process so far.
type output struct {
	mu    sync.Mutex // protects bytes
	bytes bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes.String()
}

// run starts a program in a directory, waits until it has printed all the lines, and ends
// it as a rollout does. It returns the time of the start.
func (w *world) run(t *testing.T, name, dir string, lines ...string) time.Time {
	t.Helper()
	started := time.Now()
	var out, log output
	cmd := exec.CommandContext(t.Context(), filepath.Join(w.bin, name))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+w.cp.Kubeconfig())
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(2 * time.Minute)
	for left := lines; len(left) > 0; {
		if strings.Contains("\n"+out.String(), "\n"+left[0]+"\n") {
			left = left[1:]
			continue
		}
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("%s ended: %v\n%s", name, err, &log)
		case <-timeout:
			_ = cmd.Process.Kill()
			t.Fatalf("%s did not print %q in 2 minutes, and ended with %v:\n%s\n%s", name, left[0], <-ended, &out, &log)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%s ended with %v after SIGTERM\n%s", name, err, &log)
	}
	return started
}

// lists returns the number of lists of all pods that a program has requested since then.
func (w *world) lists(t *testing.T, name string, since time.Time) (n int) {
	t.Helper()
	all, err := w.cp.Requests(since)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		if r.Resource == "pods" && strings.HasPrefix(r.UserAgent, name+"/") && r.IsList() {
			n++
		}
	}
	return n
}

// TestQuickStart checks that the programs and commands of the pages do what the pages
// say.
func TestQuickStart(t *testing.T) {
	w := newWorld(t)
	reconciled := func(t *testing.T, name string) {
		w.program(t, name,
			[]string{"reconcile default/web-1 there: true", "reconcile default/web-2 there: true"},
			[]string{"reconcile default/web-1 there: true", "reconcile default/web-2 there: false", "reconcile default/web-3 there: true"})
	}
	t.Run("controller-runtime", func(t *testing.T) {
		w.build(t, "controllerruntime", "controllerruntime")
		reconciled(t, "controllerruntime")
	})
	t.Run("kubebuilder", func(t *testing.T) {
		w.build(t, ".", "kubebuilder", changed(t, "### controller-runtime", "kubebuilder"))
		reconciled(t, "kubebuilder")
	})
	synced := func(t *testing.T, name string) {
		w.program(t, name,
			[]string{"added default/web-1", "added default/web-2", "synced, 2 pods"},
			[]string{"added default/web-1", "added default/web-2", "deleted default/web-2", "added default/web-3", "synced, 2 pods"})
	}
	t.Run("client-go", func(t *testing.T) {
		w.build(t, "clientgo", "clientgo")
		synced(t, "clientgo")
	})
	t.Run("client-go with five types", func(t *testing.T) {
		w.build(t, ".", "fivetypes", changed(t, "### client-go", "clientgo"))
		// A method that is called by its name would have the linker keep all of them.
		w.build(t, ".", "fivetypes-before", filepath.Join("testdata", "clientgo", "main.go"))
		if before, now := w.size(t, "fivetypes-before"), w.size(t, "fivetypes"); now > before*3/2 {
			t.Errorf("the program has %d bytes, and %d with client-go's informers", now, before)
		}
		synced(t, "fivetypes")
	})
	t.Run("command", func(t *testing.T) { w.commands(t) })
}

// program runs a program twice and makes changes between the runs. The second run must
// not list.
func (w *world) program(t *testing.T, name string, first, second []string) {
	dir := t.TempDir()
	started := w.run(t, name, dir, first...)
	if w.lists(t, name, started) == 0 {
		t.Error("the cold start made no list: the test proves nothing")
	}
	w.remove(t, "web-2")
	w.create(t, "web-3")
	started = w.run(t, name, dir, second...)
	if n := w.lists(t, name, started); n > 0 {
		t.Errorf("the warm start made %d lists", n)
	}
	w.create(t, "web-2") // the state before the changes
	w.remove(t, "web-3")
}

// commands runs the shell block of the README.
func (w *world) commands(t *testing.T) {
	w.build(t, "../../cmd/informctl", "informctl")
	commands := block(t, "README.md", "## The command", "sh")
	cmd := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", commands)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.cp.Kubeconfig(), "PATH="+w.bin+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+t.TempDir())
	started := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := w.lists(t, "informctl", started); n != 1 {
		t.Errorf("pods were listed %d times, want once in two runs\n%s", n, out)
	}
	for _, want := range []string{"default +web-1", "pods .* caught up .* resumed", "pods .* complete"} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("%s is not in\n%s", want, out)
		}
	}
}
