package metadatainformer_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/metadatainformer"
	"github.com/informctl/informctl/store/bolt"
)

// The owners of deleted objects, as a garbage collector needs them, from a file.
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
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			return err
		}

		factory := metadatainformer.NewFactory(persistent, client, metadatainformer.Options{})
		defer factory.Shutdown()
		jobs := factory.ForResource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"})
		_, err = jobs.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			DeleteFunc: func(obj any) {
				if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = tombstone.Obj
				}
				fmt.Println("owned by", obj.(*metav1.PartialObjectMetadata).OwnerReferences)
			},
		})
		if err != nil {
			return err
		}
		factory.StartWithContext(ctx)
		factory.WaitForCacheSyncWithContext(ctx)
		job, err := jobs.Lister().ByNamespace("default").Get("backup")
		fmt.Println(job)
		<-ctx.Done()
		return err
	}
	_ = run
	// Output:
}
