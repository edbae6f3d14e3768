package deploy_test

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
)

// directory contains the manifests.
const directory = "../../deploy"

// notForTheServer are the YAML files that are not Kubernetes objects. Package metrics
// tests the alerts, and TestManifests the kustomizations.
var notForTheServer = []string{"alerts.yaml", "kustomization.yaml"}

// world is a control plane and its administrator.
type world struct {
	t        *testing.T
	cp       *controlplane.ControlPlane
	admin    client.Client
	warnings *[]string // the server's warnings to the last request
}

// warnings collects the server's warnings. Requests must be made one at a time.
type warnings struct{ all *[]string }

func (w warnings) HandleWarningHeader(_ int, _, text string) { *w.all = append(*w.all, text) }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, warnings: new([]string), cp: controlplanetest.Start(t, controlplane.Options{})}
	cfg := w.cp.Config()
	cfg.WarningHandler = warnings{w.warnings}
	http, err := rest.HTTPClientFor(cfg)
	w.must(err)
	t.Cleanup(http.CloseIdleConnections)
	w.admin, err = client.New(cfg, client.Options{HTTPClient: http})
	w.must(err)
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// apply does the same as kubectl apply --server-side --validate=strict. A warning of the
// server fails the test.
func (w *world) apply(name string, u *unstructured.Unstructured, opts ...client.ApplyOption) bool {
	w.t.Helper()
	*w.warnings = nil
	// An apply is always strict about fields.
	opts = append(opts, client.FieldOwner("deploy"))
	if err := w.admin.Apply(w.t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), opts...); err != nil {
		w.t.Errorf("%s: %s %s: %v", name, u.GetKind(), u.GetName(), err)
		return false
	}
	for _, text := range *w.warnings {
		w.t.Errorf("%s: %s %s: the server warns: %s", name, u.GetKind(), u.GetName(), text)
	}
	return true
}

// manifests returns the documents of every YAML file in the directory.
func manifests(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	found := map[string][]*unstructured.Unstructured{}
	err := filepath.WalkDir(directory, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) || slices.Contains(notForTheServer, d.Name()) {
			return err
		}
		found[d.Name()] = documents(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func documents(t *testing.T, path string) (all []*unstructured.Unstructured) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for documents := utilyaml.NewYAMLReader(bufio.NewReader(f)); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		u := &unstructured.Unstructured{}
		if err == nil {
			// A duplicate field is an error.
			err = yaml.UnmarshalStrict(document, &u.Object)
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if u.GetKind() == "" || u.GetName() == "" {
			t.Fatalf("%s: document %d has no kind or no name", path, len(all)+1)
		}
		all = append(all, u)
	}
}

// TestManifests checks that a real API server accepts every document, and each pod that a
// workload would create, without a warning.
func TestManifests(t *testing.T) {
	w := newWorld(t)
	w.serveMonitoring()
	files := manifests(t)
	for name, all := range files {
		if len(all) == 0 {
			t.Errorf("%s has nothing to apply", name)
		}
		for _, u := range all {
			w.apply(name, u, client.DryRunAll)
			checkMonitoring(t, name, u)
		}
		for _, u := range all {
			// The labels of the namespace set the pod security level, and violations
			// cause warnings.
			if u.GetKind() == "Namespace" {
				w.apply(name, u)
			}
		}
	}
	workloads := 0
	for name, all := range files {
		for _, u := range all {
			pod, ok := podOf(t, u)
			if !ok {
				continue
			}
			workloads++
			w.apply(name, u, client.DryRunAll) // now the namespace exists
			*w.warnings = nil
			if err := w.admin.Create(t.Context(), pod, client.DryRunAll); err != nil {
				t.Errorf("%s: the pod of %s %s: %v", name, u.GetKind(), u.GetName(), err)
			}
			for _, text := range *w.warnings {
				t.Errorf("%s: the pod of %s %s: the server warns: %s", name, u.GetKind(), u.GetName(), text)
			}
			checkPod(t, name, &pod.Spec)
		}
	}
	if workloads != 5 {
		t.Errorf("%d workloads, want a StatefulSet, a Deployment, a DaemonSet, an operator and publishers", workloads)
	}
	checkMetricsPort(t, files)
	w.applyFolders(t)
}

// podOf returns the pod that a workload creates.
func podOf(t *testing.T, u *unstructured.Unstructured) (*corev1.Pod, bool) {
	t.Helper()
	template, found, err := unstructured.NestedMap(u.Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return nil, false
	}
	var typed corev1.PodTemplateSpec
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &typed); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: typed.ObjectMeta, Spec: typed.Spec}
	pod.Name, pod.Namespace = u.GetName()+"-0", u.GetNamespace()
	claims, _, err := unstructured.NestedSlice(u.Object, "spec", "volumeClaimTemplates")
	if err != nil {
		t.Fatal(err)
	}
	for _, claim := range claims {
		name, _, _ := unstructured.NestedString(claim.(map[string]any), "metadata", "name")
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name + "-" + pod.Name},
		}})
	}
	return pod, true
}

