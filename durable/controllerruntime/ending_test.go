package controllerruntime_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

// oneInformer is a cache with one informer.
type oneInformer struct {
	cache.Cache
	inf *informer.Informer
}

// GetInformer implements cache.Informers.
func (o oneInformer) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return o.inf, nil
}

// WaitForCacheSync implements cache.Informers.
func (o oneInformer) WaitForCacheSync(ctx context.Context) bool {
	return toolscache.WaitForCacheSync(ctx.Done(), o.inf.HasSynced)
}

// TestContextEndsInCall ends the context of a controller while a map function is called,
// which returns no requests because of that. The next process receives the event,
// although the queue was not told to end before the place was written.
func TestContextEndsInCall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
		put := func(name string) {
			t.Helper()
			if _, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
				t.Fatal(err)
			}
		}
		run := func(during func()) (mapped []string) {
			db, c := openConsumer(t, path)
			inf, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{
				Backend: db, Scope: store.Scope{Cluster: "c", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")},
			})
			if err != nil {
				t.Fatal(err)
			}
			ofInformer, endInformer := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { // ends with the informer
				defer close(ended)
				inf.RunWithContext(ofInformer)
			}()
			q := controllerruntime.NewQueue(c)("a", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			ofController, endController := context.WithCancel(t.Context())
			maps := func(_ context.Context, obj client.Object) []reconcile.Request {
				mapped = append(mapped, obj.GetName())
				if obj.GetName() == "b" && during != nil {
					endController() // what it asks for is refused from now on
				}
				return nil
			}
			k := source.Kind[client.Object](controllerruntime.Cache(c, oneInformer{inf: inf}), &corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(maps))
			if err := errors.Join(k.Start(ofController, q), k.WaitForSync(ofController)); err != nil {
				t.Fatal(err)
			}
			if during != nil {
				during()
			}
			<-time.After(5 * time.Second) // the place is written each second
			q.ShutDown()
			endController()
			endInformer()
			<-ended
			if err := errors.Join(c.Close(), db.Close()); err != nil {
				t.Error(err)
			}
			return mapped
		}
		put("a")
		if got := run(func() { put("b"); <-time.After(5 * time.Second) }); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("at first %q, want a and b", got)
		}
		if got := run(nil); !slices.Contains(got, "b") {
			t.Errorf("the next process receives %q, want b", got)
		}
	})
}
