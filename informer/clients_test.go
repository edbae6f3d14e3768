package informer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/informer"
)

// These tests run an informer in client-go's typed factory, on client-go's fake
// clientset, as programs and their tests do.

// throughFactory creates the factory's informer for ConfigMaps. If construct is nil, it
// is client-go's.
func throughFactory(w *world, factory informers.SharedInformerFactory, construct makeInformer) (closeBackend func()) {
	closeBackend = func() {}
	if construct == nil {
		return closeBackend
	}
	factory.InformerFor(&corev1.ConfigMap{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.CoreV1().ConfigMaps("").List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return client.CoreV1().ConfigMaps("").Watch(ctx, o)
			},
		}, client)
		var inf cache.SharedIndexInformer
		inf, closeBackend = construct(w.T, lw, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		return inf
	})
	return closeBackend
}

// TestTypedFactory checks the informer through the factory: the lister, waiting and
// shutdown.
func TestTypedFactory(t *testing.T) {
	for name, construct := range map[string]makeInformer{"client-go": nil, "mem": onMem, "bolt": onBolt(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				client := fake.NewClientset(valued("there", "1"))
				factory := informers.NewSharedInformerFactory(client, 0)
				closeBackend := throughFactory(w, factory, construct)
				configMaps := factory.Core().V1().ConfigMaps()
				var told []string
				note := func(kind string, obj any) {
					cm := obj.(*corev1.ConfigMap)
					told = append(told, fmt.Sprintf("%s %s=%s", kind, cm.Name, cm.Data["v"]))
				}
				if _, err := configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc:    func(obj any) { note("add", obj) },
					UpdateFunc: func(_, obj any) { note("update", obj) },
					DeleteFunc: func(obj any) { note("delete", obj) },
				}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{}))
				factory.StartWithContext(ctx)
				if synced := factory.WaitForCacheSyncWithContext(ctx); synced.AsError() != nil || len(synced.Synced) != 1 {
					t.Errorf("synced: %+v", synced)
				}
				synctest.Wait()
				api := client.CoreV1().ConfigMaps("default")
				_, err := api.Create(ctx, valued("new", "1"), metav1.CreateOptions{})
				if err == nil {
					_, err = api.Update(ctx, valued("new", "2"), metav1.UpdateOptions{})
				}
				if err == nil {
					err = api.Delete(ctx, "there", metav1.DeleteOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
				waitFor(settling)
				if diff := cmp.Diff([]string{"add there=1", "add new=1", "update new=2", "delete there=1"}, told); diff != "" {
					t.Errorf("handler was told (-want +got):\n%s", diff)
				}
				lister := configMaps.Lister().ConfigMaps("default")
				if all, err := lister.List(labels.Everything()); err != nil || len(all) != 1 || all[0].Data["v"] != "2" {
					t.Errorf("List: %v, %v", all, err)
				}
				if _, err := lister.Get("there"); !apierrors.IsNotFound(err) {
					t.Errorf("Get of what was deleted: %v", err)
				}
				cancel()
				factory.Shutdown()
				if !configMaps.Informer().IsStopped() {
					t.Error("the informer runs after Shutdown")
				}
				closeBackend()
			})
		})
	}
}

// TestTypedFactoryIsNotSynced checks what the factory reports for an informer whose list
// is refused.
func TestTypedFactoryIsNotSynced(t *testing.T) {
	for name, construct := range map[string]makeInformer{"client-go": nil, "mem": onMem, "bolt": onBolt(t.TempDir())} {
		t.Run(name, func(t *testing.T) {
			quietErrors(t)
			inBubble(t, func(w *world) {
				client := fake.NewClientset()
				client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errOnPurpose
				})
				factory := informers.NewSharedInformerFactory(client, 0)
				closeBackend := throughFactory(w, factory, construct)
				if err := factory.Core().V1().ConfigMaps().Informer().SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(klog.NewContext(w.Context(), klog.Logger{}), time.Minute)
				defer cancel()
				factory.StartWithContext(ctx)
				synced := factory.WaitForCacheSyncWithContext(ctx)
				if err := synced.AsError(); err == nil || len(synced.Synced) != 1 {
					t.Errorf("synced: %+v, %v", synced, err)
				}
				factory.Shutdown()
				closeBackend()
			})
		})
	}
}

// TestPlainListWatchOfFakes checks that an informer on a fake client syncs in a moment,
// even behind a ListWatch that hides that the client does not end streamed lists.
func TestPlainListWatchOfFakes(t *testing.T) {
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	kind := metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	plain := func(list func(context.Context, metav1.ListOptions) (runtime.Object, error), watches cache.WatchFuncWithContext) cache.ListerWatcher {
		return &cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: watches}
	}
	for name, c := range map[string]struct {
		lw      func(objects ...runtime.Object) cache.ListerWatcher
		example runtime.Object
	}{
		"typed": {example: &corev1.ConfigMap{}, lw: func(objects ...runtime.Object) cache.ListerWatcher {
			api := fake.NewClientset(objects...).CoreV1().ConfigMaps("")
			return plain(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) }, api.Watch)
		}},
		"dynamic": {example: &unstructured.Unstructured{}, lw: func(objects ...runtime.Object) cache.ListerWatcher {
			lists := map[schema.GroupVersionResource]string{resource: "ConfigMapList"}
			scheme := runtime.NewScheme()
			utilruntime.Must(corev1.AddToScheme(scheme))
			api := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(scheme, lists, objects...).Resource(resource)
			return plain(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) }, api.Watch)
		}},
		"metadata": {example: &metav1.PartialObjectMetadata{TypeMeta: kind}, lw: func(objects ...runtime.Object) cache.ListerWatcher {
			scheme := metadatafake.NewTestScheme()
			utilruntime.Must(metav1.AddMetaToScheme(scheme))
			for i := range objects {
				objects[i] = &metav1.PartialObjectMetadata{TypeMeta: kind, ObjectMeta: objects[i].(*corev1.ConfigMap).ObjectMeta}
			}
			api := metadatafake.NewSimpleMetadataClient(scheme, objects...).Resource(resource)
			return plain(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) }, api.Watch)
		}},
	} {
		for n := range 3 {
			t.Run(fmt.Sprintf("%s, %d objects", name, n), func(t *testing.T) {
				inBubble(t, func(w *world) {
					lw := c.lw([]runtime.Object{cm("a", "1", "1"), cm("b", "1", "1")}[:n]...)
					inf, err := informer.New(lw, c.example, informer.Options{})
					if err != nil {
						t.Fatal(err)
					}
					if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(klog.NewContext(w.Context(), klog.Logger{}))
					done := make(chan struct{})
					go func() { defer close(done); inf.RunWithContext(ctx) }()
					defer func() { cancel(); <-done }()
					waitFor(2 * time.Second)
					if !inf.HasSynced() {
						t.Error("not synced after 2 s")
					}
					if got := len(inf.GetStore().ListKeys()); got != n {
						t.Errorf("%d objects, want %d", got, n)
					}
				})
			})
		}
	}
}
