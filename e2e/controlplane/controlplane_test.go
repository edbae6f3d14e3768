package controlplane_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/internal/testobjects"
)

const pods = 200

func start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	begin := time.Now()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir(), Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("started in %v", time.Since(begin))
	return cp
}

// newClient returns a client with its own connections, which are closed when the test
// ends.
func newClient(t *testing.T, cfg *rest.Config, userAgent string) kubernetes.Interface {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = userAgent
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(httpClient.CloseIdleConnections)
	client, err := kubernetes.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func list(t *testing.T, client kubernetes.Interface, opts metav1.ListOptions) *corev1.PodList {
	t.Helper()
	found, err := client.CoreV1().Pods("").List(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func timed(t *testing.T, name string, f func(context.Context) error) {
	t.Helper()
	begin := time.Now()
	if err := f(t.Context()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("%s took %v", name, time.Since(begin))
}

func TestControlPlane(t *testing.T) {
	cp := start(t)
	client := newClient(t, cp.Config(), "reader/1")
	timed(t, "load", func(ctx context.Context) error {
		return controlplane.Load(ctx, cp.Config(), controlplane.LoadOptions{Pods: pods, Widgets: 10, Seed: 1})
	})
	checkPods(t, client)
	t.Run("version", func(t *testing.T) {
		info, err := client.Discovery().ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		if info.GitVersion != cp.Version() {
			t.Errorf("the server is %s, want %s", info.GitVersion, cp.Version())
		}
	})
	t.Run("kubeconfig", func(t *testing.T) {
		cfg, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		list(t, newClient(t, cfg, "kubeconfig/1"), metav1.ListOptions{Limit: 1})
	})
	t.Run("restart", func(t *testing.T) {
		before := revision(t, list(t, client, metav1.ListOptions{}))
		timed(t, "restart of the API server", cp.RestartAPIServer)
		checkPods(t, client)
		if after := revision(t, list(t, client, metav1.ListOptions{})); after < before {
			t.Errorf("the resource version went from %d back to %d", before, after)
		}
	})
	t.Run("requests", func(t *testing.T) { testRequests(t, cp) })
	t.Run("compact", func(t *testing.T) { testCompact(t, cp, client) })
	t.Run("restore", func(t *testing.T) { testRestore(t, cp, client) })
}

// checkPods checks that the server has the pods of package testobjects in full size.
func checkPods(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	found := list(t, client, metav1.ListOptions{}).Items
	if len(found) != pods {
		t.Fatalf("%d pods are there, want %d", len(found), pods)
	}
	size, managed := 0, 0
	for _, pod := range found {
		if pod.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s/%s is %q", pod.Namespace, pod.Name, pod.Status.Phase)
		}
		size += pod.Size()
		for _, entry := range pod.ManagedFields {
			managed += entry.Size()
		}
	}
	if mean := size / pods; mean < 7_700 || mean > 11_500 {
		t.Errorf("a pod has %d bytes as protobuf, want about 9600", mean)
	}
	t.Logf("a pod has %d bytes as protobuf, %d of them managed fields", size/pods, managed/pods)
	namespace, name := testobjects.PodKey(1)
	got, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := testobjects.Pod(1, 1)
	// The server makes these fields in more than one way, so they are not compared.
	for _, pod := range []*corev1.Pod{got, want} {
		testobjects.ClearServerFields(pod)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the server changed the pod (-want +got):\n%s", diff)
	}
}

func testRequests(t *testing.T, cp *controlplane.ControlPlane) {
	since := time.Now()
	client := newClient(t, cp.Config(), "counted/1")
	page := list(t, client, metav1.ListOptions{Limit: 150})
	list(t, client, metav1.ListOptions{Limit: 150, Continue: page.Continue})
	w, err := client.CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: page.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	w.Stop()
	requests, err := cp.Requests(since)
	if err != nil {
		t.Fatal(err)
	}
	requests = slices.DeleteFunc(requests, func(r controlplane.Request) bool { return r.UserAgent != "counted/1" })
	var got []string
	for _, r := range requests {
		got = append(got, r.Verb+" "+r.Resource+" limit="+r.Query().Get("limit"))
	}
	if diff := cmp.Diff([]string{"list pods limit=150", "list pods limit=150", "watch pods limit="}, got); diff != "" {
		t.Fatalf("requests (-want +got):\n%s", diff)
	}
	if r := requests[0]; r.Code != 200 || r.Stage != "ResponseComplete" {
		t.Errorf("the first list has code %d at stage %s", r.Code, r.Stage)
	}
}

func testCompact(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	old := list(t, client, metav1.ListOptions{}).ResourceVersion
	createConfigMap(t, client, "after-list")
	timed(t, "compact", cp.Compact)
	timed(t, "compact what is compacted", cp.Compact)
	timed(t, "restart of the API server", cp.RestartAPIServer)
	_, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{
		ResourceVersion: old, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1,
	})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("a list at a compacted revision gave %v, want 410", err)
	}
}

func testRestore(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	path := filepath.Join(t.TempDir(), "snapshot")
	before := revision(t, list(t, client, metav1.ListOptions{}))
	timed(t, "snapshot", func(ctx context.Context) error { return cp.Snapshot(ctx, path) })
	for k := range 100 {
		createConfigMap(t, client, "after-snapshot-"+strconv.Itoa(k))
	}
	later := revision(t, list(t, client, metav1.ListOptions{}))
	timed(t, "restore", func(ctx context.Context) error { return cp.Restore(ctx, path) })
	after := revision(t, list(t, client, metav1.ListOptions{}))
	if after < before || after >= later {
		t.Errorf("the resource version is %d, want it between %d at the snapshot and %d at the restore", after, before, later)
	}
	_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "after-snapshot-0", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("get of an object that is later than the snapshot gave %v, want 404", err)
	}
	checkPods(t, client)
}

func createConfigMap(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func revision(t *testing.T, l *corev1.PodList) int {
	t.Helper()
	n, err := strconv.Atoi(l.ResourceVersion)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKubectl(t *testing.T) {
	kubectl, err := controlplane.Kubectl(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	binaries, err := controlplane.Build(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), kubectl, "version", "--client").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if want := "Client Version: " + binaries.Version + "\n"; !strings.Contains(string(out), want) {
		t.Errorf("kubectl version printed %q, want %q in it", out, want)
	}
}

func TestStopLeavesNoProcess(t *testing.T) {
	dir := t.TempDir()
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, NoWatchCache: true, Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(processesWith(t, dir)) != 2 {
		t.Errorf("processes of the control plane: %q, want etcd and kube-apiserver", processesWith(t, dir))
	}
	for range 2 {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	}
	if left := processesWith(t, dir); len(left) != 0 {
		t.Errorf("after Stop there is still %q", left)
	}
}

// processesWith returns the command lines that contain dir.
func processesWith(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Skip("there is no /proc")
	}
	var lines []string
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), dir) {
			lines = append(lines, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return lines
}
