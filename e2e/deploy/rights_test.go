package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/program"
	"github.com/informctl/informctl/inspect"
)

// node is the name of the node that a pod runs on.
const node = "node-1"

// TestRights checks that the program of each workload catches up with the rights in the
// manifests, that its readiness probe succeeds then, and that it ends without an error
// after SIGTERM.
func TestRights(t *testing.T) {
	w := newWorld(t)
	bin := filepath.Dir(program.Informctl(t))
	files := manifests(t)
	for name, all := range files {
		for _, u := range all {
			if strings.HasPrefix(u.GetAPIVersion(), "rbac.") {
				w.apply(name, u)
			}
		}
	}
	for name, all := range files {
		for _, u := range all {
			if pod, ok := podOf(t, u); ok {
				t.Run(u.GetKind(), func(t *testing.T) { runPod(t, w.cp.Kubeconfig(), bin, name, pod) })
			}
		}
	}
}

// runPod runs the pod's program on this machine as the pod's ServiceAccount.
func runPod(t *testing.T, admin, bin, file string, pod *corev1.Pod) {
	dir := t.TempDir()
	cfg, err := clientcmd.LoadFromFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range cfg.AuthInfos {
		user.Impersonate = fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, kubeconfig); err != nil {
		t.Fatal(err)
	}

	container := pod.Spec.Containers[0]
	command := func(words []string) *exec.Cmd {
		here := make([]string, len(words))
		for i, word := range words {
			word = strings.ReplaceAll(word, "$(NODE_NAME)", node)
			for _, m := range container.VolumeMounts {
				word = strings.ReplaceAll(word, m.MountPath+"/", dir+"/")
			}
			here[i] = word
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "informctl"), here...)
		cmd.Env = []string{"KUBECONFIG=" + kubeconfig}
		return cmd
	}
	program := command(container.Args)
	var log bytes.Buffer // read after the program has ended
	program.Stderr = &log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- program.Wait() }()

	probe := container.ReadinessProbe.Exec.Command
	if probe[0] != "informctl" {
		t.Fatalf("%s: the probe runs %q", file, probe[0])
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for ready := false; !ready; {
		out, err := command(probe[1:]).CombinedOutput()
		ready = err == nil
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("%s: the program ended: %v\n%s", file, err, &log)
		case <-timeout:
			_ = program.Process.Kill()
			// Nothing writes to the log after the program has ended.
			t.Fatalf("%s: not ready in 30 s: %v, ended with %v\n%s\n%s", file, err, <-ended, out, &log)
		}
	}
	if text := metricsOf(t, program.Args); !strings.Contains(text, "\ninformctl_caught_up{") {
		t.Errorf("%s: metrics are:\n%s", file, text)
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%s: ended with %v after SIGTERM\n%s", file, err, &log)
	}
	if strings.Contains(log.String(), "No permission") {
		t.Errorf("%s: a right is missing:\n%s", file, &log)
	}
}

// metricsOf reads the metrics of a program from the socket next to its --db file.
func metricsOf(t *testing.T, args []string) string {
	t.Helper()
	var db string
	for i, arg := range args {
		if path, is := strings.CutPrefix(arg, "--db="); is {
			db = path
		} else if arg == "--db" {
			db = args[i+1]
		}
	}
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", inspect.SocketPath(db))
		},
	}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://informctl/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
