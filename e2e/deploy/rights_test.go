package deploy_test

import (
	"bytes"
	"context"
	"errors"
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

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
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
			if strings.HasPrefix(u.GetAPIVersion(), "rbac.") || u.GetKind() == "Namespace" {
				w.apply(name, u)
			}
		}
	}
	controlplanetest.AwaitRights(t, w.cp)
	for name, all := range files {
		for _, u := range all {
			pod, ok := podOf(t, u)
			switch {
			case !ok:
			case isPublisher(pod.Spec.Containers[0]): // e2e/published runs it
			case isOperator(pod.Spec.Containers[0]):
				w.checkOperator(pod)
			default:
				t.Run(u.GetKind(), func(t *testing.T) { runPod(t, w.cp.Kubeconfig(), bin, name, pod) })
			}
		}
	}
}

// checkOperator checks that the ServiceAccount of an operator has the rights that leader
// election, a shared consumer and the factory need, and no write elsewhere.
func (w *world) checkOperator(pod *corev1.Pod) {
	w.t.Helper()
	for _, c := range []struct {
		authorizationv1.ResourceAttributes
		allowed bool
	}{
		{authorizationv1.ResourceAttributes{Namespace: pod.Namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "create"}, true},
		{authorizationv1.ResourceAttributes{Namespace: pod.Namespace, Group: "coordination.k8s.io", Resource: "leases", Verb: "update"}, true},
		{authorizationv1.ResourceAttributes{Namespace: pod.Namespace, Resource: "configmaps", Verb: "get"}, true},
		{authorizationv1.ResourceAttributes{Namespace: pod.Namespace, Resource: "configmaps", Verb: "create"}, true},
		{authorizationv1.ResourceAttributes{Namespace: pod.Namespace, Resource: "configmaps", Verb: "patch"}, true},
		{authorizationv1.ResourceAttributes{Namespace: pod.Namespace, Resource: "configmaps", Verb: "update"}, true},
		{authorizationv1.ResourceAttributes{Resource: "pods", Verb: "watch"}, true},
		{authorizationv1.ResourceAttributes{Resource: "namespaces", Name: "kube-system", Verb: "get"}, true},
		{authorizationv1.ResourceAttributes{Resource: "namespaces", Name: "default", Verb: "get"}, false},
		{authorizationv1.ResourceAttributes{Namespace: "default", Resource: "configmaps", Verb: "update"}, false},
		{authorizationv1.ResourceAttributes{Namespace: "default", Resource: "configmaps", Verb: "patch"}, false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName),
			ResourceAttributes: &c.ResourceAttributes,
		}}
		w.must(w.admin.Create(w.t.Context(), review))
		if review.Status.Allowed != c.allowed {
			w.t.Errorf("the operator's right to %s %s in %q is %t", c.Verb, c.Resource, c.Namespace, review.Status.Allowed)
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
			if word == ":8080" {
				word = "127.0.0.1:0" // the port may be taken here
			}
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

	probe := container.ReadinessProbe.HTTPGet.Path
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(2 * time.Minute)
	for ready := false; !ready; {
		out, err := ask(t, program.Args, probe)
		ready = err == nil
		select {
		case <-tick.C:
		case err := <-ended:
			t.Fatalf("%s: the program ended: %v\n%s", file, err, &log)
		case <-timeout:
			_ = program.Process.Kill()
			// Nothing writes to the log after the program has ended.
			t.Fatalf("%s: not ready in 2 minutes: %v, ended with %v\n%s\n%s", file, err, <-ended, out, &log)
		}
	}
	if text, err := ask(t, program.Args, "/metrics"); err != nil || !strings.Contains(text, "\ninformctl_caught_up{") {
		t.Errorf("%s: error %v, metrics are:\n%s", file, err, text)
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

// ask asks a program for a path, by the socket next to its --db file: another process may
// have the port here. The error says that there is no answer, or none of 200.
func ask(t *testing.T, args []string, path string) (text string, err error) {
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
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://informctl"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(body), err
}
