package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/informctl/informctl/internal/clocktest"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/postgres/internal/raw"
	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

// TestFindings has the ways in which followers could differ from the API server in
// silence, stand still or read what they may not, one each: C are critical, H high and M
// of less weight. TestModel finds most of C and H by itself.
func TestFindings(t *testing.T) {
	dsn := pgtest.DSN(t)
	for name, test := range map[string]func(*scene){
		"C1 object that no list has seen":                testHole,
		"C2 parts of a list that are lost":               testLostParts,
		"C3 a list of two servers":                       testTwoServers,
		"C4 the transaction of a dead publisher":         testDeadTransaction,
		"H1 renewal beside a long list":                  testRenewal,
		"H2 an object twice in a list":                   testTwice,
		"H3 idle candidates and scopes":                  testIdle,
		"H4 no notification in a commit":                 testNotify,
		"H5 a publisher that hears nothing":              testStale,
		"H6 no way back in time":                         testBack,
		"H7 both were restored":                          testBothRestored,
		"both were restored, and passed the follower":    testBothPassed,
		"rows that were lost and written again":          testLostRows,
		"H8 fields that nobody knows":                    testUnknownFields,
		"H9 names that are long or odd":                  testOddNames,
		"H10 connections and roles":                      testRoles,
		"H11 pages by bytes":                             testPages,
		"H12 no jsonb in the feed":                       testNoJSONB,
		"M1 whose transaction it is":                     testWhose,
		"M2 a clock that is set back":                    testClock,
		"M3 M9 what is tried again":                      testTriedAgain,
		"M4 another version of the tables":               testVersion,
		"M5 the index of the marks":                      testIndex,
		"M6 a scope that is dropped":                     testDrop,
		"M7 options of the tables":                       testTableOptions,
		"M8 a database that does not notify":             testNoNotification,
		"M10 databases that only look like PostgreSQL":   testEngines,
		"M11 deletions without order":                    testNoOrder,
		"M12 two clusters that were cloned":              testCloned,
		"a rewind whose list did not end":                testRewindForgotten,
		"a rewind that another scope has shown":          testRewoundElsewhere,
		"a rewind that the others have not listed":       testRewoundNoted,
		"deletions of one resource version":              testDeletedTogether,
		"a list in the place of a known commit":          testListAfterPlace,
		"a deletion that was dropped":                    testDropped,
		"objects that expire together":                   testExpired,
		"M13 another object with the same bytes":         testSameBytes,
		"a server that vanishes without a reset":         testVanished,
		"cuts while an outcome is looked up":             testCutLookUp,
		"a list over a watch that is ahead of the log":   testAhead,
		"a list of a publisher that was deposed":         testDeposedList,
		"a database that goes back in a list":            testBackInList,
		"a commit of more rows than are trimmed at once": testTrimLarge,
		"scopes that are trimmed at once":                testTrimOfMany,
		"a scope that its publisher does not publish":    testForeign,
		"marks while the lease is renewed":               testMarksAndRenewals,
		"a list with what cannot be encoded":             testNotEncoded,
		"the log of a database that went back":           testTrimBack,
		"a notification while a watch reads":             testNotifiedReader,
		"a list of a scope that is being dropped":        testListOfDropped,
		"a limit of time that the database sets":         testStatementTimeout,
		"a problem that is not mended yet":               testProblem,
		"a probe that waits for a lock":                  testLockedProbe,
		"a take-over is no sign of life":                 testTakeOverHearsNothing,
		"a scope that is to be published twice":          testSameScope,
		"a scope that two groups name":                   testTwoGroups,
		"a part that is written beside its list":         testPartBesideList,
		"a busy watch whose source is switched":          testSwitchedBusy,
		"the schema of SQL":                              testSchemaOfSQL,
		"a future time is no sign of life":               testFutureTimes,
		"no way back in time from the API server":        testBackFromDirect,
		"no way back in time by a clock that is behind":  testBackByClock,
		"no way back in time after a rewind":             testBackAfterRewind,
		"no way back in time behind a publisher":         testOnlyLags,
		"what was known too long ago":                    testLateClaims,
		"a clock that was behind":                        testClockWasBehind,
		"no way back in time while a list begins":        testBackInPlace,
		"a resource that is not served any more":         testNotServed,
		"a publisher that takes over a silent scope":     testTakesOverSilent,
		"a resource version that stays":                  testSameMark,
	} {
		t.Run(name, func(t *testing.T) { test(newScene(t, dsn)) })
	}
}

// TestSilentOverSleep checks that a publisher whose machine has slept does not answer for
// the time of that.
func TestSilentOverSleep(t *testing.T) {
	p := &publisher{known: map[int64]hearsay{1: {last: clocktest.Stepped(time.Hour)}, 2: {last: time.Now()}}}
	if got := p.silent(); !slices.Equal(got, []int64{1}) {
		t.Errorf("%v are silent, want the first one", got)
	}
}

// TestSilent checks when a publisher says that it hears nothing of the API server.
func TestSilent(t *testing.T) {
	for name, test := range map[string]struct {
		hear func(*sink)
		want time.Duration
	}{
		"down since a take-over": {func(*sink) {}, silentAfter},
		"with bookmarks":         {func(s *sink) { s.bookmarked, s.caught = true, true }, silentAfter},
		"without bookmarks":      {func(s *sink) { s.caught = true }, silentWithoutBookmarks},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &publisher{sinks: map[int64]*sink{}, known: map[int64]hearsay{}}
				s := newSink(&writer{}, modelScope.Kind, 0)
				p.add(1, s)
				test.hear(s)
				<-time.After(test.want)
				if got := p.silent(); len(got) != 0 {
					t.Errorf("the scope is silent after %s", test.want)
				}
				<-time.After(time.Second)
				if got := p.silent(); len(got) != 1 {
					t.Errorf("the scope is not silent after more than %s", test.want)
				}
				p.remove(1, s)
				if got := p.silent(); len(got) != 1 {
					t.Error("the scope is not silent when it is not followed any more")
				}
			})
		})
	}
}

// idleSink is a sink that publishes nothing.
type idleSink struct{ *sink }

func (idleSink) Checkpoint() store.Checkpoint { return store.Checkpoint{} }

func (idleSink) Relist(context.Context, string) (reflector.Relist, error) { return idleRelist{}, nil }

type idleRelist struct{}

func (idleRelist) Add(context.Context, runtime.Object) error    { return nil }
func (idleRelist) Remove(context.Context, runtime.Object) error { return nil }
func (idleRelist) Finish(context.Context, string) error         { return nil }
func (idleRelist) Close() error                                 { return nil }

// TestIdleWithoutBookmarks checks that a collection without changes, of an API server
// that sends no bookmarks, is not taken for one of a server that is gone.
func TestIdleWithoutBookmarks(t *testing.T) {
	for _, noWatchList := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{NoBookmarks: true, NoWatchList: noWatchList})
			p := &publisher{sinks: map[int64]*sink{}, known: map[int64]hearsay{}}
			s := newSink(&writer{}, modelScope.Kind, 0)
			s.phase = unsure // so that nothing is committed
			p.add(1, s)
			r, err := reflector.New(reflector.Options{ListerWatcher: audible{server, s}, Example: &corev1.ConfigMap{}, Kind: modelScope.Kind, Sink: idleSink{s}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var done sync.WaitGroup
			done.Go(func() { r.Run(ctx) })
			defer done.Wait()
			defer cancel()
			for now := time.Duration(0); now < 3*time.Hour; now += time.Minute {
				<-time.After(time.Minute)
				if len(p.silent()) != 0 {
					t.Fatalf("the scope is silent after %s", now)
				}
			}
			server.Down()
			<-time.After(silentWithoutBookmarks + 10*time.Minute)
			if len(p.silent()) != 1 {
				t.Error("the scope is not silent although the API server is gone")
			}
		})
	}
}

// TestAudible checks whose answers are a sign of life, and that a client's word on
// streamed lists is passed on.
func TestAudible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			caught, bookmarked, fails, isHeard bool
		}{
			"without bookmarks":         {caught: true, isHeard: true},
			"without an answer":         {caught: true, fails: true},
			"with bookmarks":            {caught: true, bookmarked: true},
			"not yet caught up with it": {},
		} {
			s := newSink(&writer{}, modelScope.Kind, 0)
			s.caught, s.bookmarked = test.caught, test.bookmarked
			a := audible{&cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					if test.fails {
						return nil, errors.New("failed by the test")
					}
					return &corev1.ConfigMapList{}, nil
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
			}, s}
			<-time.After(time.Minute)
			if _, err := a.WatchWithContext(t.Context(), metav1.ListOptions{}); err != nil || time.Since(s.heard) < time.Minute {
				t.Errorf("%s: a watch is heard, %v", name, err)
			}
			_, _ = a.ListWithContext(t.Context(), metav1.ListOptions{Limit: 1})
			if isHeard := time.Since(s.heard) == 0; isHeard != test.isHeard {
				t.Errorf("%s: a list is heard: %v", name, isHeard)
			}
		}
	})
	if (audible{ListerWatcher: &cache.ListWatch{}}).IsWatchListSemanticsUnSupported() {
		t.Error("a client that streams lists is taken for one that does not")
	}
	if !(audible{ListerWatcher: noStream{}}).IsWatchListSemanticsUnSupported() {
		t.Error("a client that streams no lists is taken for one that does")
	}
}

type noStream struct{ cache.ListerWatcher }

func (noStream) IsWatchListSemanticsUnSupported() bool { return true }

// TestClose checks that a hub can be closed while watches are opened.
func TestClose(t *testing.T) {
	h := newHub(&DB{opts: Options{Poll: time.Hour}})
	var open atomic.Int64
	join := func() {
		w := h.join(1)
		open.Add(1)
		h.parts.Go(func() {
			defer open.Add(-1)
			defer h.leave(1, w)
		})
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				join()
			}
		})
	}
	h.close()
	all.Wait()
	join()
	if n := open.Load(); n != 0 || len(h.waiters) != 0 {
		t.Errorf("%d watches, of %d scopes, are open after the hub was closed", n, len(h.waiters))
	}
}

// TestSQLFindings is TestFindings for what Project writes.
func TestSQLFindings(t *testing.T) {
	pg := pgtest.Start(t) // the schema kube is the database's
	for name, test := range map[string]func(*scene){
		"the deletion of an object that is refused": testRefusedDeletion,
		"a first object that is refused":            testRefusedFirst,
		"an object that an index refuses":           testRefusedByIndex,
		"history that an index refuses":             testRefusedHistory,
		"a table that is gone":                      testTableGone,
		"M14 the kind of typed objects":             testKinds,
		"parts by bytes":                            testProjectedParts,
		"content that a list has found to differ":   testOtherContent,
		"feeds of two schemas":                      testTwoFeeds,
		"a scope that is dropped while it is read":  testComparedDropped,
		"views that are older than the roles":       testViews,
		"a view that is read":                       testReadView,
		"a resource in another version":             testSuperseded,
		"a clock that jumps":                        testClockJumps,
		"a feed that is made anew":                  testMadeAnew,
		"a projector that is younger than the feed": testAsOf,
		"changes while objects are compared":        testComparedChanges,
		"an object that was replaced in a gap":      testReplacedInGap,
		"an object that was created in a gap":       testCreatedInGap,
		"a standby at first":                        testStandbyFirst,
		"schemas that are there":                    testGivenSchemas,
		"tables that are migrated meanwhile":        testMigratedMeanwhile,
	} {
		t.Run(name, func(t *testing.T) { test(newScene(t, pg.DSN())) })
	}
}

func testHole(sc *scene) {
	sc.list(1000, object("a", 900))
	// Z was created at 1010 and deleted at 1030: this publisher has never seen it.
	sc.list(1100, object("a", 900))
	if _, err := sc.watch(sc.follower(FollowOptions{}), 1020); !apierrors.IsResourceExpired(err) {
		sc.Errorf("a watch from 1020 is answered with %v, want a 410", err)
	}
	if _, err := sc.watch(sc.follower(FollowOptions{}), 1000); !apierrors.IsResourceExpired(err) {
		sc.Errorf("a watch from 1000, of another process, is answered with %v, want a 410", err)
	}
	if _, err := sc.watch(sc.follower(FollowOptions{}), 1100); err != nil {
		sc.Errorf("a watch from the list's resource version: %v", err)
	}
	// Who was at the mark is sent the differences.
	lw := sc.follower(FollowOptions{})
	if _, _, err := sc.listed(lw, metav1.ListOptions{}); err != nil {
		sc.Fatal(err)
	}
	sc.list(1200, object("b", 1150))
	events, err := sc.watch(lw, 1100)
	if err != nil {
		sc.Fatal(err)
	}
	var got []string
	for _, e := range events {
		m := e.Object.(*corev1.ConfigMap)
		got = append(got, fmt.Sprint(e.Type, " ", m.Name, "@", m.ResourceVersion))
	}
	want := []string{"DELETED a@1100", "ADDED b@1150", "BOOKMARK @1200"}
	if diff := cmp.Diff(want, got); diff != "" {
		sc.Errorf("differences of a list (-want +got):\n%s", diff)
	}
}

func testLostParts(sc *scene) {
	l := sc.begin(object("a", 1), object("b", 2))
	if err := l.wrote(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	sc.exec("DELETE FROM informctl.object")
	if err := l.Finish(sc.Context(), "10"); !errors.Is(err, errCheck) {
		sc.Errorf("a first list whose objects were lost ends with %v", err)
	}
	_ = l.Close()
	sc.list(10, object("a", 1), object("b", 2))
	l = sc.begin(object("a", 1), object("b", 12))
	if err := l.wrote(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	sc.exec("DELETE FROM informctl.staging")
	if err := l.Finish(sc.Context(), "20"); !errors.Is(err, errCheck) {
		sc.Errorf("a list whose parts were lost ends with %v", err)
	}
	_ = l.Close()
	if _, rv, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); rv != "10" || err != nil {
		sc.Errorf("the database is at %s, %v, want 10", rv, err)
	}
}

func testTwoServers(sc *scene) {
	defer func(d time.Duration) { lagPatience = d }(lagPatience)
	lagPatience = 10 * time.Millisecond
	sc.list(10, object("a", 1))
	w := &watcher{l: sc.follower(FollowOptions{}), id: sc.w.id, pos: anchor{seq: sc.w.end.seq, tx: sc.w.end.tx + 1}, out: make(chan watch.Event, 10)}
	if err := w.sendObjects(sc.Context()); !errors.Is(err, errGone) {
		sc.Errorf("a page of a server without the row that the list began at ends with %v", err)
	}
	w.pos = anchor{seq: sc.w.end.seq + 5, tx: 1}
	if _, err := w.readRows(sc.Context()); !errors.Is(err, errGone) {
		sc.Errorf("rows of a server that lags ends with %v", err)
	}
}

func testDeadTransaction(sc *scene) {
	sc.list(10, object("a", 1))
	conn, err := pgx.Connect(sc.Context(), sc.dsn)
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(sc.Context())) }()
	tx, err := conn.Begin(sc.Context())
	if err == nil {
		_, err = tx.Exec(sc.Context(), "SELECT set_config('application_name', $1, true)", sc.w.session())
	}
	if err == nil {
		_, err = tx.Exec(sc.Context(), sc.db.sql("SELECT FROM informctl.scope WHERE id = $1 FOR SHARE"), sc.w.id)
	}
	if err != nil {
		sc.Fatal(err)
	}
	// A session of another database of the server has the same name.
	name := pgtest.Schema()
	sc.exec("CREATE DATABASE " + name)
	defer sc.exec("DROP DATABASE " + name)
	cfg := conn.Config().Copy()
	cfg.Database = name
	other, err := pgx.ConnectConfig(sc.Context(), cfg)
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = other.Close(context.WithoutCancel(sc.Context())) }()
	otherTx, err := other.Begin(sc.Context())
	if err == nil {
		_, err = otherTx.Exec(sc.Context(), "SELECT set_config('application_name', $1, true)", sc.w.session())
	}
	if err != nil {
		sc.Fatal(err)
	}
	began := time.Now()
	sc.publisher("second")
	if _, err := otherTx.Exec(sc.Context(), "SELECT 1"); err != nil {
		sc.Errorf("the session of another database was ended: %v", err)
	}
	if d := time.Since(began); d > 24*time.Second {
		sc.Errorf("a publisher that was cut off in a transaction kept the other away for %s", d)
	}
}

