package relayclients_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/informctl/informctl/internal/testobjects"
)

var podResource = corev1.SchemeGroupVersion.WithResource("pods")

// hearer is an informer of a client, and what it has heard.
type hearer struct {
	name   string
	synced func() bool

	mu      sync.Mutex // protects the fields below
	lists   []string   // the requests for all objects
	watches int        // that have begun
	heard   []string   // changes since the last call of all
	trace   []string   // all that has happened
}

// count counts the requests for objects.
func (h *hearer) count(next http.RoundTripper) http.RoundTripper {
	return &roundTripper{next, func(r *http.Request) (*http.Response, error) {
		q := r.URL.Query()
		if !strings.HasSuffix(r.URL.Path, "/pods") && !strings.HasSuffix(r.URL.Path, "/widgets") {
			return next.RoundTrip(r)
		}
		isWatch := q.Get("watch") != "" && q.Get("sendInitialEvents") != "true"
		res, err := next.RoundTrip(r)
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case !isWatch:
			h.lists = append(h.lists, r.URL.String())
		case err == nil && res.StatusCode == http.StatusOK:
			h.watches++
		}
		h.trace = append(h.trace, fmt.Sprintf("%s: %s: %v", time.Now().Format("05.000"), r.URL.RawQuery, err))
		return res, err
	}}
}

// counts returns how many lists it has made, and how many watches have begun.
func (h *hearer) counts() (lists, watches int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.lists), h.watches
}

// roundTripper calls a function for each request.
type roundTripper struct {
	next http.RoundTripper
	do   func(*http.Request) (*http.Response, error)
}

// RoundTrip implements http.RoundTripper.
func (r *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r.do(req) }

// WrappedRoundTripper is for what closes connections.
func (r *roundTripper) WrappedRoundTripper() http.RoundTripper { return r.next }

func (h *hearer) hear(what string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		what, obj = what+" at some time", gone.Obj
	}
	m, err := meta.Accessor(obj)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.heard = append(h.heard, err.Error())
		return
	}
	h.heard = append(h.heard, fmt.Sprintf("%s %s/%s", what, m.GetNamespace(), m.GetName()))
	h.trace = append(h.trace, fmt.Sprintf("%s: %s %s at %s", time.Now().Format("05.000"), what, m.GetName(), m.GetResourceVersion()))
}

// OnAdd implements cache.ResourceEventHandler.
func (h *hearer) OnAdd(obj any, isInInitialList bool) {
	if !isInInitialList {
		h.hear("added", obj)
	}
}

// OnUpdate implements cache.ResourceEventHandler. The server marks a pod just before it
// deletes it, which is heard or not.
func (h *hearer) OnUpdate(_, obj any) {
	if m, err := meta.Accessor(obj); err == nil && m.GetDeletionTimestamp() == nil {
		h.hear("changed", obj)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (h *hearer) OnDelete(obj any) { h.hear("deleted", obj) }

// all returns what was heard, in order, and forgets it if it is all of what is wanted.
func (h *hearer) all(want []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(slices.Sorted(slices.Values(h.heard)), want) {
		return false
	}
	h.heard = nil
	return true
}

func (h *hearer) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%s heard %q and made these lists: %q, after:\n%s", h.name, h.heard, h.lists, strings.Join(h.trace, "\n"))
}

// newHearers starts an informer of each kind of client.
func newHearers(w *world, ctx context.Context, config *rest.Config) (all []*hearer, end func()) {
	w.Helper()
	var ended sync.WaitGroup
	var ends []func()
	begin := func(name string, run func(h *hearer, config *rest.Config, client *http.Client) (cache.SharedIndexInformer, error)) {
		h := &hearer{name: name}
		own := rest.CopyConfig(config)
		own.WrapTransport = h.count
		client, err := rest.HTTPClientFor(own)
		if err != nil {
			w.Fatal(err)
		}
		ends = append(ends, func() { utilnet.CloseIdleConnectionsFor(client.Transport) })
		inf, err := run(h, own, client)
		if err != nil {
			w.Fatal(err)
		}
		if inf != nil {
			h.synced = inf.HasSynced
			if _, err := inf.AddEventHandler(h); err != nil {
				w.Fatal(err)
			}
			ended.Go(func() { inf.RunWithContext(ctx) })
		}
		all = append(all, h)
	}
	begin("typed", func(_ *hearer, config *rest.Config, http *http.Client) (cache.SharedIndexInformer, error) {
		config.ContentType = runtime.ContentTypeProtobuf
		client, err := kubernetes.NewForConfigAndClient(config, http)
		if err != nil {
			return nil, err
		}
		return informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer(), nil
	})
	begin("typed, by label", func(_ *hearer, config *rest.Config, http *http.Client) (cache.SharedIndexInformer, error) {
		client, err := kubernetes.NewForConfigAndClient(config, http)
		if err != nil {
			return nil, err
		}
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(shop), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = "app=heard"
		})).Core().V1().Pods().Informer(), nil
	})
	begin("dynamic", func(_ *hearer, config *rest.Config, http *http.Client) (cache.SharedIndexInformer, error) {
		client, err := dynamic.NewForConfigAndClient(config, http)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(podResource).Informer(), nil
	})
	begin("dynamic, of a custom resource", func(_ *hearer, config *rest.Config, http *http.Client) (cache.SharedIndexInformer, error) {
		client, err := dynamic.NewForConfigAndClient(config, http)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(testobjects.WidgetResource).Informer(), nil
	})
	begin("metadata", func(_ *hearer, config *rest.Config, http *http.Client) (cache.SharedIndexInformer, error) {
		client, err := metadata.NewForConfigAndClient(config, http)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewSharedInformerFactory(client, 0).ForResource(podResource).Informer(), nil
	})
	begin("controller-runtime", func(h *hearer, config *rest.Config, http *http.Client) (cache.SharedIndexInformer, error) {
		c, err := ctrlcache.New(config, ctrlcache.Options{HTTPClient: http})
		if err != nil {
			return nil, err
		}
		ended.Go(func() { _ = c.Start(ctx) })
		inf, err := c.GetInformer(ctx, &corev1.Pod{})
		if err != nil {
			return nil, err
		}
		h.synced = inf.HasSynced
		_, err = inf.AddEventHandler(h)
		return nil, err
	})
	return all, func() {
		ended.Wait()
		for _, end := range ends {
			end()
		}
	}
}

