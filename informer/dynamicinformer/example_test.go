package dynamicinformer_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/store/bolt"
)

// Custom resources without a Go type, from a file.
func Example() {
	run := func(ctx context.Context, cfg *rest.Config) error {
		db, err := bolt.Open("/var/cache/app/informers.db", bolt.Options{})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		// The factory must be created before the client.
		persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
		if err != nil {
			return err
		}
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}

		factory := dynamicinformer.NewFactory(persistent, client, dynamicinformer.Options{})
		defer factory.Shutdown()
		widgets := factory.ForResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"})
		_, err = widgets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { fmt.Println("added", cache.MetaObjectToName(obj.(*unstructured.Unstructured))) },
		})
		if err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		factory.WaitForCacheSyncWithContext(ctx)
		red, err := widgets.Lister().List(labels.SelectorFromSet(labels.Set{"color": "red"}))
		fmt.Println(len(red), "red widgets")
		<-ctx.Done()
		return err
	}
	_ = run
	// Output:
}
