// Command clientgo is the client-go program of docs/adopting.md.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/informers"
	"github.com/informctl/informctl/store/bolt"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	check(err)
	db, err := bolt.Open("informers.db", bolt.Options{})
	check(err)
	// NewFactory wraps cfg's transport.
	persistent, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	check(err)
	client, err := kubernetes.NewForConfig(cfg)
	check(err)

	factory := informers.NewFactory(persistent, client, informers.Options{})
	pods := factory.Core().V1().Pods()
	_, err = pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell("added"), DeleteFunc: tell("deleted")})
	check(err)
	factory.StartWithContext(ctx)
	check(factory.WaitForCacheSyncWithContext(ctx).AsError())
	all, err := pods.Lister().List(labels.Everything())
	check(err)
	fmt.Println("synced,", len(all), "pods")
	<-ctx.Done()
	factory.Shutdown() // waits until the informers have ended
	check(db.Close())
}

func tell(what string) func(any) {
	return func(pod any) {
		name, err := cache.DeletionHandlingObjectToName(pod)
		check(err)
		fmt.Println(what, name)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
