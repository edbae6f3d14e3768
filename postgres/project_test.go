package postgres_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
)

// ask returns the rows of a query, a line each.
func ask(t *testing.T, conn *pgx.Conn, query string, args ...any) (lines []string) {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(fmt.Sprintln(values...)))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

func TestProject(t *testing.T) {
	pg := pgtest.Start(t) // the schema kube is the database's
	server := fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{})
	for i := range 3 {
		if _, err := server.Create(configMap(fmt.Sprintf("c%d", i), "first")); err != nil {
			t.Fatal(err)
		}
	}
	db := open(t, pg.DSN(), "informctl", postgres.Options{})
	if err := postgres.MigrateSQL(t.Context(), pg.DSN(), postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close(context.WithoutCancel(t.Context())) }()
	if _, err := admin.Exec(t.Context(), postgres.GrantsSQL("")); err != nil {
		t.Fatal(err)
	}
	as := func(role, statement string) error {
		_, err := admin.Exec(t.Context(), "BEGIN; SET LOCAL ROLE "+role+"; "+statement+"; ROLLBACK")
		_, _ = admin.Exec(t.Context(), "ROLLBACK")
		return err
	}
	c, err := postgres.NewCollection(server.Config(runtime.ContentTypeProtobuf), configMapScope)
	if err != nil {
		t.Fatal(err)
	}
	stop := publish(t, db, postgres.PublishOptions{TTL: 2 * time.Second}, c)
	eventually(t, "all is published and nothing written", func() bool {
		all, held, err := db.Projections(t.Context())
		return err == nil && !held && len(all) == 1 && all[0].AsOf.IsZero()
	})
	project := func() (stop func()) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var done sync.WaitGroup
		done.Go(func() {
			if err := db.Project(ctx, postgres.ProjectOptions{Every: 10 * time.Millisecond, TTL: 2 * time.Second}); err != nil {
				t.Error(err)
			}
		})
		stop = sync.OnceFunc(func() { cancel(); done.Wait() })
		t.Cleanup(stop)
		return stop
	}
	stopSQL := project()
	conn, err := pgx.Connect(t.Context(), pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	objects := func() []string {
		return ask(t, conn, `SELECT name || '=' || coalesce(object->'data'->>'value', '') FROM kube.configmaps ORDER BY name`)
	}
	waitFor := func(want ...string) {
		t.Helper()
		var got []string
		for range 3000 {
			if got = nil; len(ask(t, conn, "SELECT 1 FROM pg_views WHERE schemaname = 'kube' AND viewname = 'configmaps'")) == 1 {
				got = objects()
			}
			if cmp.Equal(want, got) {
				return
			}
			<-time.After(10 * time.Millisecond)
		}
		t.Fatalf("objects in SQL (-want +got):\n%s", cmp.Diff(want, got))
	}
	waitFor("c0=first", "c1=first", "c2=first")
	if got := ask(t, conn, "SELECT count(*) FROM kube.history"); got[0] != "0" {
		t.Errorf("history of the first objects: %s rows", got)
	}

	for role, statements := range map[string][]string{
		"kube_reader":    {"SELECT * FROM kube.configmaps", "SELECT * FROM kube.history", "SELECT as_of FROM kube.place"},
		"kube_projector": {"SELECT * FROM informctl.change", "DELETE FROM kube.history", "UPDATE kube.lease SET holder = holder", "CREATE VIEW kube.mine AS SELECT 1"},
	} {
		for _, statement := range statements {
			if err := as(role, statement); err != nil {
				t.Errorf("%s: %s: %v", role, statement, err)
			}
		}
	}
	for role, statements := range map[string][]string{
		"kube_reader":    {"SELECT * FROM informctl.change", "DELETE FROM kube.history", "CREATE TABLE kube.mine ()"},
		"kube_projector": {"DELETE FROM informctl.change", "UPDATE informctl.lease SET holder = holder"},
	} {
		for _, statement := range statements {
			if err := as(role, statement); err == nil {
				t.Errorf("%s may: %s", role, statement)
			}
		}
	}

	// A projector's probes and metrics read the scopes.
	if _, err := admin.Exec(t.Context(), "CREATE ROLE bob LOGIN; GRANT kube_projector TO bob"); err != nil {
		t.Fatal(err)
	}
	mine, err := postgres.Open(t.Context(), pg.DSN()+" user=bob", postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()
	if scopes, err := mine.Scopes(t.Context()); err != nil || len(scopes) != 1 {
		t.Errorf("a projector reads %d scopes: %v", len(scopes), err)
	}

	// The limits of a reader are those of the role that logs in.
	_, template, _ := strings.Cut(postgres.GrantsSQL(""), "alice:\n")
	if _, err := admin.Exec(t.Context(), "CREATE ROLE alice LOGIN; "+strings.ReplaceAll(template, "-- ", "")); err != nil {
		t.Fatal(err)
	}
	alice, err := pgx.Connect(t.Context(), pg.DSN()+" user=alice")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alice.Close(context.WithoutCancel(t.Context())) }()
	limits := ask(t, alice, "SELECT current_setting('search_path'), current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'), count(*) FROM kube.configmaps")
	if diff := cmp.Diff([]string{"pg_catalog 1min 1min 3"}, limits); diff != "" {
		t.Errorf("what a reader has (-want +got):\n%s", diff)
	}

	if got := ask(t, conn, "SELECT DISTINCT object->>'kind', object->>'apiVersion' FROM kube.object"); !cmp.Equal(got, []string{"ConfigMap v1"}) {
		t.Errorf("kinds in SQL: %q", got)
	}
	// The questions of the page are about pods.
	ask(t, conn, "CREATE VIEW kube.pods AS SELECT * FROM kube.configmaps")
	page, err := os.ReadFile("../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```sql\n")[1:]
	for _, block := range blocks {
		questions, _, _ := strings.Cut(block, "```")
		for question := range strings.SplitSeq(strings.TrimSpace(questions), ";\n") {
			ask(t, conn, question)
		}
	}
	if len(blocks) != 2 {
		t.Errorf("the page has %d blocks of SQL, want 2", len(blocks))
	}

	// A string of Kubernetes may have what jsonb has not.
	if _, err := server.Update(configMap("c1", `a NUL \u0000 `+"\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Delete("default/c2"); err != nil {
		t.Fatal(err)
	}
	waitFor("c0=first", `c1=a NUL \u0000 `+"\uFFFD")

	// A list of the publisher finds what it has missed.
	stop()
	if _, err := server.Delete("default/c0"); err != nil {
		t.Fatal(err)
	}
	rv, err := server.Create(configMap("c3", "third"))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Compact(rv); err != nil {
		t.Fatal(err)
	}
	publish(t, db, postgres.PublishOptions{TTL: 2 * time.Second}, c)
	waitFor(`c1=a NUL \u0000 `+"\uFFFD", "c3=third")
	got := ask(t, conn, "SELECT change, name, after IS NOT NULL FROM kube.history ORDER BY seq")
	want := []string{"updated c1 false", "deleted c2 false", "deleted c0 true", "created c3 true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	if got := ask(t, conn, "SELECT object->'data'->>'value' FROM kube.history WHERE change = 'deleted' AND name = 'c0'"); got[0] != "first" {
		t.Errorf("the last state of what was deleted is %q", got)
	}

	written := func(isWritten, isHeld bool) {
		t.Helper()
		all, held, err := db.Projections(t.Context())
		if err != nil || held != isHeld || len(all) != 1 || all[0].Resource != "configmaps" || all[0].AsOf.IsZero() == isWritten || all[0].Skipped > 0 {
			t.Errorf("written is %+v by one that is there: %t, %v", all, held, err)
		}
	}
	written(true, true)

	// The projector was away for longer than the log is kept.
	stopSQL()
	written(true, false)
	if _, err := conn.Exec(t.Context(), "DELETE FROM informctl.change WHERE seq < (SELECT max(seq) FROM informctl.change)"); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Delete("default/c1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deletion is published", func() bool {
		return ask(t, conn, "SELECT count(*) FROM informctl.object")[0] == "1"
	})
	if _, err := conn.Exec(t.Context(), "DELETE FROM informctl.change WHERE seq < (SELECT max(seq) FROM informctl.change)"); err != nil {
		t.Fatal(err)
	}
	project()
	waitFor("c3=third")
	got = ask(t, conn, "SELECT change, name, after IS NOT NULL FROM kube.history ORDER BY at DESC LIMIT 1")
	if diff := cmp.Diff([]string{"deleted c1 true"}, got); diff != "" {
		t.Errorf("history of a comparison (-want +got):\n%s", diff)
	}
}
