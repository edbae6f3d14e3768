package postgres_test

import (
	"context"
	"flag"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/store"
)

var (
	benchObjects = flag.Int("pg.objects", 5000, "config maps of BenchmarkRelist, and pods of BenchmarkSQL")
	benchScopes  = flag.Int("pg.scopes", 30, "scopes of BenchmarkIdle")
)

// benchmark is a database with publishers of an API server in the same process.
type benchmark struct {
	*testing.B
	server *fakeapi.Server
	db     *postgres.DB
	conn   *pgx.Conn // to ask what is measured
	scopes []postgres.Collection
}

// newBenchmark returns a benchmark with a number of scopes of a resource, each of which
// has all objects: the API server knows no selectors.
func newBenchmark(b *testing.B, server *fakeapi.Server, scope store.Scope, scopes int) *benchmark {
	b.Helper()
	klog.SetLogger(klog.Background().V(10))
	bm := &benchmark{B: b, server: server}
	pg := pgtest.Start(b)
	err := postgres.Migrate(b.Context(), pg.DSN(), postgres.Options{})
	if err == nil {
		bm.db, err = postgres.Open(b.Context(), pg.DSN(), postgres.Options{Listen: true})
	}
	if err == nil {
		bm.conn, err = pgx.Connect(b.Context(), pg.DSN())
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = bm.db.Close()
		_ = bm.conn.Close(context.WithoutCancel(b.Context()))
	})
	for i := range scopes {
		if scopes > 1 {
			scope.LabelSelector = "n=" + strconv.Itoa(i)
		}
		c, err := postgres.NewCollection(server.Config(runtime.ContentTypeProtobuf), scope)
		if err != nil {
			b.Fatal(err)
		}
		bm.scopes = append(bm.scopes, c)
	}
	return bm
}

// begin publishes until the returned function is called.
func (b *benchmark) begin() (end func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = b.db.Publish(ctx, b.scopes, postgres.PublishOptions{}) })
	return func() { cancel(); done.Wait() }
}

