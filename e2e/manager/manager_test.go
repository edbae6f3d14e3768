package manager_test

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// managed is a running manager with a cache on a file. It reconciles ConfigMaps in each
// form. Only one manager with the same name leads at a time.
type managed struct {
	ctrl.Manager
	t    *testing.T
	db   *bolt.DB
	stop context.CancelFunc
	done chan error
	seen chan string // reconciled objects: form and key
}

func (w *world) manage(t *testing.T, path, agent string, opts crcache.Options) *managed {
	t.Helper()
	cfg := w.Config()
	cfg.UserAgent = agent
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	opts.NewInformer = factory.NewInformer
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache: opts, Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
		LeaderElection: true, LeaderElectionID: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")), LeaderElectionNamespace: "default",
		LeaderElectionReleaseOnCancel: true, RetryPeriod: new(200 * time.Millisecond),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &managed{Manager: mgr, t: t, db: db, done: make(chan error, 1), seen: make(chan string, 1000)}
	for _, form := range forms {
		m.reconcile(form)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.stop = cancel
	go func() { m.done <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	return m
}

func (m *managed) reconcile(form store.Form) {
	m.t.Helper()
	if err := m.GetFieldIndexer().IndexField(m.t.Context(), newObject(m.t, form, configMaps), "value", valueOf); err != nil {
		m.t.Fatal(err)
	}
	err := ctrl.NewControllerManagedBy(m).Named(form.String()).For(newObject(m.t, form, configMaps)).
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			m.seen <- form.String() + " " + r.String()
			return reconcile.Result{}, nil
		}))
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *managed) end() {
	m.t.Helper()
	m.stop()
	if err := <-m.done; err != nil {
		m.t.Error(err)
	}
	if err := m.db.Close(); err != nil {
		m.t.Error(err)
	}
}

// await returns when all keys were reconciled in each form.
func (m *managed) await(keys ...string) {
	m.t.Helper()
	want := map[string]bool{}
	for _, key := range keys {
		for _, form := range forms {
			want[form.String()+" "+key] = true
		}
	}
	timeout := time.After(time.Minute)
	for len(want) > 0 {
		select {
		case got := <-m.seen:
			delete(want, got)
		case <-timeout:
			m.t.Fatalf("not reconciled: %q", slices.Sorted(maps.Keys(want)))
		}
	}
}

func valueOf(obj client.Object) []string { return []string{obj.GetLabels()["value"]} }

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
}