func testRenewal(sc *scene) {
	sc.list(10, object("a", 1))
	err := pgx.BeginFunc(sc.Context(), sc.db.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(sc.Context(), sc.db.sql("SELECT FROM informctl.scope FOR UPDATE")); err != nil {
			return err
		}
		conn, err := pgx.Connect(sc.Context(), sc.dsn)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(sc.Context()) }()
		l := &lease{db: sc.db, table: sc.db.sql("informctl.lease"), group: "c1", holder: "first", ttl: 6 * time.Second}
		return l.renewOnce(sc.Context(), conn, nil, nil)
	})
	if err != nil {
		sc.Errorf("the lease is not renewed while a list ends: %v", err)
	}
}

func testTwice(sc *scene) {
	sc.list(10, object("a", 1), object("b", 2))
	odd := object("a", 1)
	odd.Data = map[string]string{"odd": "yes"}
	// Differs, is equal again; comes twice; comes and goes.
	l := sc.begin(odd, object("a", 1), object("b", 11), object("b", 12), object("c", 13))
	if err := l.Remove(sc.Context(), object("c", 14)); err != nil {
		sc.Fatal(err)
	}
	if err := l.Finish(sc.Context(), "20"); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	list, err := sc.follower(FollowOptions{}).ListWithContext(sc.Context(), metav1.ListOptions{})
	if err != nil {
		sc.Fatal(err)
	}
	var got []string
	for _, obj := range list.(*metainternalversion.List).Items {
		m := obj.(*corev1.ConfigMap)
		got = append(got, fmt.Sprint(m.Name, "@", m.ResourceVersion, m.Data))
	}
	if diff := cmp.Diff([]string{"a@1map[]", "b@12map[]"}, got); diff != "" {
		sc.Errorf("objects (-want +got):\n%s", diff)
	}
	if n := one[int](sc, "SELECT count(*) FROM informctl.staging"); n != 0 {
		sc.Errorf("%d rows are left in staging", n)
	}
}

func testIdle(sc *scene) {
	sc.list(10)
	sc.exec("UPDATE informctl.lease SET expires = clock_timestamp() + interval '30 seconds'")
	before := one[string](sc, "SELECT xmin::text FROM informctl.lease WHERE grp = 'c1'")
	l := &lease{db: sc.db, table: sc.db.sql("informctl.lease"), group: "c1", holder: "candidate", ttl: 30 * time.Second}
	for range 20 {
		if wait, err := l.try(sc.Context()); err != nil || wait < 10*time.Second {
			sc.Fatalf("a candidate waits %s, %v, want until the lease ends", wait, err)
		}
		if _, err := sc.db.register(sc.Context(), "c1", modelScope); err != nil {
			sc.Fatal(err)
		}
	}
	if after := one[string](sc, "SELECT xmin::text FROM informctl.lease WHERE grp = 'c1'"); after != before {
		sc.Error("a candidate has written to the lease")
	}
	if n := one[int64](sc, "SELECT last_value FROM informctl.scope_id_seq"); n != 1 {
		sc.Errorf("registering a scope again has used %d numbers", n)
	}
	// The marks of scopes without changes are one transaction.
	p := &publisher{db: sc.db, lease: &lease{group: "c1", holder: "first"}, sinks: map[int64]*sink{sc.w.id: sc.s}, known: map[int64]hearsay{}, news: map[int64]struct{}{}, told: make(chan struct{}, 1)}
	for i := range 4 {
		w := &writer{db: sc.db, holder: "first", group: "c1", ttl: 10 * time.Second, scope: modelScope, wrote: func(int64) {}}
		w.scope.Namespace = fmt.Sprintf("n%d", i)
		if err := w.takeOver(sc.Context()); err != nil {
			sc.Fatal(err)
		}
		s := newSink(w, modelScope.Kind, 0)
		s.cancel, s.relist = func(error) {}, func(string) {}
		rl, err := s.Relist(sc.Context(), "")
		if err == nil {
			err = rl.Finish(sc.Context(), "10")
		}
		if err != nil {
			sc.Fatal(err)
		}
		_ = rl.Close()
		p.sinks[w.id] = s
	}
	for _, s := range p.sinks {
		_ = s.Bookmark(sc.Context(), "30")
	}
	p.writeMarks(sc.Context())
	if n := one[string](sc, "SELECT count(*) || ' marks, ' || count(DISTINCT tx) FROM informctl.change WHERE kind = 'B' AND rv = 30"); n != "5 marks, 1" {
		sc.Errorf("%s transactions, want 5 marks in 1", n)
	}
}

func testNotify(sc *scene) {
	// A notification in a commit would arrive in any case. It is sent by the publisher's
	// notifier, which does not run here.
	conn, err := sc.db.hub.listen(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(sc.Context())) }()
	sc.list(10, object("a", 1))
	sc.push(cache.Added, object("b", 11))
	ctx, cancel := context.WithTimeout(sc.Context(), 200*time.Millisecond)
	defer cancel()
	if n, err := conn.WaitForNotification(ctx); err == nil {
		sc.Errorf("a commit notifies: %q", n.Payload)
	}
}

func testStale(sc *scene) {
	sc.list(10, object("a", 1))
	lw := sc.follower(FollowOptions{})
	for what, statement := range map[string]string{
		"the publisher was heard of an hour ago":       "UPDATE informctl.lease SET heard = clock_timestamp() - interval '1 hour'",
		"the API server has told nothing of the scope": fmt.Sprintf("UPDATE informctl.lease SET heard = clock_timestamp(), silent = '{%d}'", sc.w.id),
	} {
		sc.exec(statement)
		if _, _, err := sc.listed(lw, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
			sc.Errorf("%s: a list is answered with %v, want a 503", what, err)
		}
		if _, err := sc.watch(lw, 10); !apierrors.IsServiceUnavailable(err) || !utilnet.IsConnectionRefused(err) {
			sc.Errorf("%s: a watch is answered with %v, want a 503 that client-go's reflector tries again", what, err)
		}
	}
	sc.exec("UPDATE informctl.lease SET heard = clock_timestamp() + interval '1 minute', silent = '{}'")
	sc.exec("UPDATE informctl.version SET version = version + 1")
	if _, err := sc.watch(lw, 10); !apierrors.IsServiceUnavailable(err) || utilnet.IsConnectionRefused(err) {
		sc.Errorf("a watch of tables of another version is answered with %v, want a 503 that is told", err)
	}
	sc.exec("UPDATE informctl.version SET version = version - 1")
	// One that is open ends: with a 429, after which client-go's reflector does not list,
	// unless no waiting helps.
	for statement, is := range map[string]func(error) bool{
		"UPDATE informctl.lease SET heard = clock_timestamp() - interval '1 hour'": apierrors.IsTooManyRequests,
		"UPDATE informctl.version SET version = version + 1":                       apierrors.IsServiceUnavailable,
	} {
		w, err := sc.follower(FollowOptions{MaxStale: time.Second}).WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "10"})
		if err != nil {
			sc.Fatal(err)
		}
		sc.exec(statement)
		select {
		case e := <-w.ResultChan():
			if e.Type != watch.Error || !is(apierrors.FromObject(e.Object)) {
				sc.Errorf("%s: an open watch is sent %v", statement, e)
			}
		case <-time.After(20 * time.Second):
			sc.Errorf("%s: an open watch does not end", statement)
		}
		w.Stop()
		sc.exec("UPDATE informctl.lease SET heard = clock_timestamp() + interval '1 minute'")
		sc.exec("UPDATE informctl.version SET version = 1")
	}
	// A watch from what the database does not have yet waits.
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "15", AllowWatchBookmarks: true})
	if err != nil {
		sc.Fatal(err)
	}
	sc.push(cache.Added, object("b", 12))
	sc.push(cache.Added, object("c", 16))
	events := sc.read(w.(*watcher))
	if len(events) == 0 || events[0].Object.(*corev1.ConfigMap).Name != "c" {
		sc.Errorf("a watch from 15 is sent %v, want c first, which is of 16", events)
	}
}

func testBack(sc *scene) {
	sc.list(1000, object("a", 900))
	lw := sc.follower(FollowOptions{})
	yes := true
	if _, _, err := sc.listed(lw, metav1.ListOptions{ResourceVersion: "1050"}); !apierrors.IsTimeout(err) {
		sc.Errorf("a list of 1050 is answered with %v, want a 504", err)
	}
	if _, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "1050", SendInitialEvents: &yes}); !apierrors.IsTimeout(err) {
		sc.Errorf("initial events of 1050 are answered with %v, want a 504", err)
	}
	if _, _, err := sc.listed(lw, metav1.ListOptions{ResourceVersion: "1000", ResourceVersionMatch: metav1.ResourceVersionMatchExact}); !apierrors.IsBadRequest(err) {
		sc.Errorf("a list of exactly 1000 is answered with %v, want a 400", err)
	}
	if _, _, err := sc.listed(lw, metav1.ListOptions{ResourceVersion: "x"}); !apierrors.IsBadRequest(err) {
		sc.Errorf("a list of x is answered with %v, want a 400", err)
	}
	sc.push(cache.Added, object("b", 1050))
	if _, err := sc.watch(lw, 1000); err != nil {
		sc.Fatal(err)
	}
	// A failover has lost the commit.
	sc.exec("DELETE FROM informctl.change WHERE rv = 1050")
	if _, _, err := sc.listed(lw, metav1.ListOptions{}); !apierrors.IsTimeout(err) {
		sc.Errorf("after a failover a list is answered with %v, want a 504", err)
	}
	held := sc.follower(FollowOptions{Held: func() string { return "1050" }})
	if _, _, err := sc.listed(held, metav1.ListOptions{}); !apierrors.IsTimeout(err) {
		sc.Errorf("an informer whose file has 1050 is answered with %v, want a 504", err)
	}
}

func testBothRestored(sc *scene) {
	defer func(d time.Duration) { rewoundAfter = d }(rewoundAfter)
	rewoundAfter = 0
	sc.list(1000, object("a", 900))
	held := "1500"
	lw := sc.follower(FollowOptions{Held: func() string { return held }})
	if _, err := sc.watch(lw, 1500); !apierrors.IsTimeout(err) {
		sc.Errorf("a watch from 1500 is answered with %v, want a 504", err)
	}
	sc.mark(1010) // of a publisher that may still be behind
	if _, err := sc.watch(lw, 1500); !apierrors.IsTimeout(err) {
		sc.Errorf("a watch from 1500 is answered with %v, want a 504", err)
	}
	sc.s.caught = true
	sc.mark(1020)
	if _, err := sc.watch(lw, 1500); !apierrors.IsResourceExpired(err) {
		sc.Errorf("a watch from 1500 is answered with %v, want a 410: the publisher has caught up at 1020", err)
	}
	if _, rv, err := sc.listed(lw, metav1.ListOptions{}); err != nil || rv != "1020" {
		sc.Errorf("the list after it is of %s, %v", rv, err)
	}
	held = "1020"
	sc.push(cache.Added, object("b", 1100))
	if got, err := sc.watch(lw, 1020); err != nil || len(got) == 0 {
		sc.Errorf("a watch from the list: %v, %v", got, err)
	}
	held = "1100"
	sc.exec("DELETE FROM informctl.change WHERE rv = 1100")
	if _, _, err := sc.listed(lw, metav1.ListOptions{}); !apierrors.IsTimeout(err) {
		sc.Errorf("a list of a database that has gone back before 1100 is answered with %v, want a 504", err)
	}
}

// testBothPassed checks a follower that comes back when the database and the API server
// have both gone back and have reached its resource version again, with another object.
func testBothPassed(sc *scene) {
	for _, relisted := range []bool{false, true} {
		sc := newScene(sc.T, sc.dsn)
		sc.list(1000, object("a", 900))
		lw := sc.follower(FollowOptions{})
		w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "1000"})
		if err != nil {
			sc.Fatal(err)
		}
		sc.push(cache.Added, object("b", 1010))
		if got := sc.read(w.(*watcher)); len(got) != 1 {
			sc.Fatalf("the watch has sent %v", got)
		}
		sc.exec("DELETE FROM informctl.change WHERE rv = 1010")
		sc.exec("DELETE FROM informctl.object WHERE rv = 1010")
		sc.w, sc.s = sc.publisher("second")
		if relisted {
			sc.list(1005)
		}
		sc.push(cache.Added, object("c", 1010))
		if _, err := sc.watch(lw, 1010); !apierrors.IsResourceExpired(err) {
			sc.Errorf("with a list of the API server since (%v), a watch from 1010 is answered with %v", relisted, err)
		}
		if _, rv, err := sc.listed(lw, metav1.ListOptions{}); err != nil || rv != "1010" {
			sc.Errorf("the list after it is of %s, %v", rv, err)
		}
		if _, err := sc.watch(lw, 1010); err != nil {
			sc.Errorf("a watch from the list is answered with %v", err)
		}
	}
}

// testLostRows checks that a follower goes on without a list when the publisher has
// written again what a failover has lost, also if it has listed before.
func testLostRows(sc *scene) {
	sc.list(1000, object("a", 900))
	lw := sc.follower(FollowOptions{})
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "1000", AllowWatchBookmarks: true})
	if err != nil {
		sc.Fatal(err)
	}
	sc.list(1050, object("a", 900), object("b", 1040))
	sc.push(cache.Added, object("c", 1100))
	sc.mark(1200)
	if got := sc.read(w.(*watcher)); len(got) != 5 {
		sc.Fatalf("the watch has sent %v", got)
	}
	for _, lost := range []int{1200, 1100} {
		sc.exec("DELETE FROM informctl.change WHERE rv >= $1", lost)
		sc.exec("DELETE FROM informctl.object WHERE rv >= $1", lost)
		sc.w, sc.s = sc.publisher("second")
		if lost == 1100 {
			sc.push(cache.Added, object("c", 1100))
		}
		sc.mark(1200)
		if got, err := sc.watch(lw, 1200); err != nil || len(got) != 0 {
			sc.Errorf("after what was lost from %d on was written again, a watch from 1200 is answered with %v, %v", lost, got, err)
		}
	}
}

