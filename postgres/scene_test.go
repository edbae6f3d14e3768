package postgres

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/postgres/internal/raw"
	"github.com/informctl/informctl/postgres/pgtest"
)

// scene is a scope whose publisher the test plays, step by step.
type scene struct {
	*testing.T
	dsn string
	db  *DB
	w   *writer
	s   *sink
}

func newScene(t *testing.T, dsn string) *scene {
	t.Helper()
	sc := &scene{T: t, dsn: dsn}
	schema := pgtest.Schema()
	if err := Migrate(t.Context(), dsn, Options{Schema: schema}); err != nil {
		t.Fatal(err)
	}
	var err error
	if sc.db, err = Open(t.Context(), dsn, Options{Schema: schema, Poll: 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sc.db.Close() })
	sc.w, sc.s = sc.publisher("first")
	return sc
}

// publisher returns a publisher that has taken over.
func (sc *scene) publisher(holder string) (*writer, *sink) {
	sc.Helper()
	sc.exec(`INSERT INTO informctl.lease (grp, holder, expires, heard) VALUES ('c1', $1, 'infinity', clock_timestamp())
		ON CONFLICT (grp) DO UPDATE SET holder = excluded.holder`, holder)
	w := &writer{db: sc.db, holder: holder, group: "c1", ttl: 10 * time.Second, scope: modelScope, wrote: func(int64) {}}
	if err := w.takeOver(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	s := newSink(w, modelScope.Kind, 0)
	s.cancel, s.relist = func(error) {}, func(string) {}
	return w, s
}

func (sc *scene) exec(statement string, args ...any) {
	sc.Helper()
	if _, err := sc.db.pool.Exec(sc.Context(), sc.db.sql(statement), args...); err != nil {
		sc.Fatalf("%s: %v", statement, err)
	}
}

// one returns the only value of a query.
func one[T any](sc *scene, query string, args ...any) (value T) {
	sc.Helper()
	if err := sc.db.pool.QueryRow(sc.Context(), sc.db.sql(query), args...).Scan(&value); err != nil {
		sc.Fatalf("%s: %v", query, err)
	}
	return value
}

// object returns an object whose UID is its name, unless another is given.
func object(name string, rv int64, uid ...string) *corev1.ConfigMap {
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: strconv.FormatInt(rv, 10)}}
	if len(uid) > 0 {
		obj.UID = types.UID(uid[0])
	}
	return obj
}

// trimPart deletes rows of a scope from a floor on, and returns the first one that stays.
func (db *DB) trimPart(ctx context.Context, scope, floor int64, opts PublishOptions) (int64, error) {
	ends, err := db.trimEnds(ctx, []int64{scope}, []int64{floor}, opts)
	if err != nil || ends[0] <= floor {
		return floor, err
	}
	return ends[0], db.trimTo(ctx, scope, floor, ends[0])
}

// push commits an event and the mark at its resource version.
func (sc *scene) push(t cache.DeltaType, obj *corev1.ConfigMap) {
	sc.Helper()
	err := sc.s.Push(sc.Context(), t, obj, obj.ResourceVersion)
	if err == nil {
		err = sc.s.commit(sc.Context())
	}
	if err != nil {
		sc.Fatal(err)
	}
}

// mark commits a mark.
func (sc *scene) mark(rv int64) {
	sc.Helper()
	_ = sc.s.Bookmark(sc.Context(), strconv.FormatInt(rv, 10))
	sc.s.urgent = true
	if err := sc.s.commit(sc.Context()); err != nil {
		sc.Fatal(err)
	}
}

// begin begins a list and adds objects.
func (sc *scene) begin(objects ...*corev1.ConfigMap) *relist {
	sc.Helper()
	l, err := sc.s.Relist(sc.Context(), "410")
	if err != nil {
		sc.Fatal(err)
	}
	for _, obj := range objects {
		if err := l.Add(sc.Context(), obj); err != nil {
			sc.Fatal(err)
		}
	}
	return l.(*relist)
}

// wrote writes the part of a list, to its end.
func (l *relist) wrote(ctx context.Context) error {
	if err := l.write(ctx); err != nil {
		return err
	}
	return l.written()
}

// list publishes a list.
func (sc *scene) list(rv int64, objects ...*corev1.ConfigMap) {
	sc.Helper()
	l := sc.begin(objects...)
	if err := l.Finish(sc.Context(), strconv.FormatInt(rv, 10)); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
}

func (sc *scene) follower(opts FollowOptions) *ListerWatcher {
	sc.Helper()
	lw, err := sc.db.ListerWatcher(modelScope, &corev1.ConfigMap{}, opts)
	if err != nil {
		sc.Fatal(err)
	}
	return lw
}