// remove deletes an object that the test has created.
func (w *world) remove(t *testing.T, obj client.Object) {
	t.Helper()
	if err := w.direct.Delete(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}

// keys returns the keys of the server's ConfigMaps in the namespaces, only those with the
// label value unless it is "".
func (w *world) keys(t *testing.T, value string, namespaces ...string) []string {
	t.Helper()
	var list corev1.ConfigMapList
	if err := w.direct.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for i := range list.Items {
		obj := &list.Items[i]
		if slices.Contains(namespaces, obj.Namespace) && (value == "" || obj.Labels["value"] == value) {
			out = append(out, keyOf(obj))
		}
	}
	slices.Sort(out)
	return out
}

// TestManager runs controllers of typed, unstructured and metadata-only objects of one
// kind, with a selector, several namespaces, a field index and leader election. Their
// manager is restarted repeatedly: scopes must not be mixed, each must be resumed without
// a list, and objects deleted in the meantime must be reconciled.
func TestManager(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	for _, namespace := range []string{"m-one", "m-two", "m-three"} {
		for i := range 5 {
			w.create(t, configMap(namespace, fmt.Sprintf("c-%d", i), fmt.Sprint(i%2)))
		}
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := crcache.Options{
		DefaultNamespaces: map[string]crcache.Config{"m-one": {}, "m-two": {}},
		ByObject: map[client.Object]crcache.ByObject{
			&corev1.Namespace{}: {Label: label("kubernetes.io/metadata.name", "one")},
			&corev1.Node{}:      {Field: field("metadata.name", "node-2")},
		},
	}
	m := w.manage(t, path, "manager/1", opts)
	m.await("m-one/c-0", "m-two/c-4")
	w.checkManaged(t, m)
	m.end()
	if got := w.lists(t, "manager/1"); len(got) == 0 {
		t.Error("the cold start made no list: the test proves nothing")
	}

	w.remove(t, configMap("m-one", "c-0", ""))
	w.create(t, configMap("m-two", "new", "1"))
	w.remove(t, configMap("m-two", "c-1", ""))
	m = w.manage(t, path, "manager/2", opts)
	m.await("m-two/new", "m-one/c-0", "m-two/c-1")
	w.checkManaged(t, m)
	for _, form := range forms {
		if err := m.GetCache().RemoveInformer(t.Context(), newObject(t, form, configMaps)); err != nil {
			t.Error(err)
		}
	}
	for _, form := range forms {
		reader{&session{Cache: m.GetCache()}, shape{}, form}.wantKeys(t, configMaps, w.keys(t, "", "m-one", "m-two"))
	}
	m.end()

	w.remove(t, configMap("m-two", "new", ""))
	w.create(t, configMap("m-one", "newer", "0"))
	m = w.manage(t, path, "manager/3", opts)
	m.await("m-two/new", "m-one/newer", "m-one/c-2")
	w.checkManaged(t, m)
	m.end()
	for _, agent := range []string{"manager/2", "manager/3"} {
		if got := w.lists(t, agent); len(got) > 0 {
			t.Errorf("%s: the warm start listed: %s", agent, strings.Join(got, "; "))
		}
	}
	want := inForms([]string{
		"configmaps in m-one", "configmaps in m-two",
		"namespaces with labels kubernetes.io/metadata.name=one", "nodes with fields metadata.name=node-2",
	})
	if diff := cmp.Diff(want, scopes(t, path)); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
}

// checkManaged checks that every form has the server's objects that it selects, and no
// others.
func (w *world) checkManaged(t *testing.T, m *managed) {
	t.Helper()
	for _, form := range forms {
		r := reader{&session{Cache: m.GetCache()}, shape{}, form}
		r.wantKeys(t, configMaps, w.keys(t, "", "m-one", "m-two"))
		r.wantKeys(t, configMaps, w.keys(t, "", "m-two"), client.InNamespace("m-two"))
		r.wantKeys(t, configMaps, w.keys(t, "1", "m-one", "m-two"), client.MatchingFields{"value": "1"})
		r.wantKeys(t, configMaps, w.keys(t, "0", "m-two"), client.MatchingFields{"value": "0"}, client.InNamespace("m-two"))
		r.wantKeys(t, namespaces, []string{"one"})
		r.wantKeys(t, nodes, []string{"node-2"})
		if err := r.getError(t, configMaps, "m-three", "c-0"); err == nil || apierrors.IsNotFound(err) {
			t.Errorf("%s: an object of a namespace that is not cached: %v", form, err)
		}
	}
}

// TestLeaderElection checks that a manager that does not lead keeps its cache up to date,
// and reconciles everything without a list when it leads.
func TestLeaderElection(t *testing.T) {
	w := theWorld(t)
	t.Parallel()
	w.create(t, configMap("l-one", "before", "1"))
	dir := t.TempDir()
	opts := crcache.Options{DefaultNamespaces: map[string]crcache.Config{"l-one": {}}}
	for _, start := range []string{"cold", "warm"} {
		t.Run(start, func(t *testing.T) {
			leader := w.manage(t, filepath.Join(dir, "leader.db"), t.Name()+"/leader", opts)
			leader.await("l-one/before")
			other := w.manage(t, filepath.Join(dir, "other.db"), t.Name()+"/other", opts)
			w.create(t, configMap("l-one", "while-"+start, "1"))
			leader.await("l-one/while-" + start)
			for _, form := range forms {
				r := reader{&session{Cache: other.GetCache()}, shape{}, form}
				calls := handle(t, r.informerOf(t, configMaps), "while-"+start)
				wantSame(t, "call", "add", next(t, calls).what)
				r.get(t, configMaps, "l-one", "while-"+start)
			}
			if n := len(other.seen); n > 0 {
				t.Errorf("a manager that does not lead has reconciled %d objects", n)
			}
			leader.end()
			other.await("l-one/before", "l-one/while-"+start)
			other.end()
			for _, agent := range []string{t.Name() + "/leader", t.Name() + "/other"} {
				if got := w.lists(t, agent); (len(got) == 0) != (start == "warm") {
					t.Errorf("%s: lists: %q", agent, got)
				}
			}
		})
	}
	for _, name := range []string{"leader.db", "other.db"} {
		if diff := cmp.Diff(inForms([]string{"configmaps in l-one"}), scopes(t, filepath.Join(dir, name))); diff != "" {
			t.Errorf("%s: scopes (-want +got):\n%s", name, diff)
		}
	}
}