func testUnknownFields(sc *scene) {
	data := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"default","uid":"u","resourceVersion":"5"},"fromTheFuture":{"x":[1,2]}}`
	o, err := raw.Decode([]byte(data))
	if err != nil {
		sc.Fatal(err)
	}
	l := sc.begin()
	if err := errors.Join(l.Add(sc.Context(), o), l.Finish(sc.Context(), "10")); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	scope := modelScope
	scope.Form = store.Unstructured
	lw, err := sc.db.ListerWatcher(scope, &unstructured.Unstructured{}, FollowOptions{})
	if err != nil {
		sc.Fatal(err)
	}
	list, err := lw.ListWithContext(sc.Context(), metav1.ListOptions{})
	if err != nil {
		sc.Fatal(err)
	}
	got, found, _ := unstructured.NestedFieldNoCopy(list.(*metainternalversion.List).Items[0].(*unstructured.Unstructured).Object, "fromTheFuture", "x")
	if !found {
		sc.Errorf("a field that this program does not know is lost: %v", got)
	}
	if n := one[int](sc, "SELECT count(*) FROM informctl.scope"); n != 1 {
		sc.Errorf("%d scopes for one resource", n)
	}
}

func testOddNames(sc *scene) {
	names := []string{strings.Repeat("long", 800), "nul-\x00", "quote-'\"", "é", strings.Repeat("x", maxKey) + "-1", strings.Repeat("x", maxKey) + "-2"}
	var objects []*corev1.ConfigMap
	for i, name := range names {
		objects = append(objects, object(name, int64(i+1), fmt.Sprint("u", i)))
	}
	sc.list(10, objects...)
	for i, name := range names {
		sc.push(cache.Updated, object(name, int64(i+11), fmt.Sprint("u", i)))
	}
	got, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{})
	slices.Sort(got)
	slices.Sort(names)
	if diff := cmp.Diff(names, got); diff != "" || err != nil {
		sc.Errorf("names (-want +got), %v:\n%s", err, diff)
	}
}

func testRoles(sc *scene) {
	for dsn, isRefused := range map[string]bool{
		"host=db.example.com sslmode=disable":     true,
		"host=db.example.com sslmode=prefer":      true,
		"host=db.example.com sslmode=require":     true,
		"host=db.example.com sslmode=verify-full": false,
		"host=127.0.0.1 sslmode=disable":          false,
		"host=/run/postgresql":                    false,
	} {
		if _, err := parse(dsn, Options{}); (err != nil) != isRefused {
			sc.Errorf("%s: %v", dsn, err)
		}
		if _, err := parse(dsn, Options{AllowUnverifiedTLS: true}); err != nil {
			sc.Errorf("%s, which is allowed: %v", dsn, err)
		}
	}
	if _, err := sc.db.ListerWatcher(store.Scope{Resource: "secrets", Kind: corev1.SchemeGroupVersion.WithKind("Secret")}, &corev1.Secret{}, FollowOptions{}); !errors.Is(err, ErrSecrets) {
		sc.Errorf("following Secrets: %v", err)
	}
	if _, err := NewCollection(nil, store.Scope{Resource: "secrets", Kind: corev1.SchemeGroupVersion.WithKind("Secret")}); !errors.Is(err, ErrSecrets) {
		sc.Errorf("publishing Secrets: %v", err)
	}
	sc.list(10, object("a", 1))
	schema := sc.db.opts.Schema
	sc.exec(Grants(schema), pgx.QueryExecModeSimpleProtocol)
	sc.Cleanup(func() {
		for _, role := range []string{schema + "_publisher", schema + "_follower"} {
			_, err := sc.db.pool.Exec(context.WithoutCancel(sc.Context()), "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol)
			if err != nil {
				sc.Error(err)
			}
		}
	})
	as := func(role, statement string) error {
		return pgx.BeginFunc(sc.Context(), sc.db.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(sc.Context(), "SET LOCAL ROLE "+pgx.Identifier{schema + role}.Sanitize()); err != nil {
				return err
			}
			_, err := tx.Exec(sc.Context(), sc.db.sql(statement))
			return err
		})
	}
	for _, statement := range []string{
		"UPDATE informctl.scope SET above = above", "DELETE FROM informctl.change WHERE false", "DELETE FROM informctl.object WHERE false",
		"UPDATE informctl.lease SET holder = holder", "SELECT FROM informctl.staging",
	} {
		if err := as("_publisher", statement); err != nil {
			sc.Errorf("a publisher: %s: %v", statement, err)
		}
		if err := as("_follower", statement); codeOf(err) != noPrivilege {
			sc.Errorf("a follower may: %s: %v", statement, err)
		}
	}
	for _, table := range []string{"version", "lease", "scope", "object", "change"} {
		if err := as("_follower", "SELECT FROM informctl."+table); err != nil {
			sc.Errorf("a follower may not read %s: %v", table, err)
		}
	}
	if err := as("_publisher", "CREATE TABLE informctl.mine ()"); codeOf(err) != noPrivilege {
		sc.Errorf("a publisher may make tables: %v", err)
	}
}

func testPages(sc *scene) {
	defer func(n int) { pageBytes = n }(pageBytes)
	pageBytes = 1 << 20
	sc.list(5)
	noise := rand.NewChaCha8([32]byte{})
	for i := range 8 {
		obj := object(fmt.Sprint("n", i), int64(10+i))
		b := make([]byte, 400<<10)
		_, _ = noise.Read(b)
		obj.BinaryData = map[string][]byte{"b": b}
		sc.push(cache.Added, obj)
	}
	w := &watcher{l: sc.follower(FollowOptions{}), id: sc.w.id, pos: anchor{seq: 1, tx: one[int64](sc, "SELECT tx FROM informctl.change WHERE seq = 1")}}
	page, _, _, err := w.page(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	few, err := w.few(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	for what, items := range map[string][]logRow{"page": page, "page of a watch that is not behind": few} {
		size := 0
		for _, it := range items {
			size += len(it.data)
		}
		if size > pageBytes+500<<10 || size == 0 {
			sc.Errorf("a %s has %d bytes, want %d and one object at most", what, size, pageBytes)
		}
	}
	w.pos = anchor{seq: 2, tx: one[int64](sc, "SELECT tx FROM informctl.change WHERE seq = 2")}
	pageBytes = 1 << 10 // less than the row at pos has
	if items, err := w.few(sc.Context()); err != nil || len(items) < 2 {
		sc.Errorf("behind a large row %d rows are read, %v", len(items), err)
	}
	pageBytes = 1 << 20
	bomb := compressor().EncodeAll(make([]byte, 100<<20), nil)
	if _, err := w.l.decoder.decode(raw.JSON, bomb); err == nil {
		sc.Errorf("%d bytes that are 100 MiB are decompressed", len(bomb))
	}
	if events, err := sc.watch(sc.follower(FollowOptions{}), 5); err != nil || len(events) < 8 {
		sc.Errorf("a watch over several pages is sent %d events, %v", len(events), err)
	}
}

func testNoJSONB(sc *scene) {
	if n := one[int](sc, "SELECT count(*) FROM information_schema.columns WHERE table_schema = $1 AND data_type LIKE 'json%'", sc.db.opts.Schema); n != 0 {
		sc.Errorf("%d columns of the feed are JSON, which indexes and triggers of others could stop", n)
	}
}

func testWhose(sc *scene) {
	sc.list(10, object("a", 1))
	end := sc.w.end
	// Another history has a row with the same number and resource version.
	sc.exec("UPDATE informctl.change SET tx = tx + 1 WHERE seq = $1", end.seq)
	there, err := sc.w.isThere(sc.Context(), end)
	if err != nil || there {
		sc.Errorf("a row of another transaction is taken for its own: %v", err)
	}
	if err := sc.w.append(sc.Context(), nil, 20, ""); !errors.Is(err, errMoved) {
		sc.Errorf("a commit after it: %v", err)
	}
}

func testClock(sc *scene) {
	l := &lease{db: sc.db, table: sc.db.sql("informctl.lease"), group: "c1", holder: "next", ttl: 10 * time.Second}
	// A holder with a longer TTL.
	sc.exec("UPDATE informctl.lease SET expires = clock_timestamp() + interval '1 hour', heard = clock_timestamp()")
	if wait, err := l.try(sc.Context()); wait != l.ttl || err != nil {
		sc.Errorf("a lease that was renewed for an hour makes others wait %s, %v, want that they ask again after %s", wait, err, l.ttl)
	}
	// By the clock before the failover.
	sc.exec("UPDATE informctl.lease SET heard = expires")
	if wait, err := l.try(sc.Context()); wait != 0 || err != nil {
		sc.Errorf("a lease that was renewed in an hour makes others wait %s, %v", wait, err)
	}
	if wait, err := (&lease{db: sc.db, table: l.table, group: "c1", holder: "third", ttl: l.ttl}).try(sc.Context()); wait == 0 || err != nil {
		sc.Errorf("a lease that was just taken is taken again: %s, %v", wait, err)
	}
	l.release(sc.Context())
	if wait, err := (&lease{db: sc.db, table: l.table, group: "c1", holder: "third", ttl: l.ttl}).try(sc.Context()); wait != 0 || err != nil {
		sc.Errorf("a lease that was given back makes others wait %s, %v", wait, err)
	}
}

func testTriedAgain(sc *scene) {
	// Is refused, is of the server.
	for code, want := range map[string][2]bool{
		"40001": {}, "40P01": {}, "55P03": {}, "53100": {}, "23505": {},
		"25006": {false, true}, "57P01": {false, true}, "57P03": {false, true}, "08006": {false, true},
		"21000": {true}, "22021": {true}, "23514": {true}, "42501": {true}, "54000": {true},
	} {
		err := fmt.Errorf("commit: %w", &pgconn.PgError{Code: code})
		if got := [2]bool{isRefused(err), isOfServer(err)}; got != want {
			sc.Errorf("%s: refused, of the server: %v, want %v", code, got, want)
		}
	}
}

// TestIsUnreachable checks which errors of Open are worth another try.
func TestIsUnreachable(t *testing.T) {
	for what, err := range map[string]error{
		"it starts":            &pgconn.PgError{Code: "57P03"},
		"too many connections": &pgconn.PgError{Code: "53300"},
		"a cut":                io.ErrUnexpectedEOF,
	} {
		if !IsUnreachable(fmt.Errorf("open: %w", err)) {
			t.Errorf("%s is final", what)
		}
	}
	for what, err := range map[string]error{
		"a password":    &pgconn.PgError{Code: "28P01"},
		"a certificate": &tls.CertificateVerificationError{Err: errors.New("unknown authority")},
		"an authority":  x509.UnknownAuthorityError{},
		"one of ours":   &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")},
		"the tables":    ErrSchema,
	} {
		if IsUnreachable(fmt.Errorf("open: %w", err)) {
			t.Errorf("%s is tried again", what)
		}
	}
}

func testVersion(sc *scene) {
	sc.list(10, object("a", 1))
	sc.exec("UPDATE informctl.version SET version = 2")
	if err := sc.w.append(sc.Context(), nil, 20, ""); !errors.Is(err, ErrSchema) {
		sc.Errorf("a commit: %v", err)
	}
	if _, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a list: %v", err)
	}
	opts := Options{Schema: sc.db.opts.Schema}
	if _, err := Open(sc.Context(), sc.dsn, opts); !errors.Is(err, ErrSchema) {
		sc.Errorf("Open: %v", err)
	}
	if err := Migrate(sc.Context(), sc.dsn, opts); !errors.Is(err, ErrSchema) {
		sc.Errorf("Migrate: %v", err)
	}
	sc.exec("UPDATE informctl.version SET version = 1")
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := Migrate(context.WithoutCancel(sc.Context()), sc.dsn, opts); err != nil {
				sc.Errorf("Migrate again: %v", err)
			}
		})
	}
	all.Wait()
}

func testIndex(sc *scene) {
	sc.list(1)
	sc.exec(`INSERT INTO informctl.change (scope, seq, kind, rv, tx, caught, bytes)
		SELECT $1, 1 + n, CASE WHEN n % 50 = 0 THEN 'B' ELSE 'M' END, 1 + n, 1, true, 0 FROM generate_series(1, 50000) n`, sc.w.id)
	sc.exec("ANALYZE informctl.change")
	rows, err := sc.db.pool.Query(sc.Context(), sc.db.sql(`EXPLAIN SELECT seq, rv, tx FROM informctl.change
		WHERE scope = $1 AND kind = 'B' AND rv <= $2 AND seq > 0 ORDER BY rv DESC, seq DESC LIMIT 1`), sc.w.id, 25000)
	if err != nil {
		sc.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !strings.Contains(strings.Join(plan, "\n"), "change_marks") {
		sc.Errorf("the place of a watch is found without the index of the marks: %v\n%s", err, strings.Join(plan, "\n"))
	}
}

func testDrop(sc *scene) {
	sc.list(10, object("a", 1))
	if err := sc.db.Drop(sc.Context(), sc.w.id+1); err == nil {
		sc.Error("a scope that there is not is dropped")
	}
	if err := sc.db.Drop(sc.Context(), sc.w.id); err != nil {
		sc.Fatal(err)
	}
	if n := one[int](sc, "SELECT (SELECT count(*) FROM informctl.object) + (SELECT count(*) FROM informctl.change)"); n != 0 {
		sc.Errorf("%d rows are left", n)
	}
	if _, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a list: %v", err)
	}
	if err := sc.w.append(sc.Context(), nil, 20, ""); !errors.Is(err, errFenced) {
		sc.Errorf("a commit: %v", err)
	}
}

func testTableOptions(sc *scene) {
	if n := one[int](sc, `SELECT count(*) FROM pg_class WHERE relnamespace = $1::regnamespace AND relname IN ('object', 'change')
		AND 'vacuum_truncate=false' = ANY (reloptions)`, sc.db.opts.Schema); n != 2 {
		sc.Errorf("%d of 2 tables are never truncated by vacuum, whose lock cancels reads", n)
	}
}

func testNoOrder(sc *scene) {
	sc.list(10, object("a", 1))
	var failed error
	sc.s.cancel = func(err error) { failed = err }
	for i := range maxDisorder {
		sc.drop(object("a", 1), "")
		if i < maxDisorder-1 {
			sc.list(int64(20+i), object("a", 1))
		}
	}
	if !errors.Is(failed, errNoOrder) {
		sc.Errorf("deletions with the resource version of the state before: %v", failed)
	}
	sc.w, sc.s = sc.publisher("second")
	if cp := sc.s.Checkpoint(); cp.RV != "" {
		sc.Errorf("the next publisher begins at %s, without the last deletion", cp.RV)
	}
	sc.list(40, object("a", 30))
	sc.mark(50)
	sc.drop(object("a", 50), "50")
	if sc.s.phase != unsure {
		sc.Errorf("a deletion at the resource version of the mark before is taken: phase %d", sc.s.phase)
	}
}

// drop pushes a deletion that has no place in the order, and commits.
func (sc *scene) drop(obj *corev1.ConfigMap, rv string) {
	sc.Helper()
	err := sc.s.Push(sc.Context(), cache.Deleted, obj, rv)
	if err == nil {
		err = sc.s.commit(sc.Context())
	}
	if err != nil {
		sc.Fatal(err)
	}
}

func testExpired(sc *scene) {
	defer func(d time.Duration) { settleTime = d }(settleTime)
	settleTime = 5 * time.Second
	sc.list(10, object("a", 1), object("b", 2), object("c", 3), object("d", 4))
	sc.s.relist = func(reason string) { sc.Errorf("a list: %s", reason) }
	ctx, cancel := context.WithCancelCause(sc.Context())
	var done sync.WaitGroup
	done.Go(func() { sc.s.run(ctx) })
	for _, name := range []string{"a", "b", "c"} {
		if err := sc.s.Push(sc.Context(), cache.Deleted, object(name, 20), "20"); err != nil {
			sc.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
	for range 3000 {
		if one[int](sc, "SELECT count(*) FROM informctl.object") == 1 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	cancel(context.Canceled)
	done.Wait()
	got := one[[]string](sc, "SELECT array_agg(kind || coalesce(name, '') || '@' || rv ORDER BY seq) FROM informctl.change WHERE seq > 1")
	if diff := cmp.Diff([]string{"Da@20", "Db@20", "Dc@20", "B@20"}, got); diff != "" {
		sc.Errorf("the log (-want +got):\n%s", diff)
	}
	sc.w, sc.s = sc.publisher("second")
	sc.drop(object("d", 20), "20")
	if sc.s.phase != unsure {
		sc.Error("a deletion is taken at a resource version that a mark has said to be complete")
	}
}

func testDropped(sc *scene) {
	defer func(d time.Duration) { firstWait = d }(firstWait)
	firstWait = time.Millisecond
	f := &faults{}
	sc.w.db = newModelDB(sc.Context(), sc, sc.dsn, sc.db.opts.Schema, f)
	defer func() { _ = sc.w.db.Close() }()
	sc.list(10, object("a", 1), object("b", 2))
	lw := sc.follower(FollowOptions{})
	isKnown := func(when string, want bool) {
		sc.Helper()
		if _, _, err := sc.listed(lw, metav1.ListOptions{}); apierrors.IsServiceUnavailable(err) != want {
			sc.Errorf("%s, a list is answered with %v", when, err)
		}
		if _, s := sc.publisher("first"); (s.Checkpoint().RV == "") != want {
			sc.Errorf("%s, another publisher begins at %q", when, s.Checkpoint().RV)
		}
		sc.exec("UPDATE informctl.scope SET epoch = $1", sc.w.epoch) // it has not been
	}
	isKnown("before a deletion was dropped", false)
	wasKnown := false
	sc.s.relist = func(string) { wasKnown = one[bool](sc, "SELECT problem <> '' FROM informctl.scope") }
	if err := sc.s.Push(sc.Context(), cache.Added, object("c", 12), "12"); err != nil {
		sc.Fatal(err)
	}
	sc.drop(object("a", 1), "")
	if !wasKnown {
		sc.Error("the list is asked for before the database knows that it is needed")
	}
	isKnown("when a deletion was dropped", true)
	if n := one[int](sc, "SELECT count(*) FROM informctl.object"); n != 3 {
		sc.Errorf("%d objects, want those that were pushed before it, too", n)
	}
	// The first statement of the list is cut.
	f.left.Store(2)
	l := sc.begin(object("b", 2), object("c", 12))
	isKnown("while a list is in progress", true)
	if err := l.Finish(sc.Context(), "20"); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	isKnown("after the list", false)
}

func testVanished(sc *scene) {
	defer func(a, b time.Duration) { deadline, firstWait = a, b }(deadline, firstWait)
	deadline, firstWait = 2*time.Second, time.Millisecond
	f := &faults{}
	sc.w.db = newModelDB(sc.Context(), sc, sc.dsn, sc.db.opts.Schema, f)
	defer func() { _ = sc.w.db.Close() }()
	sc.list(10, object("a", 1))
	if err := sc.s.Push(sc.Context(), cache.Added, object("b", 11), "11"); err != nil {
		sc.Fatal(err)
	}
	f.mute.Store(true)
	committed := make(chan error, 1)
	go func() { committed <- sc.s.commit(sc.Context()) }()
	<-time.After(3 * time.Second)
	f.mute.Store(false) // the next connections are to another server
	select {
	case err := <-committed:
		if err != nil {
			sc.Errorf("a commit to a server that vanishes: %v", err)
		}
	case <-time.After(60 * time.Second):
		sc.Fatal("a commit waits for a server that has vanished")
	}
	if _, rv, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); rv != "11" || err != nil {
		sc.Errorf("the database is at %s, %v, want 11", rv, err)
	}
}

func testCutLookUp(sc *scene) {
	defer func(d time.Duration) { firstWait = d }(firstWait)
	firstWait = time.Millisecond
	f := &faults{}
	db := newModelDB(sc.Context(), sc, sc.dsn, sc.db.opts.Schema, f)
	defer func() { _ = db.Close() }()
	sc.list(10)
	sc.w.db = db
	for _, sends := range []bool{false, true} {
		f.sends.Store(sends)
		// A connection is made and a look-up ends within so many writes. What is cut is
		// done again on a new connection, and cut at the same write.
		for n := range int64(9) {
			const cuts = 4
			left := cuts
			again := func() {
				if left--; left > 0 {
					f.left.Store(n + 1)
				}
			}
			f.onCut.Store(&again)
			f.left.Store(3) // BEGIN, the statements, COMMIT
			if err := sc.w.append(sc.Context(), nil, sc.w.end.rv+1, ""); err != nil {
				sc.Fatalf("a commit that is cut, as are %d look-ups at write %d, sent: %v: %v", cuts-1, n+1, sends, err)
			}
			f.left.Store(-1)
			if n := one[int64](sc, "SELECT max(seq) FROM informctl.change"); n != sc.w.end.seq {
				sc.Fatalf("the log ends at %d, want %d", n, sc.w.end.seq)
			}
		}
	}
}

func testAhead(sc *scene) {
	sc.list(1000, object("a", 900), object("x", 950))
	lw := sc.follower(FollowOptions{})
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "1020", AllowWatchBookmarks: true})
	if err != nil {
		sc.Fatal(err)
	}
	sc.list(1100, object("a", 900)) // x was deleted at 1050
	for e := range w.ResultChan() {
		if e.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
			return
		}
		sc.Errorf("a watch from 1020 is sent %v", e)
		w.Stop()
	}
	sc.Error("a watch from 1020 does not end with a 410 after a list of 1100")
}

func testDeposedList(sc *scene) {
	l := sc.begin(object("a", 1))
	sc.w, sc.s = sc.publisher("second")
	sc.list(10, object("a", 1), object("b", 2))
	if err := l.wrote(sc.Context()); !errors.Is(err, errFenced) {
		sc.Errorf("a part of a publisher that was deposed: %v", err)
	}
	l.w.complete = false
	if _, err := l.w.newRelist(sc.Context(), l.s, "again"); !errors.Is(err, errFenced) {
		sc.Errorf("a list of a publisher that was deposed: %v", err)
	}
	if n := one[int](sc, "SELECT count(*) FROM informctl.object"); n != 2 {
		sc.Errorf("%d objects are left of 2", n)
	}
}

func testBackInList(sc *scene) {
	sc.list(10, object("a", 1))
	sc.push(cache.Added, object("b", 11))
	l := sc.begin(object("a", 1), object("c", 12))
	sc.exec("DELETE FROM informctl.change WHERE seq = $1", sc.w.end.seq)
	var failed error
	sc.s.cancel = func(err error) { failed = err }
	if err := l.Finish(sc.Context(), "20"); !errors.Is(err, errMoved) || !errors.Is(failed, errMoved) {
		sc.Errorf("a list over a failover ends with %v, and the scope with %v: it would list for ever", err, failed)
	}
	if _, err := l.w.newRelist(sc.Context(), l.s, "again"); !errors.Is(err, errMoved) {
		sc.Errorf("a list is compared with what the database has after a failover: %v", err)
	}
}

func testTrimLarge(sc *scene) {
	sc.list(1)
	sc.exec(`INSERT INTO informctl.change (scope, seq, kind, rv, tx, caught, bytes)
		SELECT $1, 1 + n, CASE WHEN n % 3000 = 0 THEN 'B' ELSE 'M' END, 1 + n, 1, true, n * 1000 FROM generate_series(1, 12000) n`, sc.w.id)
	floor := int64(0)
	for range 10 {
		var err error
		if floor, err = sc.db.trimPart(sc.Context(), sc.w.id, floor, PublishOptions{KeepAge: time.Hour, KeepBytes: 1}); err != nil {
			sc.Fatal(err)
		}
	}
	if n := one[int](sc, "SELECT count(*) FROM informctl.change"); n > 3001 {
		sc.Errorf("%d rows are left", n)
	}
}

func testForeign(sc *scene) {
	sc.list(10, object("a", 1))
	sc.exec("UPDATE informctl.lease SET holder = 'of other resources'")
	if _, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); err != nil {
		sc.Errorf("a list right after a take-over: %v", err)
	}
	sc.exec("UPDATE informctl.change SET at = clock_timestamp() - interval '1 hour'")
	if _, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a list of what nobody publishes any more: %v", err)
	}
	sc.exec("UPDATE informctl.lease SET holder = 'first'")
	sc.exec("UPDATE informctl.scope SET problem = 'refused'")
	if _, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a list of what cannot be published: %v", err)
	}
}

func testNotServed(sc *scene) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := func(of string) metav1.GroupVersionForDiscovery {
			return metav1.GroupVersionForDiscovery{GroupVersion: of + "/v1", Version: "v1"}
		}
		var answer any
		switch r.URL.Path {
		case "/apis":
			answer = metav1.APIGroupList{Groups: []metav1.APIGroup{
				{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{version("example.com")}},
			}}
		case "/apis/example.com/v1":
			answer = metav1.APIResourceList{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "widgets"}}}
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	sc.list(10, object("a", 1))
	lost := func(resource string) error {
		sc.s.w.scope.Resource = resource
		sc.s.gone = goneFrom(&rest.Config{Host: server.URL}, schema.ParseGroupResource(resource))
		l, err := sc.s.Relist(sc.Context(), reflector.NoResource)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }()
		return l.Finish(sc.Context(), "")
	}
	for resource, want := range map[string]string{
		"leases.coordination.k8s.io": "its objects may still exist",
		"widgets.example.com":        "is served in example.com/v1",
	} {
		if err := lost(resource); err == nil || !strings.Contains(err.Error(), want) {
			sc.Errorf("%s: %v, want that %s", resource, err, want)
		}
	}
	if n := one[int](sc, "SELECT count(*) FROM informctl.object"); n != 1 {
		sc.Errorf("%d objects of resources that may be served, want 1", n)
	}
	if err := lost("gadgets.example.com"); err != nil {
		sc.Error(err)
	}
	if n := one[int](sc, "SELECT count(*) FROM informctl.object"); n != 0 {
		sc.Errorf("%d objects of a resource that is gone", n)
	}
	// It is still not served when the publisher asks again.
	long := time.Now().Add(-2 * silentAfter)
	sc.s.heard, sc.s.marked = long, long
	sc.s.hearAbsence()
	if _, due := sc.s.takeMark(); !due || sc.s.lastHeard().last.Equal(long) {
		sc.Error("the answer that the resource is not served is no sign of life: followers are refused, and hear of no deletion")
	}
}

func testTakesOverSilent(sc *scene) {
	sc.list(10, object("a", 1))
	sc.exec("UPDATE informctl.change SET at = at - interval '1 hour'")
	sc.publisher("second") // it has heard nothing yet
	conn, err := pgx.Connect(sc.Context(), sc.dsn)
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(sc.Context())) }()
	l := &lease{db: sc.db, table: sc.db.sql("informctl.lease"), group: "c1", holder: "second", ttl: 6 * time.Second}
	for _, test := range []struct {
		silent, known []int64
		isServed      bool
	}{{nil, nil, false}, {[]int64{sc.w.id}, []int64{sc.w.id}, false}, {nil, []int64{sc.w.id}, true}} {
		if err := l.renewOnce(sc.Context(), conn, test.silent, test.known); err != nil {
			sc.Fatal(err)
		}
		_, _, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{})
		if (err == nil) != test.isServed || err != nil && !apierrors.IsServiceUnavailable(err) {
			sc.Errorf("silent are %v of %v: a list is answered with %v", test.silent, test.known, err)
		}
	}
	sc.publisher("third") // of the same mark
	if n := one[int](sc, "SELECT cardinality(silent) FROM informctl.lease"); n != 1 {
		sc.Errorf("%d scopes are silent of one whose mark is old", n)
	}
}

func testSameMark(sc *scene) {
	sc.list(10, object("a", 1))
	due := func(age time.Duration) bool {
		sc.s.marked = time.Now().Add(-age)
		_ = sc.s.Bookmark(sc.Context(), "10")
		_, due := sc.s.takeMark()
		return due
	}
	if due(sameMarkEvery / 2) {
		sc.Error("a mark at the same resource version is due at once")
	}
	if !due(sameMarkEvery) {
		sc.Error("no mark is due after a minute of the same resource version: what is published seems to be old")
	}
}

func testSameBytes(sc *scene) {
	before, after := newHeader(sc, object("a", 1)), newHeader(sc, object("a", 1, "other"))
	after.hash = before.hash
	r := row{uid: after.uid, rv: after.rv, hash: after.hash}
	if before.isSame(&r) {
		sc.Error("an object with another UID is taken for the same")
	}
}

func newHeader(sc *scene, obj *corev1.ConfigMap) header {
	sc.Helper()
	r, err := newRow(added, modelScope.Kind, obj)
	if err != nil {
		sc.Fatal(err)
	}
	return header{uid: r.uid, rv: r.rv, hash: r.hash}
}

func testMarksAndRenewals(sc *scene) {
	sc.list(10, object("a", 1))
	p := &publisher{sinks: map[int64]*sink{}, known: map[int64]hearsay{}, news: map[int64]struct{}{}, told: make(chan struct{}, 1)}
	p.add(sc.w.id, sc.s)
	sc.w.wrote = p.committed
	var all sync.WaitGroup
	all.Go(func() {
		for range 20_000 {
			sc.s.markWritten(true, commit{end: sc.w.end})
		}
	})
	all.Go(func() {
		for range 20_000 {
			p.silent()
		}
	})
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	select {
	case <-ended:
	case <-time.After(60 * time.Second):
		sc.Fatal("a mark and a renewal of the lease wait for each other")
	}
}

func testRefusedDeletion(sc *scene) {
	p := sc.projector()
	sc.list(10)
	sc.project(p)
	send := func(t cache.DeltaType, rv int, content string) {
		sc.Helper()
		o := sc.raw("a", rv, content)
		if err := errors.Join(sc.s.Push(sc.Context(), t, o, o.ResourceVersion), sc.s.commit(sc.Context())); err != nil {
			sc.Fatal(err)
		}
		sc.project(p)
	}
	send(cache.Added, 11, "1")
	send(cache.Updated, 12, "1e400")
	if n := one[int](sc, "SELECT count(*) FROM kube.object"); n != 1 {
		sc.Errorf("%d objects, want the one of 11", n)
	}
	send(cache.Deleted, 13, "1e400")
	if n := one[int](sc, "SELECT count(*) FROM kube.object"); n != 0 {
		sc.Errorf("%d objects, want none: it was deleted", n)
	}
	if n := one[int](sc, "SELECT skipped FROM kube.place"); n != 2 {
		sc.Errorf("%d states are skipped, want 2", n)
	}
	if diff := cmp.Diff([]string{"created a@11"}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
}

// tooLong is a JSON string that an index cannot have.
var tooLong = func() string {
	noise := make([]byte, 6000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	return strconv.Quote(base64.StdEncoding.EncodeToString(noise))
}()

// rawList plays a list of objects with a field each that is any JSON; "" leaves one out.
func (sc *scene) rawList(rv int, contents ...string) {
	sc.Helper()
	l := sc.begin()
	for i, content := range contents {
		if content == "" {
			continue
		}
		if err := l.Add(sc.Context(), sc.raw(fmt.Sprint("n", i), i+1, content)); err != nil {
			sc.Fatal(err)
		}
	}
	if err := errors.Join(l.Finish(sc.Context(), strconv.Itoa(rv)), l.Close()); err != nil {
		sc.Fatal(err)
	}
}

// testRefusedHistory deletes an object in a part of the log that is gone, whose last
// state the history cannot have.
func testRefusedHistory(sc *scene) {
	p := sc.projector()
	sc.rawList(10, "1", tooLong, "2")
	sc.project(p)
	sc.exec("CREATE INDEX ON kube.history ((object->>'x'))")
	sc.rawList(20, "1", "", "3")
	sc.exec("DELETE FROM informctl.change WHERE seq < (SELECT max(seq) FROM informctl.change)")
	sc.project(p)
	if got := one[[]string](sc, "SELECT array_agg(object->>'x' ORDER BY name) FROM kube.object"); !slices.Equal(got, []string{"1", "3"}) {
		sc.Errorf("the objects have %q", got)
	}
}

// testTableGone checks that what is no fault of an object is not taken for one: nothing
// is skipped.
func testTableGone(sc *scene) {
	p := sc.projector()
	sc.rawList(10, "1")
	sc.project(p)
	before := one[int64](sc, "SELECT seq FROM kube.place")
	sc.exec("ALTER TABLE kube.history RENAME TO moved")
	sc.rawList(20, "1", "2")
	if _, err := p.step(sc.Context()); err == nil {
		sc.Error("no error without the table of the history")
	}
	sc.exec("ALTER TABLE kube.moved RENAME TO history")
	if now := one[int64](sc, "SELECT seq FROM kube.place"); now != before {
		sc.Errorf("the place has moved from %d to %d", before, now)
	}
	sc.project(p)
	if diff := cmp.Diff([]string{"created n1@2"}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
}

func testRefusedByIndex(sc *scene) {
	p := sc.projector()
	sc.exec("CREATE INDEX ON kube.object ((object->>'x'))")
	sc.rawList(10, "1", tooLong, "2")
	sc.project(p)
	for i, content := range []string{tooLong, "3"} {
		o := sc.raw(fmt.Sprint("later", i), 11+i, content)
		if err := errors.Join(sc.s.Push(sc.Context(), cache.Added, o, o.ResourceVersion), sc.s.commit(sc.Context())); err != nil {
			sc.Fatal(err)
		}
	}
	sc.project(p)
	if n := one[int](sc, "SELECT count(*) FROM kube.object"); n != 3 {
		sc.Errorf("%d objects, want 3", n)
	}
	if n := one[int](sc, "SELECT skipped FROM kube.place"); n != 2 {
		sc.Errorf("%d objects are skipped, want 2", n)
	}
}

// raw returns an object as the API server sends it, with a field that is any JSON.
func (sc *scene) raw(name string, rv int, content string) *raw.Object {
	sc.Helper()
	o, err := raw.Decode(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"uid":%q,"resourceVersion":"%d"},"x":%s}`, name, name, rv, content))
	if err != nil {
		sc.Fatal(err)
	}
	return o
}

