package durable_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// The second process of a controller reconciles only what was changed while none ran.
func ExampleConsumer() {
	process := func(path string, server cache.ListerWatcher) error {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			return err
		}
		inf, err := informer.New(server, &corev1.ConfigMap{}, informer.Options{
			Backend: db, Scope: store.Scope{Cluster: "example"},
		})
		if err != nil {
			return err
		}
		consumer, err := durable.Open(db, "widgets", durable.Options{Version: "1", Unchanged: durable.Skip})
		if err != nil {
			return err
		}
		limiter := workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()
		queue := durable.NewQueue(consumer, limiter, durable.ObjectNames)
		enqueue := func(obj any) {
			if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
				queue.Add(name)
			}
		}
		registration, err := inf.AddEventHandler(consumer.Handler(cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
			DeleteFunc: enqueue,
		}))
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { inf.RunWithContext(ctx) })
		<-registration.HasSyncedChecker().Done()

		for queue.Len() > 0 {
			name, _ := queue.Get()
			fmt.Println("reconcile", name)
			queue.Forget(name)
			queue.Done(name)
		}

		queue.ShutDown()
		stop()
		running.Wait()
		return errors.Join(consumer.Close(), db.Close())
	}

	dir, err := os.MkdirTemp("", "")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "informers.db")
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	for _, name := range []string{"a", "b", "c"} {
		_, err := server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		check(err)
	}
	check(process(path, server))
	fmt.Println("nothing runs while b is changed")
	_, err = server.Update(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Data: map[string]string{"changed": "yes"},
	})
	check(err)
	check(process(path, server))

	// Output:
	// reconcile default/a
	// reconcile default/b
	// reconcile default/c
	// nothing runs while b is changed
	// reconcile default/b
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
