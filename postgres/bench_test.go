package postgres_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/store"
)

// BenchmarkPublish is a change of a pod, of an API server in the same process that has
// made all changes before: how fast a publisher catches up.
func BenchmarkPublish(b *testing.B) {
	klog.SetLogger(klog.Background().V(10))
	server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
	for i := range 2000 {
		if _, err := server.Create(testobjects.Pod(i, 1)); err != nil {
			b.Fatal(err)
		}
	}
	pg := pgtest.Start(b)
	if err := postgres.Migrate(b.Context(), pg.DSN(), postgres.Options{}); err != nil {
		b.Fatal(err)
	}
	db, err := postgres.Open(b.Context(), pg.DSN(), postgres.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	scope := store.Scope{Cluster: "c1", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
	c, err := postgres.NewCollection(server.Config(runtime.ContentTypeProtobuf), scope)
	if err != nil {
		b.Fatal(err)
	}
	published := func() int64 {
		status, err := db.Status(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if len(status) == 0 || !status[0].Complete {
			return 0
		}
		rv, err := strconv.ParseInt(status[0].RV, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return rv
	}
	publish := func(until int64) {
		ctx, cancel := context.WithCancel(b.Context())
		var done sync.WaitGroup
		done.Go(func() { _ = db.Publish(ctx, []postgres.Collection{c}, postgres.PublishOptions{}) })
		for published() < until {
			<-time.After(20 * time.Millisecond)
		}
		cancel()
		done.Wait()
	}
	first, err := strconv.ParseInt(server.RV(), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	publish(first)
	var last string
	for i := range b.N {
		p := testobjects.Pod(i%2000, 1)
		p.Annotations = map[string]string{"n": strconv.Itoa(i)}
		if last, err = server.Update(p); err != nil {
			b.Fatal(err)
		}
	}
	until, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	publish(until)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}
