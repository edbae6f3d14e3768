package manager_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

const durableNamespace = "durable"

// controlled is a manager with a controller of ConfigMaps that own pods, on a file.
type controlled struct {
	*tally
	stop func()
	cut  atomic.Bool // it reaches no server
}

// group describes managers of which one is the leader.
type group struct {
	namespace string
	lease     string // "" for none
	shared    string // the ConfigMap; "" for none

	also     string              // another namespace; "" for none
	filter   predicate.Predicate // nil refuses nothing
	unsorted bool                // it wants no priority queue
	nested   bool                // ConfigMaps own ConfigMaps, too
}

func (w *world) control(t *testing.T, path string, opts durable.Options, r group) *controlled {
	t.Helper()
	c := &controlled{tally: newTally(t)}
	cfg := w.Config()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if c.cut.Load() {
				return nil, errors.New("the network is cut")
			}
			return rt.RoundTrip(req)
		})
	})
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	namespaces := map[string]crcache.Config{r.namespace: {}}
	if r.also != "" {
		namespaces[r.also] = crcache.Config{}
	}
	lease, renew, retry := 10*time.Second, 8*time.Second, 500*time.Millisecond
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache: crcache.Options{
			NewInformer: factory.NewInformer, DefaultNamespaces: namespaces,
		},
		LeaderElection: r.lease != "", LeaderElectionID: r.lease, LeaderElectionNamespace: r.namespace,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.lease != "" {
		opts.Elected = mgr.Elected()
	}
	if r.shared != "" {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		opts.Shared = durable.InCluster(client, r.namespace, r.shared)
	}
	consumer, err := durable.Open(db, "configmaps", opts)
	if err != nil {
		t.Fatal(err)
	}
	yes, sorted := true, !r.unsorted
	b := ctrl.NewControllerManagedBy(controllerruntime.Manager(consumer, mgr)).For(&corev1.ConfigMap{}).Owns(&corev1.Pod{})
	if r.nested {
		b = b.Owns(&corev1.ConfigMap{})
	}
	if r.filter != nil {
		b = b.WithEventFilter(r.filter)
	}
	err = b.
		WithOptions(controller.Options{
			NewQueue: controllerruntime.NewQueue(consumer), SkipNameValidation: &yes, EnableWarmup: &yes,
			MaxConcurrentReconciles: 4, UsePriorityQueue: &sorted,
		}).
		WithEventFilter(predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() != r.shared })).
		Complete(reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			err := mgr.GetClient().Get(ctx, r.NamespacedName, &corev1.ConfigMap{})
			c.add(r.Name)
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
		if err := <-done; err != nil && !c.cut.Load() { // else it has lost the election
			t.Error(err)
		}
		if err := errors.Join(consumer.Close(), db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.stop)
	return c
}

// TestDurable checks the controller that package durable promises: after a restart it
// reconciles what was changed meanwhile, the owners of children that were deleted or
// moved, and what was deleted, and nothing else.
func TestDurable(t *testing.T) {
	w := theWorld(t)
	f := w.family(t, durableNamespace, 200, newConfigMap)
	all := f.names
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := durable.Options{Version: "1", Unchanged: durable.Skip}
	c := w.control(t, path, opts, group{namespace: durableNamespace})
	c.want("the first start", all...)
	c.stop()

	left := f.change(20, 5, 3, 2)
	c = w.control(t, path, opts, group{namespace: durableNamespace})
	c.want("after the changes", left...)
	c.stop()
	c = w.control(t, path, opts, group{namespace: durableNamespace})
	c.want("after nothing")
	f.edit("yes", all[0]) // it has been before: nothing changes
	f.edit("yes", all[199])
	c.want("live", all[199])
	c.stop()
	opts.Version = "2"
	c = w.control(t, path, opts, group{namespace: durableNamespace})
	c.want("another version", all...) // those that were deleted have children
	c.stop()
}

