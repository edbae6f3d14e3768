package factories_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/e2e/controlplane"
	"github.com/informctl/informctl/e2e/controlplane/controlplanetest"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/informer/metadatainformer"
	"github.com/informctl/informctl/internal/guarantees"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

var (
	pods       = corev1.SchemeGroupVersion.WithResource("pods")
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	secrets    = corev1.SchemeGroupVersion.WithResource("secrets")
	widgets    = testobjects.WidgetResource
)

// world is a control plane and a client that changes its objects.
type world struct {
	t      *testing.T
	cp     *controlplane.ControlPlane
	client dynamic.Interface
	dir    string
	runs   int
	// told contains what the handlers held when the last run ended, by handler and key.
	told map[string]map[string]guarantees.State
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cp := controlplanetest.Start(t, controlplane.Options{})
	if err := controlplane.Load(t.Context(), cp.Config(), controlplane.LoadOptions{Pods: 10, Widgets: 10}); err != nil {
		t.Fatal(err)
	}
	return &world{t: t, cp: cp, client: dynamic.NewForConfigOrDie(cp.Config())}
}

// in returns the world for a subtest with its own file.
func (w *world) in(t *testing.T) *world {
	c := *w
	c.t, c.dir, c.told = t, t.TempDir(), map[string]map[string]guarantees.State{}
	return &c
}

func (w *world) path() string { return filepath.Join(w.dir, "informers.db") }