func testRefusedFirst(sc *scene) {
	p := sc.projector()
	l := sc.begin()
	for i, content := range []string{"1", "1e400", "2"} {
		if err := l.Add(sc.Context(), sc.raw(fmt.Sprint("n", i), i+1, content)); err != nil {
			sc.Fatal(err)
		}
	}
	if err := l.Finish(sc.Context(), "10"); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	sc.project(p)
	if n := one[int](sc, "SELECT count(*) FROM kube.object"); n != 2 {
		sc.Errorf("%d objects, want 2", n)
	}
	if n := one[int](sc, "SELECT skipped FROM kube.place"); n != 1 {
		sc.Errorf("%d objects are skipped, want 1", n)
	}
	if last := one[string](sc, "SELECT skipped_last FROM kube.place"); !strings.Contains(last, "n1") {
		sc.Errorf("the object that was skipped last is %q", last)
	}
}

func testProjectedParts(sc *scene) {
	defer func(read, write int) { projectBytes, writeBytes = read, write }(projectBytes, writeBytes)
	p := sc.projector()
	var objects []*corev1.ConfigMap
	for i := range 5 {
		objects = append(objects, object(fmt.Sprint("n", i), int64(i+1)))
	}
	sc.list(10, objects...)
	size := one[int](sc, "SELECT max(octet_length(data)) FROM informctl.object")
	projectBytes = size + 1 // which the second object exceeds
	var sizes []int
	for key := []byte{}; ; {
		part, err := p.published(sc.Context(), projected{id: sc.w.id}, key)
		if err != nil {
			sc.Fatal(err)
		}
		if len(part) == 0 {
			break
		}
		sizes, key = append(sizes, len(part)), part[len(part)-1].key
	}
	if diff := cmp.Diff([]int{2, 2, 1}, sizes); diff != "" {
		sc.Errorf("objects of the parts (-want +got):\n%s", diff)
	}
	projectBytes = 1 // which each object exceeds
	sc.project(p)
	if n := one[int](sc, "SELECT count(*) FROM kube.object"); n != 5 {
		sc.Errorf("%d objects, want 5", n)
	}
	projectBytes, writeBytes = 16<<20, 1
	for i := range 3 {
		if err := sc.s.Push(sc.Context(), cache.Updated, object(fmt.Sprint("n", i), int64(i+11)), fmt.Sprint(i+11)); err != nil {
			sc.Fatal(err)
		}
	}
	if err := sc.s.commit(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	sc.project(p)
	if diff := cmp.Diff([]string{"updated n0@11", "updated n1@12", "updated n2@13"}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
	if n := one[int](sc, "SELECT count(DISTINCT xmin::text) FROM kube.history"); n != 3 {
		sc.Errorf("the log was written in %d parts, want 3", n)
	}
	if !one[bool](sc, "SELECT p.seq = c.seq AND p.as_of = c.at FROM kube.place p, informctl.change c ORDER BY c.seq DESC LIMIT 1") {
		sc.Error("the place is not the end of the log")
	}
	sc.exec("DELETE FROM kube.object")
	sc.exec("UPDATE kube.place SET tx = tx + 1") // so that all is compared
	sc.project(p)
	if n := one[int](sc, "SELECT count(DISTINCT xmin::text) FROM kube.object"); n != 5 {
		sc.Errorf("the objects were written in %d parts, want 5", n)
	}
}

func testOtherContent(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1), object("b", 2))
	sc.project(p)
	// A default of the resource is new: the object has it at its old resource version.
	other := object("b", 2)
	other.Data = map[string]string{"default": "new"}
	sc.list(20, object("a", 1), other)
	sc.project(p)
	if got := one[string](sc, "SELECT coalesce(object #>> '{data,default}', '') FROM kube.object WHERE name = 'b'"); got != "new" {
		sc.Errorf("the content in SQL is %q, want new", got)
	}
	if diff := cmp.Diff([]string{"updated b@2"}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
}

func testComparedDropped(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1))
	sc.project(p)
	place := anchor{
		seq: one[int64](sc, "SELECT seq FROM kube.place"), rv: one[int64](sc, "SELECT rv FROM kube.place"), tx: one[int64](sc, "SELECT tx FROM kube.place"),
	}
	scope := projected{id: sc.w.id, kind: modelScope.Kind, resource: modelScope.Resource, place: &place, last: place}
	if err := sc.db.Drop(sc.Context(), sc.w.id); err != nil {
		sc.Fatal(err)
	}
	if err := p.compare(sc.Context(), scope); err != nil {
		sc.Fatal(err)
	}
	if diff := cmp.Diff([]string{}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
}