// TestDurableOptions checks a controller of two namespaces whose predicate refuses
// creations, of a kind that owns its own kind, and without controller-runtime's priority
// queue: what its handlers refuse is not reconciled, and does not come again.
func TestDurableOptions(t *testing.T) {
	w := theWorld(t)
	f := w.family(t, "options", 20, newConfigMap)
	w.family(t, "options-other", 0, newConfigMap)
	parent := f.names[19]
	nested := configMap("options", "nested", "1")
	nested.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(f.parents[parent], corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
	other := configMap("options-other", "other", "1")
	create := func(cm *corev1.ConfigMap) {
		t.Helper()
		if err := w.direct.Create(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	create(nested)
	create(other)
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := durable.Options{Version: "1", Unchanged: durable.Skip}
	r := group{
		namespace: "options", also: "options-other", unsorted: true, nested: true,
		filter: predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }},
	}
	c := w.control(t, path, opts, r)
	c.want("the first start, whose creations are refused")
	c.stop()

	left := f.change(4, 2, 2, 1)
	create(configMap("options", "new", "1"))
	for _, cm := range []*corev1.ConfigMap{nested, other} {
		cm.Data = map[string]string{"changed": "yes"}
		if err := w.direct.Update(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	c = w.control(t, path, opts, r)
	c.want("after the changes", append(left, "nested", parent, "other")...)
	c.stop()
	c = w.control(t, path, opts, r)
	c.want("after nothing")
	c.stop()
}

// TestDurableFailover checks replicas with files of their own, of which the leader's
// network is cut: the standby reconciles what was changed, deleted and moved since, and
// nothing else. Without a file, a successor reconciles what is newer.
func TestDurableFailover(t *testing.T) {
	const namespace = "failover"
	w := theWorld(t)
	f := w.family(t, namespace, 60, newConfigMap)
	dir := t.TempDir()
	opts := durable.Options{Version: "1", Unchanged: durable.Skip}
	r := group{namespace: namespace, lease: "durable", shared: "left"}
	first := w.control(t, filepath.Join(dir, "first.db"), opts, r)
	first.want("the first start", f.names...)
	second := w.control(t, filepath.Join(dir, "second.db"), opts, r)
	second.want("the standby")
	w.waitForShared(t, r, "first-marker")
	first.cut.Store(true)
	left := f.change(6, 3, 2, 2)
	second.want("the standby when it is elected", left...)
	first.stop()

	w.waitForShared(t, r, "second-marker")
	second.cut.Store(true)
	name := f.names[50]
	f.edit("yes", name)
	third := w.control(t, filepath.Join(dir, "third.db"), opts, r)
	third.want("without a file", name)
	second.stop()
	third.stop()
}

// waitForShared waits until the leader has shared that nothing of what was changed before
// is left.
func (w *world) waitForShared(t *testing.T, r group, marker string) {
	t.Helper()
	last := pod(r.namespace, marker, corev1.RestartPolicyNever)
	if err := w.direct.Create(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	for end := time.Now().Add(time.Minute); ; <-tick.C {
		cm := &corev1.ConfigMap{}
		err := w.direct.Get(t.Context(), client.ObjectKey{Namespace: r.namespace, Name: r.shared}, cm)
		var doc []byte
		if err == nil {
			doc, err = dec.DecodeAll(cm.BinaryData["consumer.json.zst"], nil)
		}
		var shared struct {
			Scopes map[string]struct{ ResourceVersion string }
			Keys   struct{ Names []string }
		}
		if err == nil {
			err = json.Unmarshal(doc, &shared)
		}
		behind := len(shared.Scopes) == 0 || len(shared.Keys.Names) > 0
		for _, s := range shared.Scopes {
			order, err := resourceversion.CompareResourceVersion(s.ResourceVersion, last.ResourceVersion)
			behind = behind || err != nil || order < 0
		}
		if err == nil && !behind {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nobody has shared resource version %s: %v, %s", last.ResourceVersion, err, doc)
		}
	}
}
