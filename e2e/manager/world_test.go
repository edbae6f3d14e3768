package manager_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/internal/testobjects"
)

// world is the control plane that the tests of this package share, and the objects that
// they read. A test deletes the objects that it creates.
type world struct {
	*controlplane.ControlPlane
	direct client.Client // reads from the server
	begin  sync.Once
	err    error
	dir    string
	// renewing ends when no lease is renewed any longer, which stop brings about.
	renewing sync.WaitGroup
	stop     context.CancelFunc
}

var shared world

// theWorld starts the control plane when the first test needs it.
func theWorld(t *testing.T) *world {
	t.Helper()
	shared.begin.Do(func() { shared.err = shared.start(t.Context()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return &shared
}

func (w *world) start(ctx context.Context) (err error) {
	ctrl.SetLogger(logr.Discard())
	if w.dir, err = os.MkdirTemp("", "manager"); err != nil {
		return err
	}
	if w.ControlPlane, err = controlplane.Start(ctx, controlplane.Options{Dir: w.dir}); err != nil {
		return err
	}
	if err := testobjects.AddToScheme(scheme.Scheme); err != nil {
		return err
	}
	if w.direct, err = client.New(w.Config(), client.Options{}); err != nil {
		return err
	}
	for _, obj := range fixture() {
		if err := w.direct.Create(ctx, obj); err != nil {
			return err
		}
	}
	if err := w.renewLease(ctx); err != nil {
		return err
	}
	// The server creates its own service some time after its start.
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := w.direct.Get(ctx, types.NamespacedName{Namespace: "default", Name: "kubernetes"}, &corev1.Service{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// renewLease renews a lease until the end of the world, as the nodes and the controllers
// of a cluster do. A cluster without any writes is a special case: an API server sends no
// bookmark with the resource version of the last event that it replayed, even if that
// event belongs to another namespace (k8s.io/apiserver, cacheWatcher.process). A warm
// start then has to list, if the last write of all was such an event.
func (w *world) renewLease(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "node-1"}}
	if err := w.direct.Create(ctx, lease); err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	w.renewing.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			lease.Spec.RenewTime = new(metav1.NowMicro())
			if err := w.direct.Update(ctx, lease); err != nil && ctx.Err() == nil {
				klog.Error(err)
			}
		}, 100*time.Millisecond)
	})
	return nil
}

func (w *world) end() error {
	var err error
	if w.stop != nil {
		w.stop()
		w.renewing.Wait()
	}
	if w.ControlPlane != nil {
		err = w.Stop()
	}
	if w.dir != "" {
		err = errors.Join(err, os.RemoveAll(w.dir))
	}
	return err
}

// fixture returns the objects that tests read and never change.
func fixture() (out []client.Object) {
	for _, name := range []string{"one", "two", "three"} {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range []string{"node-1", "node-2"} {
		out = append(out, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"name": name}}})
	}
	for namespace, number := range map[string]string{"one": "1", "two": "2"} {
		out = append(out,
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "service-" + number},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
			},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "account-" + number}})
	}
	return append(out,
		pod("one", "pod-1", corev1.RestartPolicyNever, "group", "a"),
		pod("two", "pod-2", corev1.RestartPolicyAlways, "group", "a"),
		pod("two", "pod-3", corev1.RestartPolicyOnFailure, "group", "b"),
		pod("three", "pod-4", corev1.RestartPolicyNever, "group", "b"),
		pod("one", "pod-5", corev1.RestartPolicyNever),
		pod("two", "pod-6", corev1.RestartPolicyAlways))
}

// pod returns a pod with its name and its policy also as labels, because metadata
// contains nothing else of them.
func pod(namespace, name string, policy corev1.RestartPolicy, labels ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"name": name, "policy": string(policy)},
		},
		Spec: corev1.PodSpec{
			Containers:            []corev1.Container{{Name: "nginx", Image: "nginx"}},
			RestartPolicy:         policy,
			ActiveDeadlineSeconds: new(int64(3)),
		},
	}
	for i := 0; i < len(labels); i += 2 {
		p.Labels[labels[i]] = labels[i+1]
	}
	return p
}

// create creates an object and deletes it at the end of the test.
func (w *world) create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := w.direct.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The test's context has ended by now.
		if err := w.direct.Delete(context.WithoutCancel(t.Context()), obj); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// lists returns the lists of whole collections by a user agent. Probes are not counted.
func (w *world) lists(t *testing.T, agent string) (out []string) {
	t.Helper()
	requests, err := w.Requests(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if r.UserAgent == agent && r.IsList() {
			out = append(out, r.Verb+" "+r.URI)
		}
	}
	return out
}