// object returns an object of a resource to be created.
func object(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	var u *unstructured.Unstructured
	switch gvr {
	case widgets:
		u = testobjects.Widget(1, 1)
	case pods:
		u = asUnstructured(testobjects.Pod(1, 1), "Pod")
		unstructured.RemoveNestedField(u.Object, "status")
	case secrets:
		u = asUnstructured(&corev1.Secret{StringData: map[string]string{"password": name}}, "Secret")
	default:
		u = asUnstructured(testobjects.ConfigMap(1, 1), "ConfigMap")
	}
	testobjects.ClearServerFields(u)
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func asUnstructured(obj runtime.Object, kind string) *unstructured.Unstructured {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return u
}

func (w *world) create(gvr schema.GroupVersionResource, name string) {
	w.t.Helper()
	_, err := w.client.Resource(gvr).Namespace("default").Create(w.t.Context(), object(gvr, name), metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) annotate(gvr schema.GroupVersionResource, name, value string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"changed":%q}}}`, value)
	_, err := w.client.Resource(gvr).Namespace("default").Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(gvr schema.GroupVersionResource, name string) {
	w.t.Helper()
	zero := int64(0)
	err := w.client.Resource(gvr).Namespace("default").Delete(w.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
	if err != nil {
		w.t.Fatal(err)
	}
}

// run is the state of one process: a file and three factories that use it.
type run struct {
	*world
	agent      string
	cfg        *rest.Config
	db         *bolt.DB
	persistent *informer.Factory
	clientset  *kubernetes.Clientset
	ctx        context.Context
	stop       context.CancelFunc

	typed    informers.SharedInformerFactory
	dynamic  *dynamicinformer.Factory
	metadata *metadatainformer.Factory
	held     []*held
}

// held is one informer of a run.
type held struct {
	form   store.Form
	gvr    schema.GroupVersionResource
	inf    informers.GenericInformer
	handle cache.ResourceEventHandlerRegistration
	view   *view
}

func (h *held) String() string { return h.gvr.Resource + " " + h.form.String() }

// open opens the file and makes the factories.
func (w *world) open() *run {
	w.t.Helper()
	w.runs++
	r := &run{world: w, agent: fmt.Sprintf("factories %s/%d", w.t.Name(), w.runs), cfg: w.cp.Config()}
	r.cfg.UserAgent, r.cfg.QPS = r.agent, -1
	var err error
	if r.db, err = bolt.Open(w.path(), bolt.Options{}); err != nil {
		w.t.Fatal(err)
	}
	if r.persistent, err = informer.NewFactory(r.db, r.cfg, informer.FactoryOptions{}); err != nil {
		w.t.Fatal(err)
	}
	if r.clientset, err = kubernetes.NewForConfig(r.cfg); err != nil {
		w.t.Fatal(err)
	}
	r.ctx, r.stop = context.WithCancel(w.t.Context())
	r.typed = informers.NewSharedInformerFactory(r.clientset, 0)
	r.dynamic = dynamicinformer.NewFactory(r.persistent, dynamic.NewForConfigOrDie(r.cfg), dynamicinformer.Options{})
	r.metadata = metadatainformer.NewFactory(r.persistent, metadata.NewForConfigOrDie(r.cfg), metadatainformer.Options{})
	return r
}

// makeTyped makes client-go's typed factory use our informer for a resource.
func (r *run) makeTyped(gvr schema.GroupVersionResource) {
	if gvr == pods {
		r.typed.InformerFor(&corev1.Pod{}, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			return r.persistent.NewInformer(listWatch(c, c.CoreV1().Pods("")), &corev1.Pod{}, resync, byNamespace())
		})
		return
	}
	r.typed.InformerFor(&corev1.ConfigMap{}, func(c kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		return r.persistent.NewInformer(listWatch(c, c.CoreV1().ConfigMaps("")), &corev1.ConfigMap{}, resync, byNamespace())
	})
}

func byNamespace() cache.Indexers {
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
}

// lister is the common interface of client-go's typed clients.
type lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

func listWatch[L runtime.Object](c kubernetes.Interface, resource lister[L]) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: resource.Watch,
	}, c)
}

// hold adds an informer to the run.
func (r *run) hold(form store.Form, gvr schema.GroupVersionResource) {
	r.t.Helper()
	h := &held{form: form, gvr: gvr}
	h.view = newView(r.told[h.String()])
	var err error
	switch form {
	case store.Typed:
		r.makeTyped(gvr)
		h.inf, err = r.typed.ForResource(gvr)
	case store.Unstructured:
		h.inf = r.dynamic.ForResource(gvr)
	case store.Metadata:
		h.inf = r.metadata.ForResource(gvr)
	}
	if err == nil {
		h.handle, err = h.inf.Informer().AddEventHandler(h.view)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	h.view.Registered(h.handle)
	r.held = append(r.held, h)
}

// start starts each factory with a different method and returns when all handlers have
// synced.
func (r *run) start() {
	r.t.Helper()
	r.typed.StartWithContext(r.ctx)
	r.dynamic.Start(r.ctx.Done())
	r.metadata.StartWithContext(r.ctx)
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Minute)
	defer cancel()
	if err := r.typed.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		r.t.Fatal(err)
	}
	for gvr, synced := range r.dynamic.WaitForCacheSync(ctx.Done()) {
		if !synced {
			r.t.Fatalf("dynamic informer of %s did not sync", gvr)
		}
	}
	for gvr, synced := range r.metadata.WaitForCacheSyncWithContext(ctx) {
		if !synced {
			r.t.Fatalf("metadata informer of %s did not sync", gvr)
		}
	}
	for _, h := range r.held {
		if !cache.WaitFor(ctx, "", h.handle.HasSyncedChecker()) {
			r.t.Fatalf("handler of %s did not sync", h)
		}
	}
}

// end stops the informers in the same way as a process that is asked to end, and closes
// the file.
func (r *run) end() {
	r.t.Helper()
	r.stop()
	r.typed.Shutdown()
	r.dynamic.Shutdown()
	r.metadata.Shutdown()
	for _, h := range r.held {
		h.view.End()
		h.view.check(r.t, h.String())
		r.told[h.String()] = h.view.Held()
	}
	if err := r.db.Close(); err != nil {
		r.t.Error(err)
	}
}

// checkEqual checks that handlers and listers have the same objects as the server, which
// is read by the same form of client.
func (r *run) checkEqual() {
	r.t.Helper()
	for _, h := range r.held {
		server := r.server(h)
		h.view.AtRest(server)
		h.view.check(r.t, h.String())
		listed, err := h.inf.Lister().List(labels.Everything())
		if err != nil {
			r.t.Fatal(err)
		}
		if diff := cmp.Diff(server, statesOf(r.t, listed)); diff != "" {
			r.t.Errorf("%s: lister (-server +lister):\n%s", h, diff)
		}
		for key, want := range server {
			namespace, name, err := cache.SplitMetaNamespaceKey(key)
			if err != nil {
				r.t.Fatal(err)
			}
			obj, err := h.inf.Lister().ByNamespace(namespace).Get(name)
			if err != nil {
				r.t.Fatal(err)
			}
			if _, got, err := guarantees.StateOf(obj); err != nil || got != want {
				r.t.Errorf("%s: Get of %s is %s (%v), want %s", h, key, got, err, want)
			}
		}
	}
}

func statesOf(t *testing.T, list []runtime.Object) map[string]guarantees.State {
	t.Helper()
	out, err := guarantees.States(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// server lists the objects that an informer should hold directly from the server.
func (r *run) server(h *held) map[string]guarantees.State {
	r.t.Helper()
	cfg := r.cp.Config()
	var list runtime.Object
	var err error
	switch {
	case h.form == store.Unstructured:
		list, err = r.client.Resource(h.gvr).List(r.t.Context(), metav1.ListOptions{})
	case h.form == store.Metadata:
		list, err = metadata.NewForConfigOrDie(cfg).Resource(h.gvr).List(r.t.Context(), metav1.ListOptions{})
	case h.gvr == pods:
		list, err = kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("").List(r.t.Context(), metav1.ListOptions{})
	default:
		list, err = kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("").List(r.t.Context(), metav1.ListOptions{})
	}
	var items []runtime.Object
	if err == nil {
		items, err = meta.ExtractList(list)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return statesOf(r.t, items)
}

// lists returns the lists of whole collections that the run requested. Probes are not
// counted.
func (r *run) lists() (out []string) {
	r.t.Helper()
	requests, err := r.cp.Requests(time.Time{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, request := range requests {
		if request.UserAgent == r.agent && request.IsList() {
			out = append(out, request.Verb+" "+request.URI)
		}
	}
	return out
}