// checkPod checks settings that the server would accept but that would be wrong here.
func checkPod(t *testing.T, name string, spec *corev1.PodSpec) {
	t.Helper()
	if s := spec.SecurityContext; s == nil || s.FSGroup == nil || s.FSGroupChangePolicy == nil || s.SeccompProfile == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
		t.Errorf("%s: the pod's security context is not whole: %+v", name, s)
	}
	for _, c := range spec.Containers {
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
			t.Errorf("%s: the security context of %s is not whole: %+v", name, c.Name, s)
		}
		if c.LivenessProbe != nil {
			t.Errorf("%s: %s would be killed while it lists", name, c.Name)
		}
		if isPublisher(c) {
			if dsn := flagOf(c.Args, "--postgres-dsn-file"); len(c.VolumeMounts) != 1 || !strings.HasPrefix(dsn, c.VolumeMounts[0].MountPath+"/") {
				t.Errorf("%s: %s, the data source name, is on no volume", name, dsn)
			}
			continue
		}
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" && p.ContainerPort == 8080 }) {
			t.Errorf("%s: %s has no port for metrics", name, c.Name)
		}
		if isOperator(c) {
			if c.ReadinessProbe == nil || c.ReadinessProbe.HTTPGet == nil || len(c.VolumeMounts) != 1 {
				t.Errorf("%s: %s has no probe of a manager, or no volume", name, c.Name)
			}
			continue
		}
		db := flagOf(c.Args, "--db")
		probe := c.ReadinessProbe
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/readyz" || probe.HTTPGet.Port.String() != "metrics" || flagOf(c.Args, "--metrics-bind-address") != ":8080" {
			t.Errorf("%s: the readiness of %s does not ask for /readyz at the port of the metrics", name, c.Name)
		}
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(db, m.MountPath+"/") })
		if !mounted {
			t.Errorf("%s: %s of %s is on no volume", name, db, c.Name)
		}
	}
}

// flagOf returns the word after a flag.
func flagOf(args []string, flag string) string {
	if at := slices.Index(args, flag); at >= 0 && at+1 < len(args) {
		return args[at+1]
	}
	return ""
}

// isOperator reports whether a container runs a program of the user's, not informctl.
func isOperator(c corev1.Container) bool { return len(c.Command) > 0 }

// isPublisher reports whether a container publishes to PostgreSQL, and so has no file.
func isPublisher(c corev1.Container) bool { return len(c.Args) > 0 && c.Args[0] == "publish" }

// checkMetricsPort checks that the Service of monitoring.yaml selects the pods of the
// workloads in its namespace, and the ServiceMonitor the Service and its port.
func checkMetricsPort(t *testing.T, files map[string][]*unstructured.Unstructured) {
	t.Helper()
	var service corev1.Service
	var monitor monitoringv1.ServiceMonitor
	for _, u := range files["monitoring.yaml"] {
		var into any
		switch u.GetKind() {
		case "Service":
			into = &service
		case "ServiceMonitor":
			into = &monitor
		default:
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
			t.Fatal(err)
		}
	}
	if !selects(monitor.Spec.Selector.MatchLabels, service.Labels) || len(monitor.Spec.Endpoints) != 1 ||
		monitor.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name || monitor.Namespace != service.Namespace {
		t.Errorf("the ServiceMonitor does not find the Service: %+v", monitor.Spec)
	}
	for _, name := range []string{"deployment.yaml", "statefulset.yaml"} {
		for _, u := range files[name] {
			if pod, ok := podOf(t, u); ok && (!selects(service.Spec.Selector, pod.Labels) || pod.Namespace != service.Namespace) {
				t.Errorf("%s: the Service does not select its pods", name)
			}
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}
