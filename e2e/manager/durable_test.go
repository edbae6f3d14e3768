package manager_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

const durableNamespace = "durable"

// controlled is a manager with a controller of ConfigMaps that own pods, on a file.
type controlled struct {
	*testing.T
	stop func()

	mu         sync.Mutex // protects reconciled
	reconciled map[string]int
}

func (w *world) control(t *testing.T, path string, opts durable.Options) *controlled {
	t.Helper()
	c := &controlled{T: t, reconciled: map[string]int{}}
	cfg := w.Config()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := durable.Open(db, "configmaps", opts)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache: crcache.Options{
			NewInformer: factory.NewInformer, DefaultNamespaces: map[string]crcache.Config{durableNamespace: {}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	skip := true
	err = ctrl.NewControllerManagedBy(controllerruntime.Manager(consumer, mgr)).
		For(&corev1.ConfigMap{}).Owns(&corev1.Pod{}).
		WithOptions(controller.Options{NewQueue: controllerruntime.NewQueue(consumer), SkipNameValidation: &skip, MaxConcurrentReconciles: 4}).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			err := mgr.GetClient().Get(ctx, r.NamespacedName, &corev1.ConfigMap{})
			c.mu.Lock()
			defer c.mu.Unlock()
			c.reconciled[r.Name]++
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, consumer.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// want waits until all of the names are reconciled, and checks that for some time no
// others are.
func (c *controlled) want(what string, names ...string) {
	c.Helper()
	slices.Sort(names)
	seen := func() (got []string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for name := range c.reconciled {
			got = append(got, name)
		}
		slices.Sort(got)
		return got
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	settle, end := 3*time.Second, time.Now().Add(time.Minute)
	for left := settle; left > 0 && time.Now().Before(end); <-tick.C {
		if slices.Equal(names, seen()) {
			left -= 50 * time.Millisecond
		} else {
			left = settle
		}
	}
	if diff := cmp.Diff(names, seen()); diff != "" {
		c.Errorf("%s: reconciled (-want +got):\n%s", what, diff)
	}
}

// TestDurable checks the controller that package durable promises: after a restart it
// reconciles what was changed meanwhile, the owners of children that were deleted or
// moved, and what was deleted, and nothing else.
func TestDurable(t *testing.T) {
	w := theWorld(t)
	ctx := t.Context()
	create := func(obj client.Object) {
		t.Helper()
		if err := w.direct.Create(ctx, obj); err != nil {
			t.Fatal(err)
		}
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: durableNamespace}})
	t.Cleanup(func() { // other tests list the whole cluster
		ctx := context.WithoutCancel(ctx)
		for _, kind := range []client.Object{&corev1.Pod{}, &corev1.ConfigMap{}} {
			if err := w.direct.DeleteAllOf(ctx, kind, client.InNamespace(durableNamespace), client.GracePeriodSeconds(0)); err != nil {
				t.Error(err)
			}
		}
	})
	var all []string
	parents, children := map[string]*corev1.ConfigMap{}, map[string]*corev1.Pod{}
	for i := range 200 {
		name := fmt.Sprintf("parent-%03d", i)
		parents[name] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: durableNamespace, Name: name}}
		create(parents[name])
		children[name] = pod(durableNamespace, "of-"+name, corev1.RestartPolicyNever)
		children[name].OwnerReferences = []metav1.OwnerReference{owner(parents[name])}
		create(children[name])
		all = append(all, name)
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := durable.Options{Version: "1", Unchanged: durable.Skip}
	c := w.control(t, path, opts)
	c.want("the first start", all...)
	c.stop()

	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for i, name := range all {
		switch {
		case i < 20: // changed
			parents[name].Data = map[string]string{"changed": "yes"}
			do(w.direct.Update(ctx, parents[name]))
		case i < 25: // its child is deleted
			do(w.direct.Delete(ctx, children[name], client.GracePeriodSeconds(0)))
		case i < 28: // deleted
			do(w.direct.Delete(ctx, parents[name]))
		case i < 32 && i%2 == 0: // its child moves to the next
			children[name].OwnerReferences = []metav1.OwnerReference{owner(parents[all[i+1]])}
			do(w.direct.Update(ctx, children[name]))
		case i >= 32:
			continue
		}
		left = append(left, name)
	}
	c = w.control(t, path, opts)
	c.want("after the changes", left...)
	c.stop()
	c = w.control(t, path, opts)
	c.want("after nothing")
	do(w.direct.Update(ctx, parents["parent-000"]))
	parents["parent-199"].Data = map[string]string{"changed": "yes"}
	do(w.direct.Update(ctx, parents["parent-199"]))
	c.want("live", "parent-199")
	c.stop()
	opts.Version = "2"
	c = w.control(t, path, opts)
	c.want("another version", all...) // those that were deleted have children
	c.stop()
}

func owner(cm *corev1.ConfigMap) metav1.OwnerReference {
	return *metav1.NewControllerRef(cm, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
}