func testListOfDropped(sc *scene) {
	sc.list(10, object("a", 1))
	lw := sc.follower(FollowOptions{})
	s, err := lw.read(sc.Context(), 0, anchor{})
	if err != nil {
		sc.Fatal(err)
	}
	from := token{Seq: s.last.seq, RV: s.last.rv, Tx: s.last.tx}
	// Drop waits where it deletes the log.
	tx, err := sc.db.pool.Begin(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(sc.Context())) }()
	if _, err := tx.Exec(sc.Context(), sc.db.sql("SELECT FROM informctl.change FOR UPDATE")); err != nil {
		sc.Fatal(err)
	}
	dropped := make(chan error, 1)
	go func() { dropped <- sc.db.Drop(sc.Context(), sc.w.id) }()
	for one[int](sc, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 0 {
		<-time.After(time.Millisecond)
	}
	list, err := lw.list(sc.Context(), s, from, metav1.ListOptions{})
	if err != nil || len(list.(*metainternalversion.List).Items) != 1 {
		sc.Errorf("a list while the log is deleted: %v, %v, want the object", list, err)
	}
	if err := errors.Join(tx.Rollback(sc.Context()), <-dropped); err != nil {
		sc.Fatal(err)
	}
	if _, err := lw.list(sc.Context(), s, from, metav1.ListOptions{}); !errors.Is(err, errGone) {
		sc.Errorf("a list of what was dropped: %v", err)
	}
}

func testNotifiedReader(sc *scene) {
	defer func(d time.Duration) { patience = d }(patience)
	patience = 30 * time.Second
	db, err := Open(sc.Context(), sc.dsn, Options{Schema: sc.db.opts.Schema, Listen: true, Poll: time.Hour})
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	w := db.hub.join(sc.w.id)
	defer db.hub.leave(sc.w.id, w)
	// The row that the watch has read last is not known while it reads.
	sc.exec("SELECT pg_notify($1, $2)", sc.db.opts.Schema, fmt.Sprint(sc.w.id))
	select {
	case <-w.wake:
	case <-time.After(15 * time.Second):
		sc.Error("a watch that reads is not woken by a notification: what it has just missed waits for the poll")
	}
}

func testStatementTimeout(sc *scene) {
	sc.list(10, object("a", 1))
	// One connection, so that the setting is that of each statement.
	db, err := Open(sc.Context(), sc.dsn, Options{Schema: sc.db.opts.Schema, MaxConns: 1})
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.pool.Exec(sc.Context(), "SET statement_timeout = '1s'"); err != nil {
		sc.Fatal(err)
	}
	sc.w.db = db
	err = sc.w.once(sc.Context(), commit{end: sc.w.end, queue: func(b *batch, _ int64) { b.Queue("SELECT pg_sleep(1.5)") }})
	if err != nil {
		sc.Errorf("a commit that takes longer: %v", err)
	}
	// What a list reads first waits for a lock, for longer.
	tx, err := sc.db.pool.Begin(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(sc.Context())) }()
	if _, err := tx.Exec(sc.Context(), sc.db.sql("LOCK TABLE informctl.object")); err != nil {
		sc.Fatal(err)
	}
	read := make(chan error, 1)
	l := &relist{w: sc.w, headers: map[string]header{}}
	go func() { read <- l.readHeaders(sc.Context()) }()
	for one[int](sc, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '1500 milliseconds'") == 0 && len(read) == 0 {
		<-time.After(time.Millisecond)
	}
	if err := errors.Join(tx.Rollback(sc.Context()), <-read); err != nil || len(l.headers) != 1 {
		sc.Errorf("the read objects are %v, %v", l.headers, err)
	}
}

func testProblem(sc *scene) {
	sc.list(10, object("a", 1))
	sc.exec("UPDATE informctl.scope SET problem = 'refused'")
	sc.w, sc.s = sc.publisher("first")
	lw := sc.follower(FollowOptions{})
	isFailed := func(when string, want bool) {
		sc.Helper()
		if _, _, err := sc.listed(lw, metav1.ListOptions{}); apierrors.IsServiceUnavailable(err) != want {
			sc.Errorf("%s, a list is answered with %v", when, err)
		}
	}
	isFailed("before the publisher has committed anything", true)
	_ = sc.s.Bookmark(sc.Context(), "15")
	if _, due := sc.s.takeMark(); due {
		sc.Fatal("a mark is written with those of others, and the problem stays")
	}
	l := sc.begin(object("b", 11))
	isFailed("while a list is in progress", true)
	if err := l.Finish(sc.Context(), "20"); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	isFailed("after the list", false)
	_ = sc.s.Bookmark(sc.Context(), "25")
	if _, due := sc.s.takeMark(); !due {
		sc.Error("no mark is due after the list")
	}
}

// hasty has a deadline at which it does not end, as the context of a reflector's probe.
type hasty struct {
	context.Context
	deadline time.Time
}

func (h hasty) Deadline() (time.Time, bool) { return h.deadline, true }

func testLockedProbe(sc *scene) {
	defer func(d time.Duration) { deadline = d }(deadline)
	sc.list(10, object("a", 1))
	deadline = time.Second
	tx, err := sc.db.pool.Begin(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(sc.Context())) }()
	if _, err := tx.Exec(sc.Context(), sc.db.sql("LOCK TABLE informctl.scope")); err != nil {
		sc.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(sc.Context(), 15*time.Second)
	defer cancel()
	if _, err := sc.follower(FollowOptions{}).ListWithContext(hasty{ctx, time.Now().Add(deadline / 2)}, metav1.ListOptions{Limit: 1}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a probe ends with %v, want a 503", err)
	}
}

func testBackFromDirect(sc *scene) {
	sc.list(1950, object("a", 900))
	upstream := watch.NewFake()
	lw := sc.follower(FollowOptions{Upstream: &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "2100"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return upstream, nil },
	}})
	direct := func(is bool) {
		if err := lw.Direct(is); err != nil {
			sc.Fatal(err)
		}
	}
	isBehind := func(after string, want bool) {
		sc.Helper()
		if _, _, err := sc.listed(lw, metav1.ListOptions{}); apierrors.IsTimeout(err) != want {
			sc.Errorf("after %s the database, which is behind, answers with %v", after, err)
		}
	}
	direct(true)
	if _, err := lw.ListWithContext(sc.Context(), metav1.ListOptions{Limit: 1}); err != nil {
		sc.Fatal(err)
	}
	direct(false)
	isBehind("a probe of the API server", false)
	direct(true)
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "1950"})
	if err != nil {
		sc.Fatal(err)
	}
	upstream.Action(watch.Bookmark, object("", 2000))
	<-w.ResultChan()
	direct(false)
	isBehind("a bookmark of the API server", true)
	sc.mark(2050)
	isBehind("a mark", false)
	direct(true)
	if _, err := lw.ListWithContext(sc.Context(), metav1.ListOptions{}); err != nil {
		sc.Fatal(err)
	}
	direct(false)
	isBehind("a list of the API server", true)
}

func testTakeOverHearsNothing(sc *scene) {
	if age := time.Since(sc.s.heard); age > time.Minute {
		sc.Errorf("of a new scope nothing was heard for %s", age)
	}
	sc.list(10, object("a", 1))
	sc.exec("UPDATE informctl.change SET at = at - interval '140 seconds'")
	_, s := sc.publisher("second")
	if age := time.Since(s.heard); age < 140*time.Second || age > 3*time.Minute {
		sc.Errorf("the publisher has heard of the API server %s ago, want 140 s, when the last mark was written", age)
	}
	s.phase = unsure // so that nothing is committed
	if err := s.CaughtUp(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	if age := time.Since(s.heard); age > time.Minute {
		sc.Errorf("a publisher that has caught up has heard of the API server %s ago", age)
	}
}

// testSameScope has Publish refuse a scope that it is given twice.
func testSameScope(sc *scene) {
	metadata, selected, again := modelScope, modelScope, modelScope
	metadata.Form = store.Metadata
	selected.LabelSelector, again.LabelSelector = "a=b,c=d", "c=d,a=b"
	publish := func(scopes ...store.Scope) error {
		ctx, cancel := context.WithCancel(sc.Context())
		cancel() // what is valid waits for no lease
		var all []Collection
		for _, s := range scopes {
			all = append(all, Collection{Scope: s, ListerWatcher: &cache.ListWatch{}, Example: &corev1.ConfigMap{}})
		}
		return sc.db.Publish(ctx, all, PublishOptions{})
	}
	for what, scopes := range map[string][]store.Scope{"forms": {modelScope, metadata}, "selectors": {modelScope, selected, again}} {
		if err := publish(scopes...); err == nil || !strings.Contains(err.Error(), "configmaps") {
			sc.Errorf("two %s of one scope: %v, want an error that names it", what, err)
		}
	}
	if err := publish(modelScope, selected); err != nil {
		sc.Errorf("a scope and a part of it: %v", err)
	}
}

// testTwoGroups checks that of two groups which name a scope the one that publishes it
// goes on, and that the other one has it after that.
func testTwoGroups(sc *scene) {
	sc.list(10, object("a", 1))
	sc.exec("INSERT INTO informctl.lease (grp, holder, expires, heard) VALUES ('other', 'second', 'infinity', clock_timestamp())")
	other := &writer{db: sc.db, holder: "second", group: "other", ttl: 10 * time.Second, scope: modelScope, wrote: func(int64) {}}
	if err := other.takeOver(sc.Context()); !errors.Is(err, errOtherGroup) || !strings.Contains(err.Error(), `"c1"`) {
		sc.Fatalf("the scope of another group is taken over: %v, want an error that names the group", err)
	}
	sc.push(cache.Added, object("b", 11)) // its publisher was not disturbed
	for _, test := range []struct{ what, set string }{
		{"has ended", "expires = '-infinity'"},
		{"was of a clock hours ahead", "heard = clock_timestamp() + interval '3 hours'"},
		{"does not publish it", "holder = 'third'"},
	} {
		reset := func() {
			sc.exec("UPDATE informctl.scope SET grp = 'c1', holder = 'first'")
			sc.exec("UPDATE informctl.lease SET holder = 'first', expires = 'infinity', heard = clock_timestamp() WHERE grp = 'c1'")
		}
		reset()
		if err := other.takeOver(sc.Context()); !errors.Is(err, errOtherGroup) {
			sc.Fatalf("before its lease %s: %v", test.what, err)
		}
		sc.exec("UPDATE informctl.lease SET " + test.set + " WHERE grp = 'c1'")
		if err := other.takeOver(sc.Context()); err != nil {
			sc.Errorf("the lease of the other group %s, and the scope is not taken over: %v", test.what, err)
		}
		reset()
	}
	sc.exec("UPDATE informctl.lease SET holder = 'third' WHERE grp = 'other'")
	if err := other.takeOver(sc.Context()); !errors.Is(err, errFenced) {
		sc.Errorf("without the lease: %v, want %v", err, errFenced)
	}
}

// testPartBesideList checks that a part is written while the list goes on, and that what
// uses the writer, or ends the list, waits for it.
func testPartBesideList(sc *scene) {
	sc.list(10, object("a", 1))
	defer func(n int) { partSize = n }(partSize)
	partSize = 1
	held := func() (release func()) {
		sc.Helper()
		tx, err := sc.db.pool.Begin(sc.Context())
		if err == nil {
			_, err = tx.Exec(sc.Context(), sc.db.sql("LOCK TABLE informctl.staging"))
		}
		if err != nil {
			sc.Fatal(err)
		}
		return func() { _ = tx.Rollback(sc.Context()) }
	}
	for name, next := range map[string]func(*relist) error{
		"the next part": func(l *relist) error { return l.Add(sc.Context(), object("c", 13)) },
		"a removal":     func(l *relist) error { return l.Remove(sc.Context(), object("b", 12)) },
		"the end":       func(l *relist) error { return l.Finish(sc.Context(), "30") },
		"giving up":     func(l *relist) error { return l.Close() },
	} {
		sc.list(sc.w.end.rv+1, object("a", 1))
		l := sc.begin()
		release := held()
		if err := l.Add(sc.Context(), object("b", 12)); err != nil {
			sc.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- next(l) }()
		select {
		case err := <-ended:
			sc.Errorf("%s does not wait for the part before: %v", name, err)
		case <-time.After(50 * time.Millisecond):
			release()
			if err := <-ended; err != nil {
				sc.Errorf("%s: %v", name, err)
			}
		}
		release()
		_ = l.Close()
	}
	l := sc.begin()
	sc.exec("UPDATE informctl.scope SET holder = 'another'")
	if err := l.Add(sc.Context(), object("b", 32)); err != nil {
		sc.Fatal(err)
	}
	if err := l.Add(sc.Context(), object("c", 33)); !errors.Is(err, errFenced) {
		sc.Errorf("after a part that was not written: %v, want %v", err, errFenced)
	}
	_ = l.Close()
}

// testNoNotification opens a database that takes LISTEN and notifies nobody, as a pooler
// of transactions does: changes are polled.
func testNoNotification(sc *scene) {
	defer func(d time.Duration) { patience = d }(patience)
	patience = time.Nanosecond
	db, err := Open(sc.Context(), sc.dsn, Options{Schema: sc.db.opts.Schema, Poll: 5 * time.Millisecond, Listen: true})
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	listening := "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' || $1 || '%'"
	for one[int](sc, listening, sc.db.opts.Schema) > 0 { // until the server sees its end
		<-time.After(time.Millisecond)
	}
	sc.list(10, object("a", 1))
	lw, err := db.ListerWatcher(modelScope, &corev1.ConfigMap{}, FollowOptions{})
	if err != nil {
		sc.Fatal(err)
	}
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "10"})
	if err != nil {
		sc.Fatal(err)
	}
	defer w.Stop()
	sc.push(cache.Added, object("b", 11))
	if e := <-w.ResultChan(); e.Type != watch.Added || nameOf(e.Object) != "default/b" {
		sc.Errorf("the watch has %s %s", e.Type, nameOf(e.Object))
	}
}

