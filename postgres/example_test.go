package postgres_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// An informer of client-go that follows the database.
func ExampleDB_ListerWatcher() {
	run := func(ctx context.Context, dsn string) error {
		db, err := postgres.Open(ctx, dsn, postgres.Options{Listen: true})
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		scope := store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
		lw, err := db.ListerWatcher(scope, &corev1.Pod{}, postgres.FollowOptions{})
		if err != nil {
			return err
		}
		informer := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		informer.RunWithContext(ctx)
		return nil
	}
	_ = run
	// Output:
}
