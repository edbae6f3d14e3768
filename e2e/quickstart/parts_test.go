package quickstart_test

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/durable/controllerruntime"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/informer/dynamicinformer"
	"github.com/informctl/informctl/inspect"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// These functions contain the parts of programs that the pages show: see TestParts. They
// are compiled and not run; other tests run what they call.
var _ = []any{leftWork, sharedPlace, otherClients, withoutFile, withKeys, stripped, inspected}

func leftWork(ctx context.Context, db *bolt.DB, mgr ctrl.Manager, r reconcile.Reconciler) {
	c, err := durable.Open(db, "widgets", durable.Options{Version: "1", Elected: mgr.Elected()})
	check(err)
	err = ctrl.NewControllerManagedBy(controllerruntime.Manager(c, mgr)).
		For(&corev1.ReplicationController{}).Owns(&corev1.Pod{}).
		WithOptions(controller.Options{NewQueue: controllerruntime.NewQueue(c)}).
		Complete(r)
	check(err)
	check(mgr.Start(ctx)) // after an error the program ends: reconcilers may still run
	check(errors.Join(c.Close(), db.Close()))
}

func sharedPlace(mgr ctrl.Manager, client kubernetes.Interface) durable.Options {
	opts := durable.Options{
		Version: "1", Elected: mgr.Elected(),
		Shared: durable.InCluster(client, "widgets-system", "widgets-left"),
	}
	return opts
}

func otherClients(factory *informer.Factory, dynamicClient dynamic.Interface, widgetsResource schema.GroupVersionResource) {
	dynamicFactory := dynamicinformer.NewFactory(factory, dynamicClient, dynamicinformer.Options{})
	widgets := dynamicFactory.ForResource(widgetsResource)
	_ = widgets
}

func withoutFile(path string, opts bolt.Options) (*bolt.DB, error) {
	db, err := bolt.Open(path, opts)
	if err != nil && !errors.Is(err, store.ErrLocked) {
		db, err = bolt.WithoutFile(path, err, opts), nil
	}
	return db, err
}

func withKeys(path string) (*bolt.DB, error) {
	db, err := bolt.Open(path, bolt.Options{Keys: codec.KeyFile("key")}) // or KeyCommand
	return db, err
}

func stripped(inf *informer.Informer) error {
	err := inf.SetTransform(informer.StripManagedFields)
	return err
}

func inspected(ctx context.Context, db *bolt.DB, factory *informer.Factory) {
	go inspect.Serve(ctx, inspect.SocketPath(db.Path()), inspect.NewHandler(factory)) //nolint:errcheck // it is said in the log
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