func testEngines(sc *scene) {
	for version, name := range map[string]string{
		one[string](sc, "SELECT version()"):                                          "",
		"PostgreSQL 17.2 on aarch64-unknown-linux-gnu, compiled by gcc, 64-bit":      "",
		"CockroachDB CCL v24.1.2 (x86_64-pc-linux-gnu, built 2024/07/02, go1.22.4)":  "CockroachDB",
		"PostgreSQL 11.2-YB-2.20.1.0-b0 on x86_64-pc-linux-gnu, compiled by clang":   "YugabyteDB",
		"PostgreSQL 15.2-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang": "YugabyteDB",
	} {
		err := checkEngine(version)
		if isRefused := err != nil; isRefused != (name != "") || isRefused && !strings.Contains(err.Error(), name) {
			sc.Errorf("%s: %v", version, err)
		}
	}
}

// testCloned checks that of two clusters with one identity, since one was cloned from the
// other, one is published, and both are in two schemas.
func testCloned(sc *scene) {
	try := func(schema string) time.Duration {
		sc.Helper()
		if err := Migrate(sc.Context(), sc.dsn, Options{Schema: schema}); err != nil {
			sc.Fatal(err)
		}
		db, err := Open(sc.Context(), sc.dsn, Options{Schema: schema})
		if err != nil {
			sc.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		clone := &lease{db: db, table: db.sql("informctl.lease"), group: "c1", holder: "of the clone", ttl: 10 * time.Second}
		wait, err := clone.try(sc.Context())
		if err != nil {
			sc.Fatal(err)
		}
		return wait
	}
	if try(sc.db.opts.Schema) == 0 {
		sc.Error("the publisher of a clone has the lease, too")
	}
	if try(pgtest.Schema()) > 0 {
		sc.Error("the publisher of a clone waits for a lease in another schema")
	}
	sc.push(cache.Added, object("a", 11))
}

// testKinds checks that jsonb says what a typed object is, whose fields do not.
func testKinds(sc *scene) {
	sc.list(10, object("a", 1))
	sc.project(sc.projector())
	if kind := one[string](sc, "SELECT object ->> 'apiVersion' || ' ' || (object ->> 'kind') FROM kube.object"); kind != "v1 ConfigMap" {
		sc.Errorf("the object is a %q", kind)
	}
}

func testSwitchedBusy(sc *scene) {
	lw := sc.follower(FollowOptions{Upstream: &cache.ListWatch{}})
	sc.list(10, object("a", 1), object("b", 2), object("c", 3))
	for rv := int64(11); rv < 15; rv++ {
		sc.push(cache.Updated, object("a", rv))
	}
	for what, opts := range map[string]metav1.ListOptions{
		"objects": {SendInitialEvents: new(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, "rows": {ResourceVersion: "10"},
	} {
		w, err := lw.WatchWithContext(sc.Context(), opts)
		if err != nil {
			sc.Fatal(err)
		}
		<-w.ResultChan()
		if err := lw.Direct(true); err != nil {
			sc.Fatal(err)
		}
		// The next event waits for the handlers of the first one.
		ended := func() bool {
			sc.db.hub.mu.Lock()
			defer sc.db.hub.mu.Unlock()
			return len(sc.db.hub.waiters) == 0
		}
		for began := time.Now(); !ended() && time.Since(began) < 20*time.Second; {
			<-time.After(time.Millisecond)
		}
		if e, ok := <-w.ResultChan(); ok {
			sc.Errorf("a watch that sends %s goes on with %s after the API server was to answer", what, e.Type)
		}
		w.Stop()
		if err := lw.Direct(false); err != nil {
			sc.Fatal(err)
		}
	}
}

func testSchemaOfSQL(sc *scene) {
	opts := Options{Schema: SQLSchema}
	if err := Migrate(sc.Context(), sc.dsn, opts); err == nil || !strings.Contains(err.Error(), "another schema") {
		sc.Errorf("tables of the feed in the schema of SQL: %v", err)
	}
	db, err := Open(sc.Context(), sc.dsn, opts)
	if err == nil {
		_ = db.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "another schema") {
		sc.Errorf("a feed in the schema of SQL: %v", err)
	}
	if one[bool](sc, "SELECT to_regclass('kube.scope') IS NOT NULL") {
		sc.Error("the tables were created")
	}
}

// testFutureTimes checks that times of a clock that is ahead, as those of the primary
// before a failover, do not pass for news.
func testFutureTimes(sc *scene) {
	sc.list(10, object("a", 1))
	lw := sc.follower(FollowOptions{})
	sc.exec("UPDATE informctl.lease SET heard = clock_timestamp() + interval '1 hour'")
	if _, _, err := sc.listed(lw, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a publisher that was heard of in an hour: a list is answered with %v, want a 503", err)
	}
	sc.exec("UPDATE informctl.lease SET heard = clock_timestamp()")
	sc.exec("UPDATE informctl.change SET at = at + interval '1 hour'")
	if _, _, err := sc.listed(lw, metav1.ListOptions{}); err != nil {
		sc.Errorf("a mark of in an hour of a scope that is published: %v", err)
	}
	_, s := sc.publisher("second")
	if age := time.Since(s.heard); age < 50*time.Minute {
		sc.Errorf("the publisher has heard of the API server %s ago, want an hour, as far as is known", age)
	}
	sc.exec("UPDATE informctl.lease SET holder = 'third'")
	if _, _, err := sc.listed(lw, metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a mark of in an hour of a scope that nobody publishes: a list is answered with %v, want a 503", err)
	}
}

func testBackByClock(sc *scene) {
	defer func(d time.Duration) { rewoundAfter = d }(rewoundAfter)
	rewoundAfter = 90 * time.Second
	sc.list(1000, object("a", 900))
	sc.s.caught = true
	sc.mark(1010)
	held := "1500"
	lw := sc.follower(FollowOptions{Held: func() string { return held }})
	isRefused := func(when string, want bool) {
		sc.Helper()
		if _, _, err := sc.listed(lw, metav1.ListOptions{}); apierrors.IsTimeout(err) != want {
			sc.Errorf("%s, a list is answered with %v", when, err)
		}
	}
	isRefused("with a mark of before", true)
	sc.mark(1020)
	sc.exec("UPDATE informctl.change SET at = at + interval '1 hour' WHERE rv = 1020")
	isRefused("with a mark that is later by the clock of the database", true)
	// Time passes, and the clock of the next primary is an hour behind.
	lw.mu.Lock()
	lw.lag.since = lw.lag.since.Add(-rewoundAfter)
	lw.mu.Unlock()
	isRefused("with the row that is there when the time has passed", true)
	isRefused("when it is asked again", true)
	sc.exec("DELETE FROM informctl.change WHERE rv = 1020")
	isRefused("with an older row, after a failover", true)
	sc.w, sc.s = sc.publisher("second")
	sc.mark(1012)
	isRefused("with a mark of a publisher that has not caught up", true)
	sc.s.caught = true
	held = "1600"
	sc.mark(1014)
	isRefused("when the informer has more than when it was refused first", true)
	lw.mu.Lock()
	lw.lag.since = lw.lag.since.Add(-rewoundAfter)
	lw.mu.Unlock()
	isRefused("when the time has passed again", true)
	sc.mark(1016)
	isRefused("with a mark after it", false)
}

// testOnlyLags checks that a follower that the API server has led beyond a publisher is
// not led back by the marks of that publisher, which only lags, and that it is after a
// rewind.
func testOnlyLags(sc *scene) {
	defer func(d time.Duration) { rewoundAfter = d }(rewoundAfter)
	rewoundAfter = 0
	sc.list(1000, object("a", 900))
	sc.s.caught = true
	upstream, asked := "1500", 0
	var failed error
	lw := sc.follower(FollowOptions{Upstream: &cache.ListWatch{ListWithContextFunc: func(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		if asked++; opts.Limit == 0 {
			asked = 0
		}
		return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: upstream}}, failed
	}}})
	direct := func(is bool) {
		if err := lw.Direct(is); err != nil {
			sc.Fatal(err)
		}
	}
	isRefused := func(when string, want bool) {
		sc.Helper()
		if _, rv, err := sc.listed(lw, metav1.ListOptions{}); apierrors.IsTimeout(err) != want {
			sc.Errorf("%s, a list is of %s, %v", when, rv, err)
		}
	}
	direct(true)
	if _, err := lw.ListWithContext(sc.Context(), metav1.ListOptions{}); err != nil {
		sc.Fatal(err)
	}
	direct(false)
	isRefused("at first", true)
	for rv := int64(1010); rv < 1100; rv += 10 {
		sc.mark(rv)
		isRefused("while the publisher lags", true)
	}
	if asked == 0 || asked > 5 {
		sc.Errorf("the API server was asked %d times", asked)
	}
	failed = errors.New("failed by the test")
	for rv := int64(1100); rv < 1150; rv += 10 {
		lw.mu.Lock()
		if !lw.lag.since.IsZero() { // the database was behind for long before it is asked
			lw.lag.since = lw.lag.since.Add(-unansweredAfter)
		}
		lw.mu.Unlock()
		sc.mark(rv)
		isRefused("while the API server does not answer", true)
	}
	upstream, failed = "1160", nil
	sc.mark(1160)
	isRefused("after the API server has gone back", false)
}

// testLateClaims checks that a commit that was tried again, and a list that took long, do
// not say that the publisher has caught up: they may have been late.
func testLateClaims(sc *scene) {
	defer func(d time.Duration) { firstWait = d }(firstWait)
	firstWait = time.Millisecond
	isCaught := func(when string, want bool) {
		sc.Helper()
		if got := one[bool](sc, "SELECT caught FROM informctl.change ORDER BY seq DESC LIMIT 1"); got != want {
			sc.Errorf("%s the last row says that the publisher has caught up: %v", when, got)
		}
	}
	sc.s.caught = true
	sc.list(10, object("a", 1))
	isCaught("after a list", true)
	f := &faults{}
	db := newModelDB(sc.Context(), sc, sc.dsn, sc.db.opts.Schema, f)
	defer func() { _ = db.Close() }()
	sc.w.db = db
	sc.mark(20)
	isCaught("after a commit", true)
	f.left.Store(2) // the statements, after BEGIN
	sc.mark(30)
	if f.left.Load() > 0 {
		sc.Fatal("no commit was cut")
	}
	isCaught("after a commit that was tried again", false)
	f.left.Store(-1)
	sc.mark(40)
	isCaught("after the next commit", true)
	l := sc.begin(object("b", 45))
	l.began = l.began.Add(-2 * deadline)
	if err := l.Finish(sc.Context(), "50"); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	isCaught("after a list that took long", false)
}

// rewind publishes a list of an API server whose history was rewound.
func (sc *scene) rewind(rv int64, objects ...*corev1.ConfigMap) {
	sc.Helper()
	l, err := sc.s.Relist(sc.Context(), reflector.Rewound)
	for _, obj := range objects {
		if err == nil {
			err = l.Add(sc.Context(), obj)
		}
	}
	if err == nil {
		err = l.Finish(sc.Context(), strconv.FormatInt(rv, 10))
	}
	if err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
}

// testBackAfterRewind checks that a follower of a history that was rewound is not led
// back in time, although the history before had higher resource versions.
func testBackAfterRewind(sc *scene) {
	for name, hasFile := range map[string]bool{"without a file": false, "with a file": true} {
		sc := newScene(sc.T, sc.dsn)
		stored := ""
		opts := FollowOptions{}
		if hasFile {
			opts.Held = func() string { return stored }
		}
		lw := sc.follower(opts)
		lists := func(when string, want string) {
			sc.Helper()
			switch _, rv, err := sc.listed(lw, metav1.ListOptions{}); {
			case want == "" && !apierrors.IsTimeout(err):
				sc.Errorf("%s, %s: a list is of %s, %v, want a 504", name, when, rv, err)
			case want != "" && (err != nil || rv != want):
				sc.Errorf("%s, %s: a list is of %s, %v, want %s", name, when, rv, err, want)
			}
		}
		sc.list(1500, object("a", 900), object("b", 1400))
		lists("before the rewind", "1500")
		stored = "1500"
		sc.rewind(1000, object("a", 900))
		lists("after the rewind", "1000")
		lists("before the informer has stored it", "1000")
		stored = "1000"
		sc.push(cache.Added, object("c", 1100))
		if got, err := sc.watch(lw, 1000); err != nil || len(got) == 0 {
			sc.Errorf("%s: a watch from the list: %v, %v", name, got, err)
		}
		stored = "1100"
		sc.exec("DELETE FROM informctl.change WHERE rv = 1100 AND scope = $1", sc.w.id)
		sc.exec("DELETE FROM informctl.object WHERE rv = 1100 AND scope = $1", sc.w.id)
		lists("after a failover has lost 1100", "")
		sc.w, sc.s = sc.publisher("second")
		sc.mark(1050)
		lists("while the database is behind", "")
		sc.push(cache.Added, object("c", 1100))
		lists("when the database has it again", "1100")
		sc.rewind(800)
		lists("after another rewind", "800")
		stored = "800"
		// One that has not been there since then still has the history before.
		if _, rv, err := sc.listed(sc.follower(FollowOptions{Held: func() string { return "1090" }}), metav1.ListOptions{}); err != nil || rv != "800" {
			sc.Errorf("%s: an informer with a file of before lists at %s, %v", name, rv, err)
		}
	}
}

// testBackInPlace checks that a list is not led back by a failover that comes after its
// state was read, and whose log has as many rows again.
func testBackInPlace(sc *scene) {
	sc.list(1000, object("a", 900))
	sc.push(cache.Added, object("b", 1100))
	lw := sc.follower(FollowOptions{})
	s, err := lw.read(sc.Context(), 0, anchor{})
	if err != nil {
		sc.Fatal(err)
	}
	sc.exec("DELETE FROM informctl.change WHERE rv = 1100")
	sc.exec("DELETE FROM informctl.object WHERE rv = 1100")
	sc.w, sc.s = sc.publisher("second")
	for rv := int64(1010); rv <= 1050; rv += 10 {
		sc.mark(rv)
	}
	if sc.w.end.seq <= s.last.seq {
		sc.Fatalf("the log ends at %+v", sc.w.end)
	}
	list, err := lw.list(sc.Context(), s, token{Seq: s.last.seq, RV: s.last.rv, Tx: s.last.tx}, metav1.ListOptions{})
	if !apierrors.IsServiceUnavailable(err) {
		sc.Errorf("a list after a state at 1100 is answered with %v, %v, want a 503", list, err)
	}
}

// testTrimOfMany trims scopes of which some have nothing to trim, or no rows.
func testTrimOfMany(sc *scene) {
	p := &publisher{db: sc.db, opts: PublishOptions{KeepAge: time.Hour, KeepBytes: 1 << 40}, sinks: map[int64]*sink{}, known: map[int64]hearsay{}}
	left := map[int64]int{}
	for id := range int64(8) {
		p.add(1000+id, &sink{w: &writer{id: 1000 + id}})
		old := int(id%2) * int(id) // and as many new ones again
		left[1000+id] = min(old, 1) + old
		sc.exec(`INSERT INTO informctl.change (scope, seq, kind, rv, tx, caught, bytes, at)
			SELECT $1, n, 'B', n, n, true, n, clock_timestamp() - CASE WHEN n <= $2 THEN interval '2 hours' ELSE interval '0' END
			FROM generate_series(1, 2 * $2) n`, 1000+id, old)
	}
	p.trim(sc.Context())
	for id, want := range left {
		if n := one[int](sc, "SELECT count(*) FROM informctl.change WHERE scope = $1", id); n != want {
			sc.Errorf("%d rows of scope %d are left, want %d", n, id, want)
		}
	}
}

func testTrimBack(sc *scene) {
	p := &publisher{db: sc.db, opts: PublishOptions{KeepAge: time.Hour, KeepBytes: 1}, sinks: map[int64]*sink{}, known: map[int64]hearsay{}}
	sc.list(1)
	follow := func(s *sink) {
		sc.Helper()
		p.add(sc.w.id, s)
		for i := range 20 {
			sc.push(cache.Added, object(fmt.Sprint("n", i), sc.w.end.rv+1))
		}
		p.trim(sc.Context())
		// The last mark before the bytes to keep stays, with the commit after it.
		if n := one[int](sc, "SELECT count(*) FROM informctl.change"); n != 3 {
			sc.Errorf("%d rows are left", n)
		}
		p.remove(sc.w.id, s)
	}
	follow(sc.s)
	sc.exec("DELETE FROM informctl.change WHERE seq <> $1", sc.w.end.seq)
	sc.exec("UPDATE informctl.change SET seq = 1")
	sc.w, sc.s = sc.publisher("first")
	follow(sc.s)
}

func testAsOf(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1))
	sc.exec("UPDATE informctl.change SET at = at - interval '2 days'")
	sc.project(p)
	const isAsOf = "SELECT p.as_of = c.at FROM kube.place p JOIN informctl.change c ON c.seq = p.seq"
	if !one[bool](sc, isAsOf) {
		sc.Error("the objects are as of their comparison, and not as of the last mark")
	}
	monday := one[time.Time](sc, "SELECT as_of FROM kube.place")
	sc.list(20, object("a", 12))
	sc.project(p)
	if after := one[time.Time](sc, "SELECT after FROM kube.history"); !after.Equal(monday) {
		sc.Errorf("a change that a list has found was made after %s, want %s", after, monday)
	}
	sc.exec("DELETE FROM informctl.change WHERE seq < (SELECT max(seq) FROM informctl.change)")
	sc.exec("UPDATE informctl.change SET seq = seq + 10, at = at + interval '1 minute'")
	sc.project(p)
	if !one[bool](sc, isAsOf) {
		sc.Error("after another comparison the objects are as of the mark before")
	}
}

