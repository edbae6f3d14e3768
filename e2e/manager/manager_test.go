package manager_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// managed is a running manager whose cache is on a file.
type managed struct {
	ctrl.Manager
	t    *testing.T
	db   *bolt.DB
	stop context.CancelFunc
	done chan error
	seen chan string // reconciled ConfigMaps
}

func start(t *testing.T, cfg *rest.Config, path, agent string, opts crcache.Options) *managed {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
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
	skip := true
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache: opts, Metrics: server.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &managed{Manager: mgr, t: t, db: db, done: make(chan error, 1), seen: make(chan string, 1000)}
	if err := mgr.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "value", func(o client.Object) []string {
		return []string{o.(*corev1.ConfigMap).Data["value"]}
	}); err != nil {
		t.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{SkipNameValidation: &skip}).
		Complete(reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			m.seen <- r.String()
			return reconcile.Result{}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m.stop = cancel
	go func() { m.done <- mgr.Start(ctx) }()
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	return m
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

// await returns once all of these were reconciled.
func (m *managed) await(want ...string) {
	m.t.Helper()
	timeout := time.After(30 * time.Second)
	for len(want) > 0 {
		select {
		case got := <-m.seen:
			want = slices.DeleteFunc(want, func(s string) bool { return s == got })
		case <-timeout:
			m.t.Fatalf("not reconciled: %v", want)
		}
	}
}

func configMap(namespace, name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
}

// lists returns the lists of whole collections by a user agent since then.
func lists(t *testing.T, cp *controlplane.ControlPlane, agent string) (out []string) {
	t.Helper()
	requests, err := cp.Requests(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		q := r.Query()
		if r.UserAgent == agent && (r.Verb == "list" && q.Get("limit") != "1" || q.Get("sendInitialEvents") == "true") {
			out = append(out, r.Verb+" "+r.URI)
		}
	}
	return out
}

// TestManager: typed, unstructured and metadata-only informers, with a selector,
// several namespaces and a field index, under a manager that is started again:
// scopes do not mix, and each is found again without a list.
func TestManager(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	cp, err := controlplane.Start(t.Context(), controlplane.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cp.Stop(); err != nil {
			t.Error(err)
		}
	})
	direct, err := client.New(cp.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(obj client.Object) {
		t.Helper()
		if err := direct.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"one", "two", "three"} {
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		for i := range 5 {
			create(configMap(ns, fmt.Sprintf("c-%d", i), fmt.Sprint(i%2)))
		}
	}
	path := filepath.Join(t.TempDir(), "informers.db")
	opts := crcache.Options{
		DefaultNamespaces: map[string]crcache.Config{"one": {}, "two": {}},
		ByObject: map[client.Object]crcache.ByObject{
			&corev1.Namespace{}: {Label: labels.SelectorFromSet(labels.Set{"kubernetes.io/metadata.name": "one"})},
		},
	}
	check := func(m *managed, want int) {
		t.Helper()
		ctx, reader := t.Context(), m.GetCache()
		var typed corev1.ConfigMapList
		if err := reader.List(ctx, &typed); err != nil || len(typed.Items) != want {
			t.Errorf("typed: %d ConfigMaps, want %d: %v", len(typed.Items), want, err)
		}
		var odd corev1.ConfigMapList
		if err := reader.List(ctx, &odd, client.InNamespace("two"), client.MatchingFields{"value": "1"}); err != nil || len(odd.Items) != 2 {
			t.Errorf("by field: %d ConfigMaps, want 2: %v", len(odd.Items), err)
		}
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		if err := reader.List(ctx, u, client.InNamespace("one")); err != nil || len(u.Items) < 4 {
			t.Errorf("unstructured: %d ConfigMaps: %v", len(u.Items), err)
		}
		partial := &metav1.PartialObjectMetadataList{}
		partial.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		if err := reader.List(ctx, partial); err != nil || len(partial.Items) != want {
			t.Errorf("metadata: %d ConfigMaps, want %d: %v", len(partial.Items), want, err)
		}
		var namespaces corev1.NamespaceList
		if err := reader.List(ctx, &namespaces); err != nil || len(namespaces.Items) != 1 {
			t.Errorf("by selector: %d Namespaces, want 1: %v", len(namespaces.Items), err)
		}
		var got corev1.ConfigMap
		if err := reader.Get(ctx, types.NamespacedName{Namespace: "three", Name: "c-0"}, &got); err == nil {
			t.Error("an object of a namespace that is not cached was found")
		}
	}

	m := start(t, cp.Config(), path, "manager/1", opts)
	root, err := m.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{})
	if err != nil || root == nil {
		t.Fatal(err)
	}
	check(m, rootObjects(t, direct))
	m.await("one/c-0", "two/c-4")
	m.end()
	if got := lists(t, cp, "manager/1"); len(got) == 0 {
		t.Error("the cold start made no list: the test proves nothing")
	}

	if err := direct.Delete(t.Context(), configMap("one", "c-0", "")); err != nil {
		t.Fatal(err)
	}
	create(configMap("two", "new", "1"))
	if err := direct.Delete(t.Context(), configMap("two", "c-1", "")); err != nil {
		t.Fatal(err)
	}
	m = start(t, cp.Config(), path, "manager/2", opts)
	m.await("two/new")
	check(m, rootObjects(t, direct)) // what was deleted while down is gone
	if err := m.GetCache().RemoveInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
	var again corev1.ConfigMapList
	if err := m.GetClient().List(t.Context(), &again, client.InNamespace("one")); err != nil || len(again.Items) == 0 {
		t.Errorf("after RemoveInformer and back: %d ConfigMaps: %v", len(again.Items), err)
	}
	m.end()
	if got := lists(t, cp, "manager/2"); len(got) > 0 {
		t.Errorf("the warm start listed: %s", strings.Join(got, "; "))
	}
	checkScopes(t, path)
}

// rootObjects counts the ConfigMaps of the cached namespaces.
func rootObjects(t *testing.T, c client.Client) (n int) {
	t.Helper()
	for _, ns := range []string{"one", "two"} {
		var l corev1.ConfigMapList
		if err := c.List(t.Context(), &l, client.InNamespace(ns)); err != nil {
			t.Fatal(err)
		}
		n += len(l.Items)
	}
	return n
}

// checkScopes: each namespace and form that was read, and the Namespaces.
func checkScopes(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	infos, err := db.Scopes()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range infos {
		if !strings.HasPrefix(info.Scope.Cluster, "kube-system/") {
			t.Errorf("%s: cluster %q", info.Scope, info.Scope.Cluster)
		}
		got = append(got, info.Scope.String())
	}
	slices.Sort(got)
	want := []string{
		"configmaps in one", "configmaps in one (" + store.Metadata.String() + ")", "configmaps in one (" + store.Unstructured.String() + ")",
		"configmaps in two", "configmaps in two (" + store.Metadata.String() + ")",
		"namespaces with labels kubernetes.io/metadata.name=one",
	}
	if !slices.Equal(got, want) {
		t.Errorf("scopes: %q, want %q", got, want)
	}
}
