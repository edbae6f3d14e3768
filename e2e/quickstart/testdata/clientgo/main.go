// Command clientgo is a controller on client-go, with five types.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	check(err)
	client, err := kubernetes.NewForConfig(cfg)
	check(err)
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods()
	_, err = pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell("added"), DeleteFunc: tell("deleted")})
	check(err)
	nodes := factory.Core().V1().Nodes().Lister()
	services := factory.Core().V1().Services().Lister()
	deployments := factory.Apps().V1().Deployments().Lister()
	slices := factory.Discovery().V1().EndpointSlices().Lister()
	factory.StartWithContext(ctx)
	check(factory.WaitForCacheSyncWithContext(ctx).AsError())

	all, err := pods.Lister().List(labels.Everything())
	check(err)
	_, err = nodes.List(labels.Everything())
	check(err)
	_, err = services.List(labels.Everything())
	check(err)
	_, err = deployments.List(labels.Everything())
	check(err)
	_, err = slices.List(labels.Everything())
	check(err)
	fmt.Println("synced,", len(all), "pods")
	<-ctx.Done()
	factory.Shutdown()
}

func tell(what string) func(any) {
	return func(obj any) {
		name, err := cache.DeletionHandlingObjectToName(obj)
		check(err)
		fmt.Println(what, name)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