func testComparedChanges(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1), object("b", 2), object("c", 3))
	sc.project(p)
	scope := projected{id: sc.w.id, kind: modelScope.Kind, resource: modelScope.Resource, place: &anchor{}}
	*scope.place = sc.w.end
	sc.push(cache.Updated, object("a", 11))
	scope.last = sc.w.end
	sc.push(cache.Updated, object("b", 12))
	sc.push(cache.Deleted, object("c", 13))
	if err := p.compare(sc.Context(), scope); err != nil {
		sc.Fatal(err)
	}
	sc.project(p)
	if diff := cmp.Diff([]string{"updated a@11", "updated b@12", "deleted c@13"}, one[[]string](sc, "SELECT array_agg(change || ' ' || name || '@' || rv ORDER BY rv) FROM kube.history")); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
}

func testReplacedInGap(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1, "a1"), object("b", 2, "b1"), object("c", 3, "c1"), object("d", 4, "d1"))
	sc.project(p)
	scope := projected{id: sc.w.id, kind: modelScope.Kind, resource: modelScope.Resource, place: &anchor{}}
	*scope.place = sc.w.end
	sc.push(cache.Deleted, object("a", 11, "a1"))
	sc.push(cache.Added, object("a", 12, "a2"))
	sc.push(cache.Deleted, object("b", 13, "b1"))
	sc.push(cache.Deleted, object("d", 14, "d1"))
	scope.last = sc.w.end
	scope.lastAt = one[time.Time](sc, "SELECT at FROM informctl.change WHERE seq = $1", sc.w.end.seq)
	// The log has these.
	sc.push(cache.Added, object("b", 15, "b2"))
	sc.push(cache.Deleted, object("c", 16, "c1"))
	sc.push(cache.Added, object("c", 17, "c2"))
	sc.push(cache.Added, object("d", 18, "d2"))
	sc.push(cache.Deleted, object("d", 19, "d2"))
	if err := p.compare(sc.Context(), scope); err != nil {
		sc.Fatal(err)
	}
	sc.project(p)
	for name, want := range map[string][]string{
		"a": {"deleted a1@1 a1", "created a2@12 a2"}, "b": {"deleted b1@2 b1", "created b2@15 b2"}, "c": {"deleted c1@16 c1", "created c2@17 c2"},
		"d": {"deleted d1@4 d1", "created d2@18 d2", "deleted d2@19 d2"},
	} {
		got := one[[]string](sc, "SELECT array_agg(change || ' ' || uid || '@' || rv || ' ' || (object #>> '{metadata,uid}') ORDER BY at) FROM kube.history WHERE name = $1", name)
		if diff := cmp.Diff(want, got); diff != "" {
			sc.Errorf("history of %s (-want +got):\n%s", name, diff)
		}
	}
	if n := one[int](sc, "SELECT count(*) FROM kube.history WHERE change = 'deleted' AND rv < 10 AND after IS NULL"); n != 0 {
		sc.Errorf("%d deletions that were found by comparison have no time after which they were made", n)
	}
}

// testCreatedInGap checks that the history of an object that was created in a gap begins
// with that, also if the log tells how it has changed while the objects are compared.
func testCreatedInGap(sc *scene) {
	p := sc.projector()
	sc.list(10, object("b", 2, "b1"))
	sc.project(p)
	scope := projected{id: sc.w.id, kind: modelScope.Kind, resource: modelScope.Resource, place: &anchor{}}
	*scope.place = sc.w.end
	sc.push(cache.Added, object("a", 11, "a1"))
	sc.push(cache.Deleted, object("b", 12, "b1"))
	sc.push(cache.Added, object("b", 13, "b2"))
	scope.last = sc.w.end
	scope.lastAt = one[time.Time](sc, "SELECT at FROM informctl.change WHERE seq = $1", sc.w.end.seq)
	// The log has these.
	sc.push(cache.Updated, object("a", 14, "a1"))
	sc.push(cache.Updated, object("b", 15, "b2"))
	sc.push(cache.Updated, object("a", 16, "a1"))
	sc.push(cache.Added, object("c", 17, "c1"))
	sc.push(cache.Updated, object("c", 18, "c1"))
	if err := p.compare(sc.Context(), scope); err != nil {
		sc.Fatal(err)
	}
	sc.project(p)
	for name, want := range map[string][]string{
		"a": {"created a1@16 true", "updated a1@14 false", "updated a1@16 false"},
		"b": {"deleted b1@2 true", "created b2@15 true", "updated b2@15 false"},
		"c": {"created c1@17 false", "updated c1@18 false"},
	} {
		got := one[[]string](sc, "SELECT array_agg(change || ' ' || uid || '@' || rv || ' ' || (after IS NOT NULL)::text ORDER BY at) FROM kube.history WHERE name = $1", name)
		if diff := cmp.Diff(want, got); diff != "" {
			sc.Errorf("history of %s, and whether it has a time after which that was (-want +got):\n%s", name, diff)
		}
	}
}

func testStandbyFirst(sc *scene) {
	sc.projector()
	sc.list(10, object("a", 1))
	conn, err := sc.db.pool.Acquire(sc.Context())
	if err != nil {
		sc.Fatal(err)
	}
	defer conn.Release()
	// As of an address that still leads to the former primary.
	readOnly := func(is string) {
		sc.Helper()
		var name string
		if err := conn.QueryRow(sc.Context(), "SELECT quote_ident(current_database())").Scan(&name); err != nil {
			sc.Fatal(err)
		}
		if _, err := conn.Exec(sc.Context(), "ALTER DATABASE "+name+" SET default_transaction_read_only = "+is); err != nil {
			sc.Fatal(err)
		}
	}
	readOnly("on")
	defer readOnly("off")
	db, err := Open(sc.Context(), sc.dsn, Options{Schema: sc.db.opts.Schema})
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	log := logger.GetSink().(ktesting.Underlier).GetBuffer()
	ctx, cancel := context.WithCancel(klog.NewContext(sc.Context(), logger))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- db.Project(ctx, ProjectOptions{Every: time.Millisecond}) }()
	wait := func(text string) {
		sc.Helper()
		for !strings.Contains(log.String(), text) {
			select {
			case err := <-ended:
				sc.Fatalf("SQL is not written any more: %v", err)
			case <-time.After(time.Millisecond):
			}
		}
	}
	wait("The tables of SQL cannot be asked for")
	readOnly("off")
	wait("Writing SQL")
	cancel()
	if err := <-ended; err != nil {
		sc.Error(err)
	}
}

// testMigratedMeanwhile checks that SQL is not written any more to tables that a newer
// program has migrated, or from them.
func testMigratedMeanwhile(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1))
	for _, table := range []string{"informctl.version", "kube.version"} {
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(sc.Context(), time.Minute)
		sc.exec("DELETE FROM kube.place")
		go func() { ended <- sc.db.Project(ctx, ProjectOptions{Every: time.Millisecond}) }()
		for one[int](sc, "SELECT count(*) FROM kube.place") == 0 {
			<-time.After(time.Millisecond)
		}
		sc.exec("UPDATE " + table + " SET version = 2")
		if err := <-ended; !errors.Is(err, ErrSchema) {
			sc.Errorf("%s: SQL ends with %v", table, err)
		}
		cancel()
		// While it writes.
		err := pgx.BeginFunc(sc.Context(), sc.db.pool, func(tx pgx.Tx) error {
			return p.fence(sc.Context(), tx, projected{id: sc.w.id})
		})
		if !errors.Is(err, ErrSchema) {
			sc.Errorf("%s: what is written ends with %v", table, err)
		}
		sc.exec("UPDATE " + table + " SET version = 1")
	}
}

// testGivenSchemas checks that a role that owns the schemas makes the tables in them, and
// needs no right to create a schema.
func testGivenSchemas(sc *scene) {
	role := pgtest.Schema()
	sc.exec("CREATE ROLE " + role + " LOGIN")
	defer sc.exec("DROP ROLE " + role)
	defer sc.exec("DROP OWNED BY " + role + " CASCADE")
	sc.exec("DROP SCHEMA IF EXISTS kube CASCADE")
	sc.exec("CREATE SCHEMA kube AUTHORIZATION " + role)
	sc.exec("CREATE SCHEMA " + role + " AUTHORIZATION " + role)
	dsn := sc.dsn + " user=" + role
	if err := Migrate(sc.Context(), dsn, Options{Schema: role}); err != nil {
		sc.Error(err)
	}
	if err := MigrateSQL(sc.Context(), dsn, Options{}); err != nil {
		sc.Error(err)
	}
}

func testViews(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1))
	sc.project(p)
	sc.exec(GrantsSQL(sc.db.opts.Schema))
	readable := func() bool {
		return one[bool](sc, "SELECT coalesce(has_table_privilege('kube_reader', to_regclass('kube.configmaps'), 'SELECT'), false)")
	}
	if !readable() {
		sc.Error("readers do not have the view that was there when the roles were made")
	}
	if one[bool](sc, "SELECT has_table_privilege('kube_reader', 'kube.lease', 'SELECT')") {
		sc.Error("readers have more than the objects and the views")
	}
	for what, statement := range map[string]string{
		"a view that could not be made": "DROP VIEW kube.configmaps",
		"a view that is not granted":    "REVOKE SELECT ON kube.configmaps FROM kube_reader",
	} {
		sc.exec(statement)
		if p.makeViews(sc.Context()); !readable() {
			sc.Errorf("%s: readers do not have it", what)
		}
	}
	before := one[string](sc, "SELECT xmin::text FROM pg_class WHERE oid = 'kube.configmaps'::regclass")
	p.makeViews(sc.Context())
	if after := one[string](sc, "SELECT xmin::text FROM pg_class WHERE oid = 'kube.configmaps'::regclass"); after != before {
		sc.Error("a view that is there is made again")
	}
}

// publishes lists an object of another scope than that of the scene, as the holder of
// its lease.
func (sc *scene) publishes(s store.Scope, name string) *writer {
	sc.Helper()
	w := &writer{db: sc.db, holder: sc.w.holder, group: "c1", ttl: 10 * time.Second, scope: s, wrote: func(int64) {}}
	if err := w.takeOver(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	sink := newSink(w, s.Kind, 0)
	sink.cancel, sink.relist = func(error) {}, func(string) {}
	l, err := sink.Relist(sc.Context(), "410")
	if err == nil {
		err = l.Add(sc.Context(), sc.raw(name, 1, "1"))
	}
	if err == nil {
		err = l.Finish(sc.Context(), "10")
	}
	if err != nil {
		sc.Fatal(err)
	}
	return w
}

func testReadView(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1))
	sc.project(p)
	reader, err := pgx.Connect(sc.Context(), sc.dsn)
	if err != nil {
		sc.Fatal(err)
	}
	defer func() { _ = reader.Close(context.WithoutCancel(sc.Context())) }()
	if _, err := reader.Exec(sc.Context(), "BEGIN; SELECT FROM kube.configmaps"); err != nil {
		sc.Fatal(err)
	}
	s := modelScope
	s.Cluster = "c2"
	sc.publishes(s, "b")
	ctx, cancel := context.WithTimeout(sc.Context(), 2*time.Minute)
	defer cancel()
	if _, err := p.step(ctx); err != nil {
		sc.Errorf("a step while the view is read: %v", err)
	}
	if n := one[int](sc, "SELECT count(*) FROM kube.configmaps"); n != 2 {
		sc.Errorf("%d objects in the view, want 2", n)
	}
}

func testSuperseded(sc *scene) {
	p := sc.projector()
	old := modelScope
	old.Kind.Version = "v1beta1"
	w := sc.publishes(old, "a")
	sc.list(10, object("a", 1), object("b", 2))
	names := func() []string {
		p.clean(sc.Context())
		sc.project(p)
		return one[[]string](sc, "SELECT array_agg(name ORDER BY name) FROM kube.configmaps")
	}
	if diff := cmp.Diff([]string{"a", "a", "b"}, names()); diff != "" {
		sc.Errorf("both are published (-want +got):\n%s", diff)
	}
	sc.exec("UPDATE informctl.scope SET holder = 'who was before' WHERE id = $1", w.id)
	sc.exec("UPDATE informctl.change SET at = at - interval '1 hour' WHERE scope = $1", w.id)
	if diff := cmp.Diff([]string{"a", "b"}, names()); diff != "" {
		sc.Errorf("the second is published (-want +got):\n%s", diff)
	}
	sc.exec("UPDATE informctl.lease SET expires = '-infinity'")
	if diff := cmp.Diff([]string{"a", "b"}, names()); diff != "" {
		sc.Errorf("none is published for a moment (-want +got):\n%s", diff)
	}
}

