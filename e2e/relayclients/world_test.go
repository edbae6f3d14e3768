package relayclients_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
)

// shop is the namespace of the objects of testdata.
const shop = "shop"

// world is a control plane with objects, and the programs.
type world struct {
	*testing.T
	cp      *controlplane.ControlPlane
	kubectl string
	home    string // of kubectl, with its cache
	program string
	client  *kubernetes.Clientset
	custom  dynamic.Interface
}

func TestClients(t *testing.T) {
	kubectl, err := controlplane.Kubectl(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	informctl := program.Informctl(t)
	t.Run("now", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, kubectl, informctl)
		t.Run("kubectl", func(t *testing.T) { testKubectl(w.in(t)) })
		t.Run("informers", func(t *testing.T) { testInformers(w.in(t)) })
		for _, l := range []language{python(), node()} {
			t.Run(l.name, func(t *testing.T) { testLanguage(w.in(t), l) })
		}
	})
	t.Run("then", func(t *testing.T) {
		t.Parallel()
		testMoments(newWorld(t, kubectl, informctl))
	})
}

// in returns the world of a test that is part of another one.
func (w *world) in(t *testing.T) *world {
	out := *w
	out.T = t
	return &out
}

func newWorld(t *testing.T, kubectl, informctl string) *world {
	t.Helper()
	w := &world{T: t, kubectl: kubectl, home: t.TempDir(), program: informctl, cp: controlplanetest.Start(t, controlplane.Options{})}
	http, err := rest.HTTPClientFor(w.cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(http.Transport) })
	if w.client, err = kubernetes.NewForConfigAndClient(w.cp.Config(), http); err != nil {
		t.Fatal(err)
	}
	if w.custom, err = dynamic.NewForConfigAndClient(w.cp.Config(), http); err != nil {
		t.Fatal(err)
	}
	if err := controlplane.Load(t.Context(), w.cp.Config(), controlplane.LoadOptions{Pods: 30, Widgets: 10}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", "--server-side", "-f", "testdata/shop.yaml"},
		{"apply", "--server-side", "--subresource=status", "-f", "testdata/status.yaml"},
	} {
		if a := w.run(w.cp.Kubeconfig(), args...); a.code != 0 {
			t.Fatalf("kubectl %v: %s", args, a.errs)
		}
	}
	return w
}

// label sets a label of a pod of the shop at the server.
func (w *world) label(pod, value string) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{"changed":%q}}}`, value)
	if _, err := w.client.CoreV1().Pods(shop).Patch(w.Context(), pod, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) stopServer() {
	w.Helper()
	if err := w.cp.StopAPIServer(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *world) startServer() {
	w.Helper()
	if err := w.cp.StartAPIServer(w.Context()); err != nil {
		w.Fatal(err)
	}
}

// await polls until is returns true. what says at the end what it was last. What it waits
// for may pause for a minute: informctl and client-go back off while a server is down.
func (w *world) await(is func() bool, what func() string) {
	w.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	timeout := time.NewTimer(3 * time.Minute)
	defer timeout.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-timeout.C:
			w.Fatalf("waited for too long: %s", what())
		}
	}
}

// answer is what a program has said.
type answer struct {
	out, errs string
	code      int
}

func (a answer) String() string { return fmt.Sprintf("code %d\n%s%s", a.code, a.out, a.errs) }

// command returns a command of kubectl.
func (w *world) command(kubeconfig string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.Context(), w.kubectl, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.home, "KUBECONFIG=" + kubeconfig}
	return cmd
}

// run runs kubectl.
func (w *world) run(kubeconfig string, args ...string) answer {
	w.Helper()
	return result(w.command(kubeconfig, args...))
}

// result runs a command.
func result(cmd *exec.Cmd) (a answer) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	a.out, a.errs = out.String(), errs.String()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		a.code = exit.ExitCode()
	case err != nil:
		a.code, a.errs = -1, err.Error()
	}
	return a
}

// process is a running program that writes what happens.
type process struct {
	w     *world
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // how, then

	mu   sync.Mutex // protects text
	text bytes.Buffer
}

// Write implements io.Writer for the output.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// start starts a command, which ends with the test at the latest.
func (w *world) start(cmd *exec.Cmd) *process {
	w.Helper()
	p := &process{w: w, cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	w.Cleanup(func() {
		p.kill()
		if w.Failed() {
			text := p.output()
			w.Logf("%v:\n%s", cmd.Args, text[max(0, len(text)-3000):])
		}
	})
	return p
}

// kill ends it with a SIGKILL.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// stop ends it with a SIGTERM.
func (p *process) stop() {
	p.w.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	<-p.ended
	if p.err != nil {
		p.w.Fatalf("%v: %v", p.cmd.Args, p.err)
	}
}

// awaitText returns when it has written a text.
func (p *process) awaitText(text string) {
	p.w.Helper()
	p.w.await(func() bool {
		select {
		case <-p.ended:
			if !strings.Contains(p.output(), text) {
				p.w.Fatalf("%v ended without %q: %v\n%s", p.cmd.Args, text, p.err, p.output())
			}
		default:
		}
		return strings.Contains(p.output(), text)
	}, func() string { return fmt.Sprintf("%q in %s", text, p.output()) })
}

// keeper is a file and the informctl run --serve that keeps it.
type keeper struct {
	*world
	db   string
	args []string
	*process
}

// keep starts informctl run --all --serve with a new file.
func (w *world) keep(args ...string) *keeper {
	w.Helper()
	k := &keeper{world: w, db: filepath.Join(w.TempDir(), "informers.db"), args: args}
	k.begin()
	return k
}

// begin starts it. It returns when clients can come, which may be before the server was
// reached.
func (k *keeper) begin() {
	k.Helper()
	k.process = k.start(k.informctl(append([]string{"run", "--all", "--serve", "--log-format", "json"}, k.args...)...))
	k.awaitText(`"Serving"`)
}

// caughtUp returns when all is as new as the server.
func (k *keeper) caughtUp() {
	k.Helper()
	k.await(func() bool {
		a := result(k.informctl("status", "-o", "json"))
		var all []struct{ CaughtUp bool }
		if json.Unmarshal([]byte(a.out), &all) != nil {
			return false
		}
		for _, s := range all {
			if !s.CaughtUp {
				return false
			}
		}
		return len(all) > 0
	}, func() string { return result(k.informctl("status")).String() })
}

// informctl returns a command on the file.
func (k *keeper) informctl(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(k.Context(), k.world.program, append(args, "--db", k.db)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.cp.Kubeconfig(), "INFORMCTL_DB=")
	return cmd
}

// kubeconfig returns the path of the kubeconfig of what serves the file.
func (k *keeper) kubeconfig() string {
	k.Helper()
	a := result(k.informctl("kubeconfig"))
	if a.code != 0 {
		k.Fatalf("informctl kubeconfig: %s", a.errs)
	}
	return strings.TrimSpace(a.out)
}

// configOf returns the client configuration of a kubeconfig.
func (w *world) configOf(kubeconfig string) *rest.Config {
	w.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		w.Fatal(err)
	}
	config.QPS = -1
	return config
}
