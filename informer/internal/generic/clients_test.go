package generic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clientdynamicinformer "k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clientmetadatainformer "k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/informer/metadatainformer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

// dialect contains the differences of the two clients in a test of both. A client is
// passed as an any, because each dialect has its own type.
type dialect struct {
	apiVersion, kind string // of the objects that the server sends

	widget   func(namespace, name, color string) runtime.Object
	show     func(obj any) string
	fake     func(t *testing.T) fakeClient
	dial     func(cfg *rest.Config) (client any, err error)
	clientGo func(client any, namespace string) factory
	ours     func(f *informer.Factory, client any, namespace string) factory
}

// fakeClient is client-go's fake of a client with functions that change its objects: the
// red widgets one/a and two/b.
type fakeClient struct {
	client         any
	create, update func(ctx context.Context, namespace string, obj runtime.Object) error
	remove         func(ctx context.Context, namespace, name string) error
}

// colored returns a widget with a label.
func colored(namespace, name, color string) *metav1.PartialObjectMetadata {
	w := widget(namespace, name)
	w.Labels = map[string]string{"color": color}
	return w
}

func coloredUnstructured(namespace, name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "spec": color,
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"color": color}},
	}}
}

var dialects = map[string]dialect{
	"dynamic": {
		apiVersion: "example.com/v1", kind: "Widget",
		widget: func(namespace, name, color string) runtime.Object { return coloredUnstructured(namespace, name, color) },
		show: func(obj any) string {
			u := obj.(*unstructured.Unstructured)
			return fmt.Sprintf("%s/%s=%v", u.GetNamespace(), u.GetName(), u.Object["spec"])
		},
		fake: func(t *testing.T) fakeClient {
			c := dynamicClient(t)
			for _, w := range []*unstructured.Unstructured{coloredUnstructured("one", "a", "red"), coloredUnstructured("two", "b", "red")} {
				if err := c.Tracker().Create(widgets, w, w.GetNamespace()); err != nil {
					t.Fatal(err)
				}
			}
			return fakeClient{
				client: c,
				create: func(ctx context.Context, namespace string, obj runtime.Object) error {
					_, err := c.Resource(widgets).Namespace(namespace).Create(ctx, obj.(*unstructured.Unstructured), metav1.CreateOptions{})
					return err
				},
				update: func(ctx context.Context, namespace string, obj runtime.Object) error {
					_, err := c.Resource(widgets).Namespace(namespace).Update(ctx, obj.(*unstructured.Unstructured), metav1.UpdateOptions{})
					return err
				},
				remove: func(ctx context.Context, namespace, name string) error {
					return c.Resource(widgets).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
				},
			}
		},
		dial: func(cfg *rest.Config) (any, error) { return dynamic.NewForConfig(cfg) },
		clientGo: func(client any, namespace string) factory {
			return clientdynamicinformer.NewFilteredDynamicSharedInformerFactory(client.(dynamic.Interface), 0, namespace, nil)
		},
		ours: func(f *informer.Factory, client any, namespace string) factory {
			return dynamicinformer.NewFactory(f, client.(dynamic.Interface), dynamicinformer.Options{Namespace: namespace})
		},
	},
	"metadata": {
		apiVersion: "meta.k8s.io/v1", kind: "PartialObjectMetadata",
		widget: func(namespace, name, color string) runtime.Object { return colored(namespace, name, color) },
		show: func(obj any) string {
			m := obj.(*metav1.PartialObjectMetadata)
			return fmt.Sprintf("%s/%s=%s", m.Namespace, m.Name, m.Labels["color"])
		},
		fake: func(t *testing.T) fakeClient {
			c := metadataClient(t, colored("one", "a", "red"), colored("two", "b", "red"))
			in := func(namespace string) metadatafake.MetadataClient {
				return c.Resource(widgets).Namespace(namespace).(metadatafake.MetadataClient)
			}
			return fakeClient{
				client: c,
				create: func(_ context.Context, namespace string, obj runtime.Object) error {
					_, err := in(namespace).CreateFake(obj.(*metav1.PartialObjectMetadata), metav1.CreateOptions{})
					return err
				},
				update: func(_ context.Context, namespace string, obj runtime.Object) error {
					_, err := in(namespace).UpdateFake(obj.(*metav1.PartialObjectMetadata), metav1.UpdateOptions{})
					return err
				},
				remove: func(ctx context.Context, namespace, name string) error {
					return in(namespace).Delete(ctx, name, metav1.DeleteOptions{})
				},
			}
		},
		dial: func(cfg *rest.Config) (any, error) { return metadata.NewForConfig(cfg) },
		clientGo: func(client any, namespace string) factory {
			return clientmetadatainformer.NewFilteredSharedInformerFactory(client.(metadata.Interface), 0, namespace, nil)
		},
		ours: func(f *informer.Factory, client any, namespace string) factory {
			return metadatainformer.NewFactory(f, client.(metadata.Interface), metadatainformer.Options{Namespace: namespace})
		},
	},
}

// makeFactory creates a factory for one namespace ("" for all) and returns a function
// that closes its backend. If client is nil, it creates one from the configuration.
type makeFactory func(t *testing.T, d dialect, cfg *rest.Config, client any, namespace string) (factory, func())