// testClockJumps has a database whose clock is 40 days ahead for a while, as after a
// failover: nothing that was written a moment ago is deleted as old.
func testClockJumps(sc *scene) {
	p := sc.projector()
	sc.list(10)
	sc.project(p)
	for rv := int64(11); rv <= 20; rv++ {
		sc.push(cache.Added, object(fmt.Sprint("n", rv), rv))
	}
	sc.project(p)
	publisher := &publisher{opts: PublishOptions{KeepAge: time.Hour, KeepBytes: 1 << 40}, sinks: map[int64]*sink{}, known: map[int64]hearsay{}}
	publisher.add(sc.w.id, sc.s)
	left := func(db *DB) [2]int {
		p.db, publisher.db = db, db
		p.clean(sc.Context())
		publisher.trim(sc.Context())
		return [2]int{one[int](sc, "SELECT count(*) FROM kube.history"), one[int](sc, "SELECT count(*) FROM informctl.change")}
	}
	all := left(sc.db)
	cfg, err := parse(sc.dsn, sc.db.opts)
	if err != nil {
		sc.Fatal(err)
	}
	schema := pgx.Identifier{pgtest.Schema()}.Sanitize()
	sc.exec("CREATE SCHEMA " + schema)
	sc.exec("CREATE FUNCTION " + schema + `.clock_timestamp() RETURNS timestamptz LANGUAGE sql
		AS $$SELECT pg_catalog.clock_timestamp() + interval '40 days'$$`)
	cfg.ConnConfig.RuntimeParams["search_path"] = schema + ", pg_catalog"
	pool, err := pgxpool.NewWithConfig(sc.Context(), cfg)
	if err != nil {
		sc.Fatal(err)
	}
	defer pool.Close()
	if got := left(&DB{pool: pool, opts: sc.db.opts}); got != all || all[0] < 10 || all[1] < 10 {
		sc.Errorf("by a clock that is ahead %d states and %d rows are left, want %d", got[0], got[1], all)
	}
	sc.exec("UPDATE kube.history SET at = at - interval '31 days'")
	sc.exec("UPDATE informctl.change SET at = at - interval '2 hours'")
	if got := left(sc.db); got != [2]int{0, 1} {
		sc.Errorf("of what is old %d states and %d rows are left, want none and the last mark", got[0], got[1])
	}
}

// testClockWasBehind has marks that were written while the clock of the database was
// behind: what was written a moment before them stays.
func testClockWasBehind(sc *scene) {
	sc.list(10)
	for rv := int64(11); rv <= 20; rv++ {
		sc.push(cache.Added, object(fmt.Sprint("n", rv), rv))
	}
	p := &publisher{db: sc.db, opts: PublishOptions{KeepAge: time.Hour, KeepBytes: 1 << 40}, sinks: map[int64]*sink{}, known: map[int64]hearsay{}}
	p.add(sc.w.id, sc.s)
	all := one[int](sc, "SELECT count(*) FROM informctl.change")
	sc.exec("UPDATE informctl.change SET at = at - interval '2 days' WHERE rv BETWEEN 15 AND 17")
	sc.exec("UPDATE informctl.change SET at = at + interval '2 days' WHERE rv = 13")
	p.trim(sc.Context())
	if n := one[int](sc, "SELECT count(*) FROM informctl.change"); n != all {
		sc.Errorf("%d rows are left, want all %d", n, all)
	}
	sc.exec("UPDATE informctl.change SET at = at - interval '2 hours' WHERE rv <> 13 AND rv <> 20")
	p.trim(sc.Context())
	if n := one[int](sc, "SELECT count(*) FROM informctl.change"); n != 3 {
		sc.Errorf("%d rows are left, want the last commit and the mark before it", n)
	}
}

func testMadeAnew(sc *scene) {
	p := sc.projector()
	sc.list(10, object("a", 1), object("b", 2))
	sc.project(p)
	sc.exec("DROP SCHEMA " + pgx.Identifier{sc.db.opts.Schema}.Sanitize() + " CASCADE")
	if err := Migrate(sc.Context(), sc.dsn, Options{Schema: sc.db.opts.Schema}); err != nil {
		sc.Fatal(err)
	}
	// The first number is another resource's.
	other := modelScope
	other.Resource = "endpoints"
	sc.exec("INSERT INTO informctl.lease (grp, holder, expires, heard) VALUES ('c1', 'first', 'infinity', clock_timestamp())")
	sc.publishes(other, "c")
	sc.w, sc.s = sc.publisher("first")
	sc.list(10, object("a", 1))
	sc.project(p)
	if diff := cmp.Diff([]string{}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
	got := one[[]string](sc, "SELECT array_agg(o.resource || ' ' || p.resource || ' ' || name ORDER BY name) FROM kube.object o JOIN kube.place p ON p.scope = o.scope")
	if diff := cmp.Diff([]string{"configmaps configmaps a", "endpoints endpoints c"}, got); diff != "" {
		sc.Errorf("objects (-want +got):\n%s", diff)
	}
}

func testTwoFeeds(sc *scene) {
	sc.projector()
	other := newScene(sc.T, sc.dsn)
	ctx, cancel := context.WithCancel(sc.Context())
	var done sync.WaitGroup
	done.Go(func() {
		if err := sc.db.Project(ctx, ProjectOptions{Every: time.Millisecond}); err != nil {
			sc.Errorf("the first feed: %v", err)
		}
	})
	sc.list(10, object("a", 1))
	for one[int](sc, "SELECT count(*) FROM kube.object") == 0 {
		<-time.After(time.Millisecond)
	}
	cancel()
	done.Wait()
	// Its scope has the same number.
	other.list(10, object("b", 1))
	ctx, cancel = context.WithTimeout(sc.Context(), 2*time.Minute)
	defer cancel()
	if err := other.db.Project(ctx, ProjectOptions{Every: time.Millisecond}); !errors.Is(err, ErrSchema) {
		sc.Errorf("a second feed: %v", err)
	}
	if diff := cmp.Diff([]string{}, sc.history()); diff != "" {
		sc.Errorf("history (-want +got):\n%s", diff)
	}
}

func testNotEncoded(sc *scene) {
	l := sc.begin()
	var failed error
	sc.s.cancel = func(err error) { failed = err }
	if err := l.Add(sc.Context(), &metav1.Status{}); !isObjectError(err) || !isObjectError(failed) {
		sc.Errorf("a list ends with %v, and the scope with %v: it would list each second, and the status would not say why", err, failed)
	}
}

// testRewindForgotten checks that a rewind whose list did not end is listed by the next
// publisher, although the new history may have passed what the log has by then.
func testRewindForgotten(sc *scene) {
	sc.list(1500, object("a", 1400))
	l, err := sc.s.Relist(sc.Context(), reflector.Rewound)
	if err != nil {
		sc.Fatal(err)
	}
	_ = l.Close() // the publisher dies
	sc.w, sc.s = sc.publisher("second")
	if cp := sc.s.Checkpoint(); cp.RV != "" {
		sc.Errorf("the next publisher resumes at %s of a history that is no more", cp.RV)
	}
	sc.list(1600, object("a", 900))
	if _, rv, err := sc.listed(sc.follower(FollowOptions{}), metav1.ListOptions{}); err != nil || rv != "1600" {
		sc.Errorf("after the list: %s, %v", rv, err)
	}
}

// testRewoundElsewhere checks that a scope that is listed because another one has shown a
// rewind is noted, and that its watches are sent what differs, as far as that has an
// order.
func testRewoundElsewhere(sc *scene) {
	sc.list(1500, object("a", 900), object("b", 1400))
	l, err := sc.s.Relist(sc.Context(), elsewhere)
	if err != nil {
		sc.Fatal(err)
	}
	_ = l.Close() // the publisher dies
	sc.w, sc.s = sc.publisher("second")
	if cp := sc.s.Checkpoint(); cp.RV != "" || sc.w.rewound {
		sc.Errorf("the next publisher resumes at %s of a history that is no more, or tells the others once more: %v", cp.RV, sc.w.rewound)
	}
	lw := sc.follower(FollowOptions{})
	sc.exec("UPDATE informctl.scope SET problem = ''")
	w, err := lw.WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "1500"})
	if err != nil {
		sc.Fatal(err)
	}
	if l, err = sc.s.Relist(sc.Context(), elsewhere); err != nil {
		sc.Fatal(err)
	}
	for _, obj := range []*corev1.ConfigMap{object("a", 900), object("c", 1550)} {
		if err := l.Add(sc.Context(), obj); err != nil {
			sc.Fatal(err)
		}
	}
	if err := l.Finish(sc.Context(), "1600"); err != nil {
		sc.Fatal(err)
	}
	_ = l.Close()
	if got := sc.read(w.(*watcher)); len(got) != 2 || got[0].Type != watch.Deleted || got[1].Type != watch.Added {
		sc.Errorf("the watch is sent %v, want the deletion of b and c", got)
	}
	if problem := one[string](sc, "SELECT problem FROM informctl.scope"); problem != "" {
		sc.Errorf("after the list the problem is %q", problem)
	}
}

// testRewoundNoted checks that a publisher that dies before the scopes are listed
// leaves that to the next one, and that any list ends it.
func testRewoundNoted(sc *scene) {
	sc.list(1500, object("a", 1400))
	p := &publisher{db: sc.db, lease: &lease{holder: "first", ttl: 10 * time.Second}, sinks: map[int64]*sink{}, rewinds: map[history]time.Time{}, lists: map[int64]time.Time{}}
	others := map[string]*sink{}
	for resource, holder := range map[string]string{"services": "first", "events": "first", "endpoints": "another"} {
		w := &writer{db: sc.db, holder: "first", group: "c1", ttl: 10 * time.Second, scope: modelScope, wrote: func(int64) {}}
		w.scope.Resource = resource
		if err := w.takeOver(sc.Context()); err != nil {
			sc.Fatal(err)
		}
		sc.exec("UPDATE informctl.scope SET complete = true, holder = $2 WHERE id = $1", w.id, holder)
		others[resource] = newSink(w, modelScope.Kind, 0)
	}
	service := others["services"]
	service.cancel = func(err error) { sc.Error(err) }
	told := false
	service.relist = func(string) {
		told = one[string](sc, "SELECT problem FROM informctl.scope WHERE id = $1", service.w.id) != ""
	}
	p.sinks[service.w.id] = service
	p.rewound(sc.Context(), sc.s)
	if !told {
		sc.Error("another scope is not told, or before the database has it")
	}
	for resource, want := range map[string]string{"configmaps": reflector.Rewound, "services": elsewhere, "events": "", "endpoints": ""} {
		if got := one[string](sc, "SELECT problem FROM informctl.scope WHERE resource = $1", resource); got != want {
			sc.Errorf("the problem of %s is %q, want %q", resource, got, want)
		}
	}
	// A list that began before.
	l, err := service.Relist(sc.Context(), "410")
	if err == nil {
		err = l.Finish(sc.Context(), "1600")
	}
	if err != nil {
		sc.Fatal(err)
	}
	if got := one[string](sc, "SELECT problem FROM informctl.scope WHERE id = $1", service.w.id); got != "" {
		sc.Errorf("after a list the problem is %q", got)
	}
}

// TestRewoundTells checks which scopes a rewind is told to, and when.
func TestRewoundTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p *publisher
		told := map[int64]int{}
		begin := func() {
			p = &publisher{sinks: map[int64]*sink{}, known: map[int64]hearsay{}, rewinds: map[history]time.Time{}, lists: map[int64]time.Time{}}
			clear(told)
		}
		add := func(id int64, wasRewound bool) *sink {
			s := newSink(&writer{id: id, scope: modelScope, rewound: wasRewound}, modelScope.Kind, 0)
			s.relist = func(reason string) {
				if reason != elsewhere {
					t.Errorf("scope %d is listed because %s", id, reason)
				}
				told[id]++
			}
			p.add(id, s)
			return s
		}
		rewound := func(by *sink) { // without the note in the database
			if p.claim(by) {
				p.tell(historyOf(modelScope), by)
			}
		}
		check := func(when string, want map[int64]int) {
			t.Helper()
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
			clear(told)
		}
		begin()
		one, two, three := add(1, false), add(2, false), add(3, false)
		p.remove(3, three)
		check("at first", map[int64]int{})
		rewound(one)
		check("when one has found a rewind", map[int64]int{2: 1})
		<-time.After(time.Second)
		rewound(two)
		check("when another has found it, too", map[int64]int{})
		<-time.After(time.Hour)
		rewound(one)
		check("when the list is begun again", map[int64]int{})
		three = add(3, false)
		check("when one is published that was not", map[int64]int{3: 1})
		for _, s := range []*sink{one, two, three} {
			p.listed(s, time.Now())
			p.remove(s.w.id, s)
			add(s.w.id, false)
		}
		check("when all have listed", map[int64]int{})
		p.remove(2, p.sinks[2])
		p.unlisted(2)
		two = add(2, false)
		check("when the database has lost a list", map[int64]int{2: 1})
		p.listed(two, time.Now())
		rewound(p.sinks[2])
		check("when history is rewound again", map[int64]int{1: 1, 3: 1})

		begin()
		one = add(1, false)
		two = add(2, true)
		check("when a publisher before has not listed all", map[int64]int{1: 1})
		add(3, true)
		check("when another has not been listed either", map[int64]int{3: 1})
		for _, s := range []*sink{one, two} {
			p.listed(s, time.Now())
		}
		rewound(one)
		check("when it is found at once", map[int64]int{})
	})
}

// testDeletedTogether checks that a follower that ends between deletions of one resource
// version, as those of events that expire, is told all of them.
func testDeletedTogether(sc *scene) {
	sc.list(10, object("a", 1), object("b", 2), object("c", 3))
	for _, name := range []string{"a", "b", "c"} {
		if err := sc.s.Push(sc.Context(), cache.Deleted, object(name, 20), "20"); err != nil {
			sc.Fatal(err)
		}
	}
	if err := sc.s.commit(sc.Context()); err != nil {
		sc.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		w, err := sc.follower(FollowOptions{}).WatchWithContext(sc.Context(), metav1.ListOptions{ResourceVersion: "10"})
		if err != nil {
			sc.Fatal(err)
		}
		told, rv := sets.New[string](), int64(0)
		for range n {
			m := (<-w.ResultChan()).Object.(*corev1.ConfigMap)
			told.Insert(m.Name)
			if rv, err = strconv.ParseInt(m.ResourceVersion, 10, 64); err != nil {
				sc.Fatal(err)
			}
		}
		w.Stop()
		events, err := sc.watch(sc.follower(FollowOptions{}), rv)
		if err != nil {
			sc.Fatal(err)
		}
		for _, e := range events {
			if e.Type == watch.Deleted {
				told.Insert(e.Object.(*corev1.ConfigMap).Name)
			}
		}
		if len(told) != 3 {
			sc.Errorf("a follower that ended after %d deletions, at %d, was told %v", n, rv, sets.List(told))
		}
	}
}

// testListAfterPlace checks that a watch that skips what it knows does not go on over a
// list that has taken the place of the commit that it knows: the database went back.
func testListAfterPlace(sc *scene) {
	sc.list(1000, object("a", 900), object("x", 950))
	sc.mark(1005)
	sc.push(cache.Added, object("b", 1030))
	lw := sc.follower(FollowOptions{})
	s, err := lw.read(sc.Context(), 1020, anchor{})
	if err != nil {
		sc.Fatal(err)
	}
	w := &watcher{l: lw, id: s.id, pos: s.place, from: 1020, skipping: true, out: make(chan watch.Event, 10)}
	sc.exec("DELETE FROM informctl.change WHERE rv = 1030")
	sc.exec("DELETE FROM informctl.object WHERE rv = 1030")
	sc.w, sc.s = sc.publisher("second")
	sc.list(1100, object("a", 900), object("b", 1030)) // x is gone
	if _, err := w.readRows(sc.Context()); !apierrors.IsResourceExpired(err) {
		sc.Errorf("a watch from 1020 goes on over a list: %v, %d events", err, len(w.out))
	}
}
