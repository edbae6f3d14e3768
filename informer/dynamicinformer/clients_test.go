package dynamicinformer_test

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientdynamicinformer "k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
	"github.com/informctl/informctl/store/mem"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func widget(namespace, name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "spec": color,
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"color": color}},
	}}
}

// makeFactory makes a factory for one namespace, "" for all, and what closes its backend.
type makeFactory func(t *testing.T, cfg *rest.Config, client dynamic.Interface, namespace string) (clientdynamicinformer.DynamicSharedInformerFactory, func())

func clientGo(_ *testing.T, _ *rest.Config, client dynamic.Interface, namespace string) (clientdynamicinformer.DynamicSharedInformerFactory, func()) {
	return clientdynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, namespace, nil), func() {}
}

func ours(t *testing.T, backend store.Backend, cfg *rest.Config, client dynamic.Interface, namespace string) *dynamicinformer.Factory {
	t.Helper()
	persistent, err := informer.NewFactory(backend, cfg, informer.FactoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if client == nil { // it has to be made from the configuration that the factory has changed
		if client, err = dynamic.NewForConfig(cfg); err != nil {
			t.Fatal(err)
		}
	}
	return dynamicinformer.NewFactory(persistent, client, dynamicinformer.Options{Namespace: namespace})
}

func onMem(t *testing.T, cfg *rest.Config, client dynamic.Interface, namespace string) (clientdynamicinformer.DynamicSharedInformerFactory, func()) {
	return ours(t, mem.New(), cfg, client, namespace), func() {}
}

func onBolt(path string) makeFactory {
	return func(t *testing.T, cfg *rest.Config, client dynamic.Interface, namespace string) (clientdynamicinformer.DynamicSharedInformerFactory, func()) {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return ours(t, db, cfg, client, namespace), func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func show(obj any) string {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return "tombstone " + show(tombstone.Obj)
	}
	u := obj.(*unstructured.Unstructured)
	return fmt.Sprintf("%s/%s=%v", u.GetNamespace(), u.GetName(), u.Object["spec"])
}

// TestFakeClient drives factories above client-go's fake client, of all namespaces and
// of one: what handlers are told, and what listers have. Requests of a fake client pass
// no transport, so a factory with a file holds its objects in memory.
func TestFakeClient(t *testing.T) {
	for _, row := range []struct {
		namespace string
		told      []string
	}{
		{"", []string{"add one/a=red", "add two/b=red", "add one/c=red", "add two/d=red", "update one/a=red one/a=blue", "update two/b=red two/b=blue", "delete one/a=blue", "delete two/b=blue"}},
		{"one", []string{"add one/a=red", "add one/c=red", "update one/a=red one/a=blue", "delete one/a=blue"}},
	} {
		for name, construct := range map[string]makeFactory{
			"client-go": clientGo, "mem": onMem, "bolt": onBolt(filepath.Join(t.TempDir(), "informers.db")),
		} {
			t.Run(name+" "+row.namespace, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { useFakeClient(t, construct, row.namespace, row.told) })
			})
		}
	}
}

func useFakeClient(t *testing.T, construct makeFactory, namespace string, want []string) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{widgets: "WidgetList"}, widget("one", "a", "red"), widget("two", "b", "red"))
	factory, closeBackend := construct(t, &rest.Config{}, client, namespace)
	var told []string
	w := factory.ForResource(widgets)
	if _, err := w.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { told = append(told, "add "+show(obj)) },
		UpdateFunc: func(old, obj any) { told = append(told, "update "+show(old)+" "+show(obj)) },
		DeleteFunc: func(obj any) { told = append(told, "delete "+show(obj)) },
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	factory.Start(ctx.Done())
	if synced := factory.WaitForCacheSync(ctx.Done()); !synced[widgets] {
		t.Errorf("synced: %v", synced)
	}
	synctest.Wait()
	slices.Sort(told)
	in := func(namespace string) dynamic.ResourceInterface { return client.Resource(widgets).Namespace(namespace) }
	for _, step := range []func() error{
		func() error {
			_, err := in("one").Create(ctx, widget("one", "c", "red"), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := in("two").Create(ctx, widget("two", "d", "red"), metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := in("one").Update(ctx, widget("one", "a", "blue"), metav1.UpdateOptions{})
			return err
		},
		func() error {
			_, err := in("two").Update(ctx, widget("two", "b", "blue"), metav1.UpdateOptions{})
			return err
		},
		func() error { return in("one").Delete(ctx, "a", metav1.DeleteOptions{}) },
		func() error { return in("two").Delete(ctx, "b", metav1.DeleteOptions{}) },
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
	factory.Shutdown()
	closeBackend()
}

// streaming is an API server that streams an empty list and refuses to list otherwise.
func streaming(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case r.URL.Path == "/api/v1/namespaces/kube-system":
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"of-a-test"}}`))
	case query.Get("sendInitialEvents") != "true":
		w.WriteHeader(http.StatusInternalServerError)
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
		}})
	}
}

// TestStreamedList checks that a client which streams lists is asked for a stream, and
// that its last bookmark alone is a list.
func TestStreamedList(t *testing.T) {
	for name, construct := range map[string]makeFactory{
		"client-go": func(t *testing.T, cfg *rest.Config, _ dynamic.Interface, namespace string) (clientdynamicinformer.DynamicSharedInformerFactory, func()) {
			return clientGo(t, cfg, dynamic.NewForConfigOrDie(cfg), namespace)
		},
		"mem": onMem, "bolt": onBolt(filepath.Join(t.TempDir(), "informers.db")),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(streaming))
			defer server.Close()
			cfg := &rest.Config{Host: server.URL, Transport: &http.Transport{DisableKeepAlives: true}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
			factory, closeBackend := construct(t, cfg, nil, "one")
			defer closeBackend()
			inf := factory.ForResource(widgets).Informer()
			if err := inf.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), klog.Logger{}), 10*time.Second)
			factory.Start(ctx.Done())
			if synced := factory.WaitForCacheSync(ctx.Done()); !synced[widgets] || len(inf.GetStore().ListKeys()) > 0 {
				t.Errorf("synced: %v, with %d objects", synced, len(inf.GetStore().ListKeys()))
			}
			cancel()
			factory.Shutdown()
		})
	}
}