// changer makes changes at the server.
type changer struct {
	*world
	n int
}

// change makes the same changes of pods and of widgets. It returns what an informer has
// to hear.
func (c *changer) change() (want []string) {
	c.Helper()
	c.n++
	created, changed, deleted := fmt.Sprint("new-", c.n), fmt.Sprint("new-", c.n-1), fmt.Sprint("new-", c.n-2)
	for _, resource := range []string{"pods", "widgets"} {
		gvr, obj := podResource, map[string]any{
			"apiVersion": "v1", "kind": "Pod",
			"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a:1"}}},
		}
		if resource == "widgets" {
			gvr = testobjects.WidgetResource
			obj = testobjects.Widget(1000+c.n, 1).Object
			delete(obj, "status")
		}
		client := c.custom.Resource(gvr).Namespace(shop)
		u := &unstructured.Unstructured{Object: obj}
		testobjects.ClearServerFields(u)
		u.SetNamespace(shop)
		u.SetName(created)
		u.SetLabels(map[string]string{"app": "heard"})
		now, patch := int64(0), fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, c.n)
		_, err := client.Create(c.Context(), u, metav1.CreateOptions{})
		if c.n > 1 && err == nil {
			_, err = client.Patch(c.Context(), changed, "application/merge-patch+json", patch, metav1.PatchOptions{})
		}
		if c.n > 2 && err == nil {
			err = client.Delete(c.Context(), deleted, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err != nil {
			c.Fatal(err)
		}
	}
	want = []string{"added " + shop + "/" + created}
	if c.n > 1 {
		want = append(want, "changed "+shop+"/"+changed)
	}
	if c.n > 2 {
		want = append(want, "deleted "+shop+"/"+deleted)
	}
	return want
}

// testInformers has informers go on over ends of informctl and of the server, without a
// list.
func testInformers(w *world) {
	k := w.keep()
	k.caughtUp()
	c := &changer{world: w}
	for range 2 {
		c.change()
	}
	kubeconfig := k.kubeconfig()
	k.await(func() bool { return w.run(kubeconfig, "get", "pod/new-2", "widget/new-2", "-n", shop).code == 0 }, k.output)
	ctx, cancel := context.WithCancel(w.Context())
	all, end := newHearers(w, ctx, w.configOf(kubeconfig))
	defer end()
	defer cancel()
	for _, h := range all {
		w.await(h.synced, h.String)
	}
	lists, watches := map[string]int{}, map[string]int{}
	for _, h := range all {
		if lists[h.name], _ = h.counts(); lists[h.name] == 0 {
			w.Errorf("%s has made no list", h.name)
		}
	}
	hear := func(when string) {
		w.Helper()
		w.hears(all, c.change(), when)
	}
	hear("all is up")
	k.process.stop()
	want := c.change()
	k.begin()
	w.hears(all, want, "ended and started again")
	hear("up again")
	k.kill()
	want = c.change()
	k.begin()
	w.hears(all, want, "killed and started again")
	hear("up again")
	w.stopServer()
	w.startServer()
	hear("the server was stopped and started")
	w.stopServer()
	for _, h := range all {
		_, watches[h.name] = h.counts()
	}
	k.kill()
	k.begin()
	for _, h := range all {
		w.await(func() bool { _, n := h.counts(); return n > watches[h.name] }, h.String)
	}
	w.startServer()
	k.caughtUp()
	w.run(kubeconfig, "get", "pods,widgets", "-A") // others ask, too
	hear("killed, and started again while the server was stopped")
	for _, h := range all {
		if n, _ := h.counts(); n != lists[h.name] {
			w.Errorf("%s listed again: %s", h.name, h)
		}
	}
}

// hears waits until informers have heard of some changes and of no others.
func (w *world) hears(all []*hearer, want []string, when string) {
	w.Helper()
	slices.SortFunc(want, cmp.Compare[string])
	for _, h := range all {
		w.await(func() bool { return h.all(want) }, func() string { return fmt.Sprintf("%s: want %q, %s", when, want, h) })
	}
}
