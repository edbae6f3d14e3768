package sample_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/e2e/program"
	"github.com/informctl/informctl/examples/samplecontroller/v1alpha1"
)

const namespace = "default"

// world is a control plane, its administrator, and the program and directory of the
// controller.
type world struct {
	t       *testing.T
	cp      *controlplane.ControlPlane
	admin   client.WithWatch
	program string
	dir     string
	runs    int

	kubeconfig string // of the sample's ServiceAccount
}

// account is the user that rbac.yaml of the sample grants rights to.
const account = "system:serviceaccount:default:samplecontroller"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, program: program.Build(t, "samplecontroller", root, "./examples/samplecontroller"), dir: t.TempDir(), cp: controlplanetest.Start(t, controlplane.Options{})}
	var err error
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	if w.admin, err = client.NewWithWatch(w.cp.Config(), client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.LoadFromFile(w.cp.Kubeconfig())
	w.must(err)
	for _, user := range cfg.AuthInfos {
		user.Impersonate = account
	}
	w.kubeconfig = filepath.Join(w.dir, "kubeconfig")
	w.must(clientcmd.WriteToFile(*cfg, w.kubeconfig))
	return w
}

func (w *world) start() *process {
	w.t.Helper()
	w.runs++
	log := filepath.Join(w.dir, fmt.Sprintf("run-%d.log", w.runs))
	return start(w.t, w.program, log, "--kubeconfig", w.kubeconfig, "--db", filepath.Join(w.dir, "informers.db"))
}

// apply creates the objects in one of the sample's files.
func (w *world) apply(name string) {
	w.t.Helper()
	f, err := os.Open(filepath.Join(root, "examples/samplecontroller", name))
	w.must(err)
	defer func() { _ = f.Close() }()
	for documents := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			w.t.Fatalf("%s: %v", name, err)
		}
		// The server serves a CRD a moment after its creation.
		eventually(w.t, func() string {
			if err := w.admin.Create(w.t.Context(), u); err != nil {
				return err.Error()
			}
			return ""
		})
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func greeter(name string) *v1alpha1.Greeter {
	return &v1alpha1.Greeter{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.GreeterSpec{DeploymentName: name, Replicas: 2},
	}
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// patch changes one object's spec.
func (w *world) patch(ctx context.Context, obj client.Object, field string, value any) error {
	return w.admin.Patch(ctx, obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{%q:%#v}}`, field, value)))
}

// awaitConverged blocks until each Greeter has the Deployment that it specifies and a
// status that confirms it, and no deleted Greeter has a Deployment.
func (w *world) awaitConverged() {
	w.t.Helper()
	eventually(w.t, func() string {
		var greeters v1alpha1.GreeterList
		w.must(w.admin.List(w.t.Context(), &greeters))
		var deployments appsv1.DeploymentList
		w.must(w.admin.List(w.t.Context(), &deployments))
		want, got := map[string]string{}, map[string]string{}
		for i := range greeters.Items {
			g := &greeters.Items[i]
			want["Deployment "+g.Spec.DeploymentName] = fmt.Sprintf("%d replicas for %s", g.Spec.Replicas, g.UID)
			want["status of "+g.Name] = fmt.Sprintf("True at generation %d", g.Generation)
			if applied := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.Applied); applied != nil {
				got["status of "+g.Name] = fmt.Sprintf("%s at generation %d", applied.Status, applied.ObservedGeneration)
			}
		}
		for i := range deployments.Items {
			d := &deployments.Items[i]
			if owner := metav1.GetControllerOf(d); owner != nil {
				got["Deployment "+d.Name] = fmt.Sprintf("%d replicas for %s", *d.Spec.Replicas, owner.UID)
			}
		}
		return cmp.Diff(want, got)
	})
}

// requests returns the lists of whole collections and the writes that a process has
// requested. Probes are not counted.
func (w *world) requests(p *process) (lists, writes []string) {
	w.t.Helper()
	all, err := w.cp.Requests(p.started)
	w.must(err)
	for _, r := range all {
		if r.UserAgent != "samplecontroller" {
			continue
		}
		switch r.Verb {
		case "list", "watch":
			if r.IsList() {
				lists = append(lists, r.Verb+" "+r.URI)
			}
		case "get":
		default:
			writes = append(writes, r.Verb+" "+r.URI)
		}
	}
	return lists, writes
}

// churn creates, changes and deletes Greeters 50 times a second until stop is called.
// Nothing else uses the names of these Greeters.
func (w *world) churn(seed int64) (stop func()) {
	ctx, stopping := w.t.Context(), make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		rng := rand.New(rand.NewSource(seed))
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			select {
			case <-stopping:
				return
			case <-tick.C:
			}
			g := greeter(fmt.Sprintf("churn-%d", rng.Intn(15)))
			var err error
			switch rng.Intn(6) {
			case 0:
				err = w.admin.Delete(ctx, g)
			case 1, 2:
				err = w.admin.Create(ctx, g)
			case 3:
				err = w.patch(ctx, g, "deploymentName", fmt.Sprintf("%s-%d", g.Name, n%3))
			default:
				err = w.patch(ctx, g, "replicas", n%10)
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
				w.t.Errorf("churn: %v", err)
				return
			}
		}
	})
	return func() {
		close(stopping)
		running.Wait()
	}
}

// killAt kills the process as soon as the server has done the n-th write of one kind by
// the process. At that moment the process has hardly received the answer, and the events
// that caused the write are not committed yet. Greeters change until stop is called.
func (w *world) killAt(p *process, kind watch.EventType, n int, seed int64) (stop func()) {
	w.t.Helper()
	var now appsv1.DeploymentList
	w.must(w.admin.List(w.t.Context(), &now))
	events, err := w.admin.Watch(w.t.Context(), &appsv1.DeploymentList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion},
	})
	w.must(err)
	stop = w.churn(seed)
	timeout := time.After(2 * time.Minute)
	for n > 0 {
		select {
		case event := <-events.ResultChan():
			if event.Type == kind {
				n--
			}
		case <-timeout:
			w.t.Fatalf("%d more of %s did not come in 2 minutes", n, kind)
		}
	}
	p.kill()
	events.Stop()
	for range events.ResultChan() { // the sender blocks until it is read
	}
	return stop
}

// createStill creates the Greeters of one cycle that changeWhileDown changes.
func (w *world) createStill(cycle int) {
	w.t.Helper()
	for _, name := range []string{"deleted", "again", "scaled", "renamed", "child-deleted", "child-scaled"} {
		w.must(w.admin.Create(w.t.Context(), greeter(still(cycle, name))))
	}
}

func still(cycle int, name string) string { return fmt.Sprintf("still-%d-%s", cycle, name) }

// changeWhileDown makes one change of each kind that the controller has to handle.
func (w *world) changeWhileDown(cycle int) {
	w.t.Helper()
	ctx := w.t.Context()
	w.must(w.admin.Delete(ctx, greeter(still(cycle, "deleted"))))
	w.must(w.admin.Delete(ctx, greeter(still(cycle, "again"))))
	w.must(w.admin.Create(ctx, greeter(still(cycle, "again"))))
	w.must(w.patch(ctx, greeter(still(cycle, "scaled")), "replicas", 7))
	w.must(w.patch(ctx, greeter(still(cycle, "renamed")), "deploymentName", still(cycle, "renamed-now")))
	w.must(w.admin.Delete(ctx, deployment(still(cycle, "child-deleted"))))
	w.must(w.patch(ctx, deployment(still(cycle, "child-scaled")), "replicas", 9))
	w.must(w.admin.Create(ctx, greeter(still(cycle, "created"))))
}
