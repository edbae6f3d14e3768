package postgres_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/postgres/pgtest"
)

// TestDashboard asks every question of the dashboard, in the role of readers.
func TestDashboard(t *testing.T) {
	pg := pgtest.Start(t) // the schema kube is the database's
	var dashboard struct {
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ RawSQL string }
		}
	}
	b, err := os.ReadFile(filepath.Join("..", "deploy", "grafana-sql-dashboard.json"))
	if err == nil {
		err = json.Unmarshal(b, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	questions := map[string]string{}
	for _, v := range dashboard.Templating.List {
		if v.Type == "query" {
			questions["$"+v.Name] = v.Query
		}
	}
	for _, p := range dashboard.Panels {
		for _, q := range p.Targets {
			questions[p.Title] = q.RawSQL
		}
	}
	if len(questions) != 8 {
		t.Fatalf("%d questions, want 8", len(questions))
	}
	open(t, pg.DSN(), "informctl", postgres.Options{})
	if err := postgres.MigrateSQL(t.Context(), pg.DSN(), postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), pg.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for _, statement := range []string{
		postgres.GrantsSQL(""),
		`INSERT INTO kube.history (scope, seq, cluster, resource, change, at, namespace, name, uid, rv, object)
		VALUES (1, 1, 'c', 'pods', 'created', now() - interval '1 minute', 'a', 'b', 'u', 2, '{"metadata": {"managedFields": [
			{"manager": "kubelet", "time": "2026-01-02T10:00:00Z"}, {"manager": "kubectl", "time": "2026-01-02T11:00:00Z"}, {"manager": "old"}]}}')`,
		"SET ROLE kube_reader",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	grafana := strings.NewReplacer(
		"$__timeFilter(at)", "at BETWEEN now() - interval '6 hours' AND now()",
		"$__timeGroupAlias(at, $__interval)", `date_bin('1 minute', at, 'epoch') AS "time"`,
		"${cluster:sqlstring}", "'c', 'd'", "${resource:sqlstring}", "'pods'",
	)
	for title, question := range questions {
		question = grafana.Replace(question)
		if strings.Contains(question, "$") {
			t.Errorf("%s: a macro is left in %s", title, question)
			continue
		}
		answer := ask(t, conn, question)
		if title == "Who changes most" && (len(answer) != 1 || answer[0] != "kubectl 1") {
			t.Errorf("%s: %q", title, answer)
		}
	}
}