// watch opens a watch and returns what it sends until it has sent all there is, with the
// error that ends it.
func (sc *scene) watch(lw *ListerWatcher, rv int64) (events []watch.Event, err error) {
	sc.Helper()
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: strconv.FormatInt(rv, 10), AllowWatchBookmarks: true})
	if err != nil {
		return nil, err
	}
	return sc.read(w.(*watcher)), nil
}

// read returns what a watch sends until it has sent all there is, and stops it.
func (sc *scene) read(w *watcher) (events []watch.Event) {
	sc.Helper()
	defer func() {
		w.Stop()
		for range w.out {
		}
	}()
	var end anchor
	_ = sc.db.pool.QueryRow(sc.Context(), sc.db.sql("SELECT seq, tx FROM informctl.change ORDER BY seq DESC LIMIT 1")).Scan(&end.seq, &end.tx)
	late := time.After(time.Minute)
	for {
		select {
		case e, ok := <-w.out:
			if !ok {
				return events
			}
			events = append(events, e)
		case <-time.After(2 * time.Millisecond):
			sc.db.hub.mu.Lock()
			isIdle := w.waiter.last.seq == end.seq && w.waiter.last.tx == end.tx
			sc.db.hub.mu.Unlock()
			if isIdle {
				return events
			}
		case <-late:
			sc.Fatal("the watch does not come to an end")
		}
	}
}

// listed returns the names in a list and its error.
func (sc *scene) listed(lw *ListerWatcher, opts metav1.ListOptions) (names []string, rv string, err error) {
	list, err := lw.ListWithContext(sc.Context(), opts)
	if err != nil {
		return nil, "", err
	}
	l := list.(*metainternalversion.List)
	for _, obj := range l.Items {
		names = append(names, obj.(*corev1.ConfigMap).Name)
	}
	return names, l.ResourceVersion, nil
}

// TestAccepted checks that a part that the database refuses is written without what jsonb
// refuses, which is named.
func TestAccepted(t *testing.T) {
	sc := newScene(t, pgtest.Start(t).DSN()) // the schema kube is the database's
	d, err := newDecoder(&unstructured.Unstructured{}, modelScope.Kind)
	if err != nil {
		t.Fatal(err)
	}
	json := int16(raw.JSON)
	fine := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fine"}}`
	deep := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`
	var rows []projectedRow
	for name, data := range map[string]string{"fine": fine, "deep": deep, "malformed": "{"} {
		rows = append(rows, projectedRow{name: name, key: []byte(name), logRow: logRow{form: &json, data: compressor().EncodeAll([]byte(data), nil)}})
	}
	// One connection, so that the setting is that of each statement.
	db, err := Open(t.Context(), sc.dsn, Options{Schema: sc.db.opts.Schema, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.pool.Exec(t.Context(), "SET max_stack_depth = '100kB'"); err != nil {
		t.Fatal(err)
	}
	p := sc.projector()
	p.db = db
	calls := 0
	n, objects, skipped := decoded(d, rows)
	if n != len(rows) {
		t.Errorf("%d rows are decoded at once, want all", n)
	}
	skipped, err = p.accepted(t.Context(), projected{}, objects, skipped, func(rows []projectedRow, skipped []string) error {
		calls++
		for _, r := range rows {
			if _, err := db.pool.Exec(t.Context(), "SELECT $1::jsonb", r.json); err != nil {
				return err
			}
		}
		if len(rows) != 1 || rows[0].name != "fine" || len(skipped) != 2 {
			t.Errorf("%d rows are written, skipped are %.200q", len(rows), skipped)
		}
		return nil
	})
	if err != nil || calls != 2 || len(skipped) != 2 {
		t.Errorf("written in %d calls, %v, skipped are %.200q", calls, err, skipped)
	}
}

// projector returns a projector of the scene's feed with tables of its own.
func (sc *scene) projector() *projector {
	sc.Helper()
	sc.exec("DROP SCHEMA IF EXISTS kube CASCADE")
	if err := MigrateSQL(sc.Context(), sc.dsn, Options{}); err != nil {
		sc.Fatal(err)
	}
	return &projector{db: sc.db, opts: ProjectOptions{}.withDefaults()}
}

// project writes to SQL all there is.
func (sc *scene) project(p *projector) {
	sc.Helper()
	for more := true; more; {
		var err error
		if more, err = p.step(sc.Context()); err != nil {
			sc.Fatal(err)
		}
	}
}

// history returns what has changed in SQL.
func (sc *scene) history() []string {
	return one[[]string](sc, "SELECT coalesce(array_agg(change || ' ' || name || '@' || rv ORDER BY at), '{}') FROM kube.history")
}
