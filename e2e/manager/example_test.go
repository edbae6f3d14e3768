package manager_test

import (
	"context"
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/bolt"
)

// A manager uses persistent informers by setting one field of its options. The factory
// must be created before the manager, because it wraps the transport of cfg. A List
// decodes the objects that are not cached, so copying them again is a waste:
// DefaultUnsafeDisableDeepCopy avoids the copy, for controllers that do not change the
// objects that they read.
func Example() {
	run := func(ctx context.Context) (err error) {
		cfg, err := ctrl.GetConfig()
		if err != nil {
			return err
		}
		db, err := bolt.Open("/var/cache/app/informers.db", bolt.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, db.Close()) }()
		factory, err := informer.NewFactory(db, cfg, informer.FactoryOptions{})
		if err != nil {
			return err
		}
		unsafe := true
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{Cache: crcache.Options{
			NewInformer:                  factory.NewInformer,
			DefaultUnsafeDisableDeepCopy: &unsafe,
		}})
		if err != nil {
			return err
		}
		return mgr.Start(ctx) // until the context ends
	}
	_ = run
	// Output:
}
