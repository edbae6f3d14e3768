package informers_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/informers"
	"github.com/informctl/informctl/store/bolt"
)

// client-go's shared factory, from a file.
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
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}

		factory := informers.NewFactory(persistent, client, informers.Options{})
		defer factory.Shutdown()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		pods := factory.Core().V1().Pods().Lister()
		deployments := factory.Apps().V1().Deployments().Lister()
		factory.StartWithContext(ctx)
		if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
			return err
		}
		web, err := pods.Pods("default").List(labels.SelectorFromSet(labels.Set{"app": "web"}))
		if err != nil {
			return err
		}
		all, err := deployments.List(labels.Everything())
		fmt.Println(len(web), "pods", len(all), "deployments")
		<-ctx.Done()
		return err
	}
	_ = run
	// Output:
}
