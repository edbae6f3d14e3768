package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/store"
)

var (
	configMapKind  = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	configMapScope = store.Scope{Cluster: "c1", Resource: "configmaps", Kind: configMapKind}
)

// open returns a DB with new tables.
func open(t *testing.T, dsn, schema string, opts postgres.Options) *postgres.DB {
	t.Helper()
	opts.Schema = schema
	if err := postgres.Migrate(t.Context(), dsn, opts); err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"value": value}}
}

// publish publishes in the background until the test ends, or the returned function is
// called.
func publish(t *testing.T, db *postgres.DB, c postgres.Collection, opts postgres.PublishOptions) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() {
		if err := db.Publish(ctx, []postgres.Collection{c}, opts); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

// follow runs client-go's informer on a ListerWatcher until the test ends.
func follow(t *testing.T, lw cache.ListerWatcher, example runtime.Object) cache.SharedIndexInformer {
	t.Helper()
	inf := cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var done sync.WaitGroup
	done.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return inf
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatalf("not within 30 s: %s", what)
		case <-tick.C:
		}
	}
}

func TestFeed(t *testing.T) {
	dsn := pgtest.DSN(t)
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) {
			server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
			for i := range 50 {
				if _, err := server.Create(configMap(fmt.Sprintf("c%d", i), "first")); err != nil {
					t.Fatal(err)
				}
			}
			db := open(t, dsn, pgtest.Schema(), postgres.Options{Listen: true})
			c, err := postgres.NewCollection(server.Config(contentType), configMapScope)
			if err != nil {
				t.Fatal(err)
			}
			publish(t, db, c, postgres.PublishOptions{TTL: 2 * time.Second})

			follower := func(example runtime.Object) cache.SharedIndexInformer {
				lw, err := db.ListerWatcher(configMapScope, example, postgres.FollowOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return follow(t, lw, example)
			}
			typed, dynamic := follower(&corev1.ConfigMap{}), follower(&unstructured.Unstructured{})
			metadata := follower(&metav1.PartialObjectMetadata{})
			infs := []cache.SharedIndexInformer{typed, dynamic, metadata}
			for _, inf := range infs {
				eventually(t, "HasSynced", inf.HasSynced)
			}
			for i := range 10 {
				if _, err := server.Update(configMap(fmt.Sprintf("c%d", i), "second")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := server.Delete("default/c20"); err != nil {
				t.Fatal(err)
			}
			rv, err := server.Create(configMap("new", "first"))
			if err != nil {
				t.Fatal(err)
			}
			for _, inf := range infs {
				eventually(t, "the resource version of the last change", func() bool { return inf.LastSyncResourceVersion() == rv })
				eventually(t, "50 objects", func() bool { return len(inf.GetStore().ListKeys()) == 50 })
			}
			want, err := server.ListWithContext(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range want.(*corev1.ConfigMapList).Items {
				key := w.Namespace + "/" + w.Name
				got, _, err := typed.GetStore().GetByKey(key)
				if err != nil {
					t.Fatal(err)
				}
				w.TypeMeta = metav1.TypeMeta{}
				if diff := cmp.Diff(&w, got); diff != "" {
					t.Fatalf("%s (-server +follower):\n%s", key, diff)
				}
				got, _, _ = dynamic.GetStore().GetByKey(key)
				w.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
				u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&w)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(u, got.(*unstructured.Unstructured).Object); diff != "" {
					t.Fatalf("%s unstructured (-server +follower):\n%s", key, diff)
				}
			}
			status, err := db.Status(t.Context())
			if err != nil || len(status) != 1 || !status[0].Complete || status[0].Problem != "" || status[0].Objects != 50 {
				t.Errorf("status %+v, %v", status, err)
			}
		})
	}
}
