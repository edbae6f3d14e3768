package publish

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/pgflags"
	"github.com/informctl/informctl/cmd/informctl/internal/probes"
	"github.com/informctl/informctl/postgres"
	"github.com/informctl/informctl/store"
)

// observed is what a cluster asks a publisher about.
type observed struct {
	sql   bool                        // it writes SQL, and publishes nothing
	group string                      // as --group has it
	db    atomic.Pointer[postgres.DB] // nil until it was reached
	// scopes are to be published; nil until the server was reached.
	scopes atomic.Pointer[[]store.Scope]
}

// answers returns what a cluster is answered. Of two publishers, both are ready if one of
// them publishes what it has.
func (of *observed) answers() probes.Source {
	registry := prometheus.NewRegistry()
	registry.MustRegister(of)
	metrics := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return probes.Source{Metrics: metrics.ServeHTTP, NotReady: of.notReady}
}

// patience is how long PostgreSQL has to answer for a probe or a scrape.
const patience = 5 * time.Second

// notReady returns a line for each thing that is wrong.
func (of *observed) notReady(ctx context.Context) (wrong []string) {
	db, scopes := of.db.Load(), of.scopes.Load()
	switch {
	case db == nil:
		return []string{"PostgreSQL has not been reached yet"}
	case scopes == nil && !of.sql:
		return []string{"the server has not been reached yet"}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if of.sql {
		all, isHeld, err := db.Projections(ctx)
		if err != nil {
			return []string{cmdutil.OneLine(err)}
		}
		return unwritten(all, isHeld, db.IsProjecting())
	}
	all, err := db.Scopes(ctx)
	if err != nil {
		return []string{cmdutil.OneLine(err)}
	}
	return unpublished(*scopes, of.group, all, db.IsPublishing())
}

// unpublished returns a line for each of the scopes that is not published. What another
// publisher does not have, while it holds the lease of the group, is not missing: this
// one waits, and a rollout ends the other only after this one is ready. It does not wait
// while it is publishing itself.
func unpublished(scopes []store.Scope, group string, all []postgres.ScopeStatus, isPublishing bool) (wrong []string) {
	for _, s := range scopes {
		state, why, isHeld := "not published yet", "", false
		if i := slices.IndexFunc(all, func(p postgres.ScopeStatus) bool { return p.Scope == s }); i >= 0 {
			state, isHeld = all[i].State(), all[i].IsHeld
			if all[i].Problem != "" {
				why = ": " + cmdutil.OneLine(errors.New(all[i].Problem))
			}
		}
		isWaiting := !isPublishing && !isHeld && slices.ContainsFunc(all, func(p postgres.ScopeStatus) bool { return p.Group == pgflags.Group(s.Cluster, group) && p.IsHeld })
		if state != "published" && !isWaiting {
			wrong = append(wrong, s.Resource+": "+state+why)
		}
	}
	return wrong
}

// unwritten returns a line for each scope of which SQL has nothing yet, or one that
// nobody writes it. A process that waits for another one is ready: a rollout ends the
// other only after that.
func unwritten(all []postgres.Projection, isHeld, isProjecting bool) (wrong []string) {
	if !isHeld {
		return []string{"nobody writes SQL yet"}
	}
	for _, p := range all {
		if p.AsOf.IsZero() && isProjecting {
			wrong = append(wrong, p.Resource+": not written yet")
		}
	}
	return wrong
}

var (
	labels    = []string{"scope", "cluster", "resource"}
	published = prometheus.NewDesc("informctl_publish_published", "1 if the scope is published and the API server tells of it, else 0.", labels, nil)
	marked    = prometheus.NewDesc("informctl_publish_last_mark_timestamp_seconds", "When the last resource version was published.", labels, nil)
	changes   = prometheus.NewDesc("informctl_publish_log_changes", "Changes in the log, for followers that were away.", labels, nil)
	bytes     = prometheus.NewDesc("informctl_publish_log_bytes", "Size of the objects in the log.", labels, nil)
	written   = prometheus.NewDesc("informctl_publish_sql_as_of_timestamp_seconds", "The tables of SQL have what was published then, 0 if they have nothing. Only of --sql.", labels, nil)
	skipped   = prometheus.NewDesc("informctl_publish_sql_skipped_total", "States of objects that SQL does not have, because jsonb or an index refuses them. Only of --sql.", labels, nil)
)

// Describe implements prometheus.Collector.
func (of *observed) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{published, marked, changes, bytes, written, skipped} {
		ch <- d
	}
}

// Collect implements prometheus.Collector, with all scopes of the database.
func (of *observed) Collect(ch chan<- prometheus.Metric) {
	db := of.db.Load()
	if db == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, err := db.Scopes(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(published, err)
		return
	}
	of.collectSQL(ctx, db, ch)
	for _, s := range all {
		gauge := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, strconv.FormatInt(s.ID, 10), s.Scope.Cluster, s.Scope.Resource)
		}
		up := 0.0
		if s.State() == "published" {
			up = 1
		}
		gauge(published, up)
		if !s.MarkTime.IsZero() {
			gauge(marked, float64(s.MarkTime.UnixNano())/1e9)
		}
		gauge(changes, float64(s.Rows))
		gauge(bytes, float64(s.Bytes))
	}
}

// collectSQL collects how far SQL is written, if this process writes it.
func (of *observed) collectSQL(ctx context.Context, db *postgres.DB, ch chan<- prometheus.Metric) {
	if !of.sql {
		return
	}
	all, _, err := db.Projections(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(written, err)
		return
	}
	for _, p := range all {
		values := []string{strconv.FormatInt(p.ID, 10), p.Cluster, p.Resource}
		asOf := 0.0
		if !p.AsOf.IsZero() {
			asOf = float64(p.AsOf.UnixNano()) / 1e9
		}
		ch <- prometheus.MustNewConstMetric(written, prometheus.GaugeValue, asOf, values...)
		ch <- prometheus.MustNewConstMetric(skipped, prometheus.CounterValue, float64(p.Skipped), values...)
	}
}
