// Command controllerruntime is the controller-runtime program of docs/adopting.md.
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

func main() {
	ctrl.SetLogger(zap.New())
	cfg := ctrl.GetConfigOrDie()
	db, err := bolt.Open("informers.db", bolt.Options{})
	check(err)
	// NewFactory wraps cfg's transport.
	factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
	check(err)
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Cache: crcache.Options{NewInformer: factory.NewInformer},
	})
	check(err)
	check(ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(reconcile.Func(
		func(ctx context.Context, r ctrl.Request) (ctrl.Result, error) {
			err := mgr.GetClient().Get(ctx, r.NamespacedName, &corev1.Pod{})
			fmt.Println("reconcile", r, "there:", err == nil)
			return ctrl.Result{}, client.IgnoreNotFound(err)
		})))
	check(mgr.Start(ctrl.SetupSignalHandler()))
	check(db.Close()) // when the informers have ended
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