// await waits until all scopes have the resource version of the server, and returns the
// greatest age of the publisher's lease meanwhile.
func (b *benchmark) await() (oldest time.Duration) {
	b.Helper()
	for {
		status, err := b.db.Status(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		there := 0
		for _, s := range status {
			if s.Complete && s.RV == b.server.RV() {
				there++
			}
			if s.IsHeld {
				oldest = max(oldest, time.Since(s.Heard))
			}
		}
		if there == len(b.scopes) {
			return oldest
		}
		<-time.After(20 * time.Millisecond)
	}
}

// measured returns what the database has written and how many transactions have ended.
func (b *benchmark) measured() (wal, transactions float64) {
	b.Helper()
	err := b.conn.QueryRow(b.Context(), `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8, xact_commit::float8
		FROM pg_stat_database WHERE datname = current_database()`).Scan(&wal, &transactions)
	if err != nil {
		b.Fatal(err)
	}
	return wal, transactions
}

// BenchmarkPublish is a change of a pod, of an API server in the same process that has
// made all changes before: how fast a publisher catches up.
func BenchmarkPublish(b *testing.B) {
	server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
	for i := range 2000 {
		if _, err := server.Create(testobjects.Pod(i, 1)); err != nil {
			b.Fatal(err)
		}
	}
	bm := newBenchmark(b, server, store.Scope{Cluster: "c1", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, 1)
	publish := func() {
		end := bm.begin()
		bm.await()
		end()
	}
	publish()
	for i := range b.N {
		p := testobjects.Pod(i%2000, 1)
		p.Annotations = map[string]string{"n": strconv.Itoa(i)}
		if _, err := server.Update(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	publish()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}

// BenchmarkRelist is a list in which all objects differ from what is published, as after
// a night without a publisher whose history the API server has dropped.
func BenchmarkRelist(b *testing.B) {
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	for i := range *benchObjects {
		if _, err := server.Create(testobjects.ConfigMap(i, 1)); err != nil {
			b.Fatal(err)
		}
	}
	bm := newBenchmark(b, server, configMapScope, 1)
	end := bm.begin()
	bm.await()
	end()
	var written float64
	var oldest time.Duration
	for n := range b.N {
		b.StopTimer()
		for i := range *benchObjects {
			if _, err := server.Update(testobjects.ConfigMap(i, int64(n)+2)); err != nil {
				b.Fatal(err)
			}
		}
		if err := server.Compact(server.RV()); err != nil {
			b.Fatal(err)
		}
		before, _ := bm.measured()
		b.StartTimer()
		end := bm.begin()
		oldest = max(oldest, bm.await())
		b.StopTimer()
		after, _ := bm.measured()
		written += after - before
		end()
	}
	b.ReportMetric(float64(b.N**benchObjects)/b.Elapsed().Seconds(), "objects/s")
	b.ReportMetric(written/float64(b.N**benchObjects), "WAL-B/object")
	b.ReportMetric(oldest.Seconds(), "s-lease-age-max")
}

// BenchmarkIdle is a minute of scopes in which nothing changes: a publisher, to which the
// API server sends a bookmark of each, and a process that follows all.
func BenchmarkIdle(b *testing.B) {
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	if _, err := server.Create(configMap("a", "first")); err != nil {
		b.Fatal(err)
	}
	bm := newBenchmark(b, server, configMapScope, *benchScopes)
	defer bm.begin()()
	bm.await()
	var following sync.WaitGroup
	defer following.Wait()
	for _, c := range bm.scopes {
		lw, err := bm.db.ListerWatcher(c.Scope, &corev1.ConfigMap{}, postgres.FollowOptions{})
		if err != nil {
			b.Fatal(err)
		}
		w, err := lw.WatchWithContext(b.Context(), metav1.ListOptions{ResourceVersion: server.RV(), AllowWatchBookmarks: true})
		if err != nil {
			b.Fatal(err)
		}
		following.Go(func() {
			for range w.ResultChan() {
			}
		})
		defer w.Stop()
	}
	b.ResetTimer()
	before, transactions := bm.measured()
	for range b.N {
		rv := server.Advance()
		server.Send(watch.Event{Type: watch.Bookmark, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}})
		<-time.After(time.Minute)
	}
	after, ended := bm.measured()
	b.ReportMetric((ended-transactions)/b.Elapsed().Seconds(), "transactions/s")
	b.ReportMetric((after-before)/b.Elapsed().Seconds(), "WAL-B/s")
}

// BenchmarkSQL asks the questions of docs/postgres.md of pods, each of which has changed
// five times and of which each tenth was deleted, with and without an index of nodes.
func BenchmarkSQL(b *testing.B) {
	server := fakeapi.New(&corev1.Pod{}, &corev1.PodList{}, fakeapi.Options{})
	for i := range *benchObjects {
		if _, err := server.Create(testobjects.Pod(i, 1)); err != nil {
			b.Fatal(err)
		}
	}
	bm := newBenchmark(b, server, store.Scope{Cluster: "c1", Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}, 1)
	if err := postgres.MigrateSQL(b.Context(), bm.conn.Config().ConnString(), postgres.Options{}); err != nil {
		b.Fatal(err)
	}
	defer bm.begin()()
	ctx, cancel := context.WithCancel(b.Context())
	var projecting sync.WaitGroup
	defer projecting.Wait()
	defer cancel()
	projecting.Go(func() { _ = bm.db.Project(ctx, postgres.ProjectOptions{}) })
	await := func() {
		b.Helper()
		bm.await()
		for rv := ""; rv != server.RV(); <-time.After(100 * time.Millisecond) {
			// There may be no row yet.
			_ = bm.conn.QueryRow(b.Context(), "SELECT rv::text FROM kube.place").Scan(&rv)
		}
	}
	await()
	for n := range 5 {
		for i := range *benchObjects {
			p := testobjects.Pod(i, 1)
			p.Annotations = map[string]string{"n": strconv.Itoa(n)}
			if _, err := server.Update(p); err != nil {
				b.Fatal(err)
			}
		}
		await()
	}
	for i := 0; i < *benchObjects; i += 10 {
		p := testobjects.Pod(i, 1)
		if _, err := server.Delete(p.Namespace + "/" + p.Name); err != nil {
			b.Fatal(err)
		}
	}
	await()
	exec := func(statement string) {
		if _, err := bm.conn.Exec(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	exec("ANALYZE")
	p := testobjects.Pod(1, 1)
	for _, q := range []struct{ name, before, sql string }{
		{"pods of a node, no index", "", "SELECT namespace, name FROM kube.pods WHERE object #>> '{spec,nodeName}' = '" + p.Spec.NodeName + "'"},
		{
			"pods of a node, index", "CREATE INDEX ON kube.object ((object #>> '{spec,nodeName}')) WHERE resource = 'pods'; ANALYZE kube.object",
			"SELECT namespace, name FROM kube.object WHERE resource = 'pods' AND object #>> '{spec,nodeName}' = '" + p.Spec.NodeName + "'",
		},
		{"deleted in the last week", "", `SELECT at, namespace, name, object FROM kube.history
			WHERE resource = 'pods' AND change = 'deleted' AND at > now() - interval '7 days'`},
		{"history of a name", "", "SELECT at, change, object FROM kube.history WHERE resource = 'pods' AND left(namespace, 253) = '" + p.Namespace +
			"' AND left(name, 253) = '" + p.Name + "' ORDER BY at"},
		{"images in several versions", "", `SELECT split_part(image, ':', 1), count(DISTINCT image)
			FROM kube.pods, jsonb_path_query(object, '$.spec.containers[*].image') i(j), LATERAL (SELECT j #>> '{}') t(image)
			GROUP BY 1 HAVING count(DISTINCT image) > 1`},
		{"what changed most in an hour", "", `SELECT namespace, name, count(*) FROM kube.history
			WHERE resource = 'pods' AND at > now() - interval '1 hour' GROUP BY 1, 2 ORDER BY 3 DESC LIMIT 20`},
	} {
		if q.before != "" {
			exec(q.before)
		}
		b.Run(q.name, func(b *testing.B) {
			var n int64
			for b.Loop() {
				tag, err := bm.conn.Exec(b.Context(), q.sql)
				if err != nil {
					b.Fatal(err)
				}
				n = tag.RowsAffected()
			}
			b.ReportMetric(float64(n), "rows")
		})
	}
}
