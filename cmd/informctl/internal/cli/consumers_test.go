package cli_test

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// writeConsumers makes a file with two consumers. The queue of one has a key that waits,
// one that is delayed and one that has failed.
func writeConsumers(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fillScope(t, db, nil, store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, pod("a", "one", ""))
	open := func(name, version string) *durable.Consumer {
		c, err := durable.Open(db, name, durable.Options{Version: version})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	widgets, gadgets := open("widgets", "3"), open("gadgets", "")
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](time.Hour, time.Hour)
	q := durable.NewQueue(widgets, limiter, durable.ObjectNames)
	q.Add(cache.ObjectName{Namespace: "a", Name: "waits"})
	q.AddAfter(cache.ObjectName{Namespace: "a", Name: "later"}, time.Hour)
	q.AddRateLimited(cache.ObjectName{Namespace: "a", Name: "failed"})
	q.ShutDown()
	if err := errors.Join(widgets.Close(), gadgets.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
}