// dialed returns the client, or creates one from the configuration if it is nil.
func dialed(t *testing.T, d dialect, cfg *rest.Config, client any) any {
	t.Helper()
	if client != nil {
		return client
	}
	client, err := d.dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func clientGo(t *testing.T, d dialect, cfg *rest.Config, client any, namespace string) (factory, func()) {
	t.Helper()
	return d.clientGo(dialed(t, d, cfg, client), namespace), func() {}
}

func onBackend(t *testing.T, backend store.Backend, d dialect, cfg *rest.Config, client any, namespace string) factory {
	t.Helper()
	// NewFactory changes cfg.
	f, err := informer.NewFactory(backend, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d.ours(f, dialed(t, d, cfg, client), namespace)
}

func onMem(t *testing.T, d dialect, cfg *rest.Config, client any, namespace string) (factory, func()) {
	t.Helper()
	return onBackend(t, mem.New(), d, cfg, client, namespace), func() {}
}

func onBolt(path string) makeFactory {
	return func(t *testing.T, d dialect, cfg *rest.Config, client any, namespace string) (factory, func()) {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return onBackend(t, db, d, cfg, client, namespace), func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// onEachFactory runs a test with client-go's factory and with ours, for both clients.
func onEachFactory(t *testing.T, test func(t *testing.T, d dialect, construct makeFactory)) {
	t.Helper()
	for name, d := range dialects {
		for where, construct := range map[string]makeFactory{
			"client-go": clientGo, "mem": onMem, "bolt": onBolt(filepath.Join(t.TempDir(), "informers.db")),
		} {
			t.Run(name+" "+where, func(t *testing.T) { test(t, d, construct) })
		}
	}
}

// TestFakeClient uses factories with client-go's fake clients, for all namespaces and for
// one. It checks the notifications of handlers and the content of listers. Requests of a
// fake client do not use a transport, so a factory with a file holds its objects in
// memory.
func TestFakeClient(t *testing.T) {
	for namespace, told := range map[string][]string{
		"":    {"add one/a=red", "add two/b=red", "add one/c=red", "add two/d=red", "update one/a=red one/a=blue", "update two/b=red two/b=blue", "delete one/a=blue", "delete two/b=blue"},
		"one": {"add one/a=red", "add one/c=red", "update one/a=red one/a=blue", "delete one/a=blue"},
	} {
		onEachFactory(t, func(t *testing.T, d dialect, construct makeFactory) {
			synctest.Test(t, func(t *testing.T) { useFakeClient(t, d, construct, namespace, told) })
		})
	}
}

func useFakeClient(t *testing.T, d dialect, construct makeFactory, namespace string, want []string) {
	client := d.fake(t)
	f, closeBackend := construct(t, d, &rest.Config{}, client.client, namespace)
	show := func(obj any) string {
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			return "tombstone " + d.show(tombstone.Obj)
		}
		return d.show(obj)
	}
	var told []string
	w := f.ForResource(widgets)
	if _, err := w.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { told = append(told, "add "+show(obj)) },
		UpdateFunc: func(old, obj any) { told = append(told, "update "+show(old)+" "+show(obj)) },
		DeleteFunc: func(obj any) { told = append(told, "delete "+show(obj)) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	f.Start(ctx.Done())
	wantSyncs(t, "after Start", f.WaitForCacheSync(ctx.Done()), syncs{widgets: true})
	synctest.Wait()
	slices.Sort(told)
	for _, step := range []func() error{
		func() error { return client.create(ctx, "one", d.widget("one", "c", "red")) },
		func() error { return client.create(ctx, "two", d.widget("two", "d", "red")) },
		func() error { return client.update(ctx, "one", d.widget("one", "a", "blue")) },
		func() error { return client.update(ctx, "two", d.widget("two", "b", "blue")) },
		func() error { return client.remove(ctx, "one", "a") },
		func() error { return client.remove(ctx, "two", "b") },
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
		<-time.After(time.Minute)
		synctest.Wait()
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("handler was told (-want +got):\n%s", diff)
	}
	lister := w.Lister()
	if found, err := lister.ByNamespace("one").List(labels.SelectorFromSet(labels.Set{"color": "red"})); err != nil || len(found) != 1 || show(found[0]) != "one/c=red" {
		t.Errorf("List: %v, %v", found, err)
	}
	if obj, err := lister.Get("one/c"); err != nil || show(obj) != "one/c=red" {
		t.Errorf("Get: %v, %v", obj, err)
	}
	if _, err := lister.ByNamespace("one").Get("a"); !apierrors.IsNotFound(err) {
		t.Errorf("Get of what was deleted: %v", err)
	}
	cancel()
	f.Shutdown()
	closeBackend()
}

// streaming returns an API server that streams an empty list and refuses other lists.
func streaming(d dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"of-a-test"}}`))
		case query.Get("sendInitialEvents") != "true":
			w.WriteHeader(http.StatusInternalServerError)
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
				"apiVersion": d.apiVersion, "kind": d.kind,
				"metadata": map[string]any{"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
			}})
		}
	}
}

// TestStreamedList checks that a client that supports streamed lists requests one, and
// that its final bookmark alone is a complete list.
func TestStreamedList(t *testing.T) {
	onEachFactory(t, func(t *testing.T, d dialect, construct makeFactory) {
		server := httptest.NewServer(streaming(d))
		defer server.Close()
		cfg := &rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		f, closeBackend := construct(t, d, cfg, nil, "one")
		defer closeBackend()
		inf := f.ForResource(widgets).Informer()
		if err := inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.Logger{}), 10*time.Second)
		f.Start(ctx.Done())
		wantSyncs(t, "of a stream", f.WaitForCacheSync(ctx.Done()), syncs{widgets: true})
		if n := len(inf.GetStore().ListKeys()); n > 0 {
			t.Errorf("%d objects", n)
		}
		cancel()
		f.Shutdown()
	})
}
