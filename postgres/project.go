package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

//go:embed project.sql
var projectSQL string

// SQLSchema is the schema of what Project writes.
const SQLSchema = "kube"

// ProjectOptions configure Project. The zero value is usable.
type ProjectOptions struct {
	// Every is how long Project waits when it has read all there is. 0 means 500 ms.
	Every time.Duration
	// Keep is how long kube.history keeps a change. 0 means 30 days.
	Keep time.Duration
	// TTL is how long another projector waits for one that is gone. 0 means 10 s.
	TTL time.Duration
}

func (o ProjectOptions) withDefaults() ProjectOptions {
	if o.Every <= 0 {
		o.Every = 500 * time.Millisecond
	}
	if o.Keep <= 0 {
		o.Keep = 30 * 24 * time.Hour
	}
	if o.TTL <= 0 {
		o.TTL = 10 * time.Second
	}
	return o
}

// projectRows and projectBytes bound what Project reads at once.
var projectRows, projectBytes = 1000, 16 << 20

// MigrateSQL creates the tables of Project in the schema SQLSchema, if they are not
// there.
func MigrateSQL(ctx context.Context, dsn string, opts Options) error {
	return migrate(ctx, dsn, opts, SQLSchema, projectSQL)
}

// Project writes all that is published as jsonb to the tables kube.object and
// kube.history, until the context ends. It follows the log as any follower does, from a
// place that it stores with what it has written; where the log does not tell, it compares
// the objects. One projector at a time does so. What jsonb refuses is skipped, counted in
// kube.place and logged. The error is ErrSchema if the tables are missing, are or become
// of another version, or have what is published in another schema.
func (db *DB) Project(ctx context.Context, opts ProjectOptions) error {
	opts = opts.withDefaults()
	for {
		err := db.claimSQL(ctx)
		if err == nil {
			break
		}
		if isOver(ctx) {
			return nil
		}
		if !IsUnreachable(err) {
			return err
		}
		db.failed(ctx, err)
		klog.FromContext(ctx).Info("The tables of SQL cannot be asked for", "err", err.Error())
		pause(ctx, opts.TTL/5)
	}
	l := &lease{db: db, table: SQLSchema + ".lease", group: SQLSchema, holder: newHolder(), ttl: opts.TTL}
	for {
		if err := l.acquire(ctx); err != nil {
			if isOver(ctx) {
				return nil
			}
			return fmt.Errorf("project: %w", err)
		}
		klog.FromContext(ctx).Info("Writing SQL", "schema", SQLSchema)
		db.projecting.Add(1)
		err := db.project(ctx, l, opts)
		db.projecting.Add(-1)
		l.release(ctx)
		switch {
		case isOver(ctx):
			return nil
		case errors.Is(err, ErrSchema):
			return fmt.Errorf("project: %w", err)
		}
		klog.FromContext(ctx).Info("Writing SQL has ended, the lease is waited for", "err", err.Error())
	}
}

var errNoSQL = fmt.Errorf("%w: there are none in schema %s; run: informctl postgres migrate --sql", ErrSchema, SQLSchema)

// claimSQL makes the tables of SQL those of this feed, if they are of none yet. The error
// is ErrSchema if they are of another: its scopes have the same numbers.
func (db *DB) claimSQL(ctx context.Context) error {
	var feed string
	const ask = "SELECT feed FROM kube.version"
	err := db.pool.QueryRow(ctx, ask).Scan(&feed)
	if err == nil && feed == "" {
		if _, err = db.pool.Exec(ctx, "UPDATE kube.version SET feed = $1 WHERE feed = ''", db.opts.Schema); err == nil {
			err = db.pool.QueryRow(ctx, ask).Scan(&feed) // another may be first
		}
	}
	switch {
	case codeOf(err) == undefinedTable:
		return errNoSQL
	case err != nil:
		return fmt.Errorf("read whose the tables in %s are: %w", SQLSchema, err)
	case feed != db.opts.Schema:
		return fmt.Errorf("%w: schema %s has what is published in schema %s, and cannot have that of %s, too; use another database", ErrSchema, SQLSchema, feed, db.opts.Schema)
	}
	return nil
}

// project runs until the context ends or the lease is lost.
func (db *DB) project(ctx context.Context, l *lease, opts ProjectOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	renewed := make(chan struct{})
	go func() { // ends with ctx
		defer close(renewed)
		cancel(l.renew(ctx, nothing, nothing))
	}()
	p := &projector{db: db, lease: l, opts: opts}
	var cleaned time.Time
	for !isOver(ctx) {
		more, err := p.step(ctx)
		if errors.Is(err, ErrSchema) {
			cancel(err)
			break
		}
		if err != nil && !isOver(ctx) {
			db.failed(ctx, err)
			klog.FromContext(ctx).Info("SQL was not written, it is tried again", "err", err.Error())
		}
		if time.Since(cleaned) > time.Minute {
			cleaned = time.Now()
			p.clean(ctx)
			p.makeViews(ctx)
		}
		if more && err == nil {
			continue
		}
		pause(ctx, opts.Every)
	}
	<-renewed
	return context.Cause(ctx)
}

// nothing is what a projector hears of the API server.
func nothing() []int64 { return nil }

// projector writes SQL while it holds the lease.
type projector struct {
	db    *DB
	lease *lease
	opts  ProjectOptions
}

// projected is a scope and the projector's place in its log.
type projected struct {
	id                int64
	cluster, resource string
	kind              schema.GroupVersionKind
	place             *anchor    // nil: it has none
	isOther           bool       // the place is of another resource or cluster
	asOf              *time.Time // of the place
	isThere           bool       // the log has the row at the place
	last              anchor     // a mark
	lastAt            time.Time
}

// step brings each scope forward by a part. It reports whether there is more to do.
func (p *projector) step(ctx context.Context) (more bool, err error) {
	if err := p.checkVersions(ctx, p.db.pool); err != nil {
		return false, err
	}
	rows, err := p.db.pool.Query(ctx, p.db.sql(`SELECT s.id, s.cluster, s.resource, s.api_version, s.kind, pl.seq, pl.tx, pl.rv, coalesce((pl.cluster, pl.resource) <> (s.cluster, s.resource), false), pl.as_of, c.seq IS NOT NULL, l.seq, l.rv, l.tx, l.at
		FROM informctl.scope s
		JOIN LATERAL (SELECT seq, rv, tx, at FROM informctl.change WHERE scope = s.id ORDER BY seq DESC LIMIT 1) l ON true
		LEFT JOIN kube.place pl ON pl.scope = s.id
		LEFT JOIN informctl.change c ON c.scope = s.id AND c.seq = pl.seq AND c.tx = pl.tx
		WHERE (s.complete AND pl.seq IS DISTINCT FROM l.seq OR pl.tx IS DISTINCT FROM l.tx) AND NOT `+superseded))
	if err != nil {
		return false, err
	}
	scopes, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s projected, err error) {
		var apiVersion, kind string
		var seq, tx, rv *int64
		err = row.Scan(&s.id, &s.cluster, &s.resource, &apiVersion, &kind, &seq, &tx, &rv, &s.isOther, &s.asOf, &s.isThere, &s.last.seq, &s.last.rv, &s.last.tx, &s.lastAt)
		s.kind = schema.FromAPIVersionAndKind(apiVersion, kind)
		if seq != nil {
			s.place = &anchor{seq: *seq, tx: *tx, rv: *rv}
		}
		return s, err
	})
	if err != nil {
		return false, err
	}
	var errs []error
	isNew := false
	for _, s := range scopes {
		if s.place == nil && !canBeView(s.resource) {
			klog.FromContext(ctx).Info("A resource has no view: a view cannot be called so", "resource", s.resource)
		}
		isNew = isNew || s.place == nil || s.isOther
		again, err := p.bring(ctx, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s of %s: %w", s.resource, s.cluster, err))
		}
		more = more || again
	}
	if isNew {
		p.makeViews(ctx)
	}
	return more, errors.Join(errs...)
}

// querier is a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// checkVersions returns ErrSchema if the tables of the feed or those of SQL are of
// another version: a newer program has migrated them.
func (p *projector) checkVersions(ctx context.Context, of querier) error {
	var feed, sql int
	err := of.QueryRow(ctx, p.db.sql("SELECT f.version, s.version FROM informctl.version f CROSS JOIN kube.version s")).Scan(&feed, &sql)
	if err == nil && (feed != version || sql != version) {
		err = fmt.Errorf("%w: they have versions %d and, in schema %s, %d, this program knows %d", ErrSchema, feed, SQLSchema, sql, version)
	}
	return err
}

// projectedRow is a row for the tables of SQL.
type projectedRow struct {
	logRow
	at                   time.Time
	key                  []byte
	namespace, name, uid string
	json                 string
}

// bring brings a scope forward. It reports whether there is more.
func (p *projector) bring(ctx context.Context, s projected) (more bool, err error) {
	if s.isOther {
		if err := p.forget(ctx, s); err != nil {
			return false, err
		}
		s.place, s.asOf = nil, nil
	}
	if s.place == nil || !s.isThere {
		return false, p.compare(ctx, s)
	}
	rows, err := p.rows(ctx, s)
	if err != nil {
		return false, err
	}
	for i, r := range rows {
		if r.kind != broken && r.seq == s.place.seq+int64(i)+1 {
			continue
		}
		if i > 0 { // what is in order before it
			return true, p.write(ctx, s, rows[:i])
		}
		return true, p.compare(ctx, s)
	}
	if len(rows) == 0 {
		return false, nil
	}
	return true, p.write(ctx, s, rows)
}

// rows reads a part of the log after the place.
func (p *projector) rows(ctx context.Context, s projected) ([]projectedRow, error) {
	rows, err := p.db.pool.Query(ctx, p.db.sql(`SELECT seq, rv, tx, kind, form, data, at, key, namespace, name, uid FROM (
			SELECT *, bytes - first_value(bytes) OVER (ORDER BY seq) AS before FROM informctl.change WHERE scope = $1 AND seq > $2 ORDER BY seq LIMIT $3
		) t WHERE before < $4 ORDER BY seq`), s.id, s.place.seq, projectRows, projectBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r projectedRow, err error) {
		var namespace, name, uid *string
		err = row.Scan(&r.seq, &r.rv, &r.tx, &r.kind, &r.form, &r.data, &r.at, &r.key, &namespace, &name, &uid)
		if name != nil {
			r.namespace, r.name, r.uid = *namespace, *name, *uid
		}
		return r, err
	})
}

// write writes a part of the log, in transactions that write the place after their rows,
// too.
func (p *projector) write(ctx context.Context, s projected, rows []projectedRow) error {
	d, err := newDecoder(&unstructured.Unstructured{}, s.kind)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n, objects, skipped := decoded(d, rows)
		part := rows[:n]
		rows = rows[n:]
		asOf := time.Time{}
		for _, r := range part {
			if r.kind == mark {
				asOf = r.at
			}
		}
		if skipped, err = p.accepted(ctx, s, objects, skipped, func(fine []projectedRow, skipped []string) error {
			return p.writePart(ctx, s, part, fine, asOf, skipped)
		}); err != nil {
			return err
		}
		logSkipped(ctx, s, skipped)
		s.place = &part[n-1].anchor
		if !asOf.IsZero() {
			s.asOf = &asOf
		}
	}
	return nil
}

// writePart writes all rows of a part: the deletions, and what is fine of the others.
func (p *projector) writePart(ctx context.Context, s projected, all, fine []projectedRow, asOf time.Time, skipped []string) error {
	return pgx.BeginFunc(ctx, p.db.pool, func(tx pgx.Tx) error {
		if err := p.fence(ctx, tx, s); err != nil {
			return err
		}
		b := &pgx.Batch{}
		final := map[string]projectedRow{}
		var h struct {
			seqs, rvs                               []int64
			changes, namespaces, names, uids, jsons []string
			ats                                     []time.Time
			afters                                  []*time.Time
		}
		left := fine
		for _, r := range all {
			isFine := len(left) > 0 && left[0].seq == r.seq
			if isFine {
				r, left = left[0], left[1:]
			}
			// A deletion needs no content: only its history is skipped.
			if isFine || r.kind == deleted || r.kind == gone {
				final[string(r.key)] = r
			}
			if !isFine {
				continue
			}
			change, after := "updated", (*time.Time)(nil)
			switch r.kind {
			case added, listedNew:
				change = "created"
			case deleted, gone:
				change = "deleted"
			}
			if r.kind == gone || r.kind == listedNew || r.kind == listedChanged {
				after = s.markBefore(all, r)
			}
			h.seqs, h.rvs, h.changes = append(h.seqs, r.seq), append(h.rvs, r.rv), append(h.changes, change)
			h.namespaces, h.names, h.uids = append(h.namespaces, r.namespace), append(h.names, r.name), append(h.uids, r.uid)
			h.jsons, h.ats, h.afters = append(h.jsons, r.json), append(h.ats, r.at), append(h.afters, after)
		}
		if len(h.seqs) > 0 {
			b.Queue(`INSERT INTO kube.history (scope, cluster, resource, seq, change, at, after, namespace, name, uid, rv, object)
				SELECT $1, $2, $3, t.seq, t.change, t.at, t.after, t.namespace, t.name, t.uid, t.rv, t.object::jsonb
				FROM unnest($4::bigint[], $5::text[], $6::timestamptz[], $7::timestamptz[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::text[]) AS t(seq, change, at, after, namespace, name, uid, rv, object)
				ON CONFLICT DO NOTHING`,
				s.id, s.cluster, s.resource, h.seqs, h.changes, h.ats, h.afters, h.namespaces, h.names, h.uids, h.rvs, h.jsons)
		}
		queueObjects(b, s, final)
		queuePlace(b, s, all[len(all)-1].anchor, asOf, skipped)
		return tx.SendBatch(ctx, b).Close()
	})
}

// markBefore returns when the scope was last known to be complete before a row that a
// list has found.
func (s projected) markBefore(rows []projectedRow, r projectedRow) *time.Time {
	at := s.asOf
	for i := range rows {
		if rows[i].seq >= r.seq {
			break
		}
		if rows[i].kind == mark {
			at = &rows[i].at
		}
	}
	return at
}

// sqlObjects are the columns of rows of kube.object.
type sqlObjects struct {
	keys                           [][]byte
	namespaces, names, uids, jsons []string
	rvs                            []int64
}

func (o *sqlObjects) add(r projectedRow) {
	o.keys, o.rvs, o.jsons = append(o.keys, r.key), append(o.rvs, r.rv), append(o.jsons, r.json)
	o.namespaces, o.names, o.uids = append(o.namespaces, r.namespace), append(o.names, r.name), append(o.uids, r.uid)
}

// args are the arguments of a statement with ofSQL.
func (o *sqlObjects) args(s projected) []any {
	return []any{s.id, s.cluster, s.resource, o.keys, o.namespaces, o.names, o.uids, o.rvs, o.jsons}
}

const ofSQL = "unnest($4::bytea[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[]) AS t(key, namespace, name, uid, rv, object)"

// queue inserts the objects, or replaces those that differ.
func (o *sqlObjects) queue(b *pgx.Batch, s projected) {
	if len(o.keys) == 0 {
		return
	}
	b.Queue(`INSERT INTO kube.object AS k (scope, cluster, resource, key, namespace, name, uid, rv, object)
		SELECT $1, $2, $3, t.key, t.namespace, t.name, t.uid, t.rv, t.object::jsonb FROM `+ofSQL+`
		ON CONFLICT (scope, key) DO UPDATE SET uid = excluded.uid, rv = excluded.rv, object = excluded.object
		WHERE k.rv <> excluded.rv OR k.uid <> excluded.uid OR k.object <> excluded.object`, o.args(s)...)
}

// queueObjects applies the last state of each key.
func queueObjects(b *pgx.Batch, s projected, final map[string]projectedRow) {
	var objects sqlObjects
	var gones [][]byte
	for _, r := range final {
		if r.kind == deleted || r.kind == gone {
			gones = append(gones, r.key)
		} else {
			objects.add(r)
		}
	}
	if len(gones) > 0 {
		b.Queue("DELETE FROM kube.object WHERE scope = $1 AND key = ANY ($2)", s.id, gones)
	}
	objects.queue(b, s)
}

func queuePlace(b *pgx.Batch, s projected, at anchor, asOf time.Time, skipped []string) {
	last := ""
	if len(skipped) > 0 {
		last = readable(skipped[len(skipped)-1])
	}
	var moment *time.Time // nil: as it was
	if !asOf.IsZero() {
		moment = &asOf
	}
	b.Queue(`INSERT INTO kube.place AS p (scope, cluster, resource, seq, tx, rv, as_of, skipped, skipped_last)
		VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, clock_timestamp()), $8, $9)
		ON CONFLICT (scope) DO UPDATE SET seq = excluded.seq, tx = excluded.tx, rv = excluded.rv, as_of = coalesce($7, p.as_of),
			skipped = p.skipped + excluded.skipped, skipped_last = CASE WHEN excluded.skipped > 0 THEN excluded.skipped_last ELSE p.skipped_last END`,
		s.id, s.cluster, s.resource, at.seq, at.tx, at.rv, moment, len(skipped), last)
}

// fence locks the place of a scope, and returns errFenced if it is not where this
// projector has left it: another one writes. The error is ErrSchema as of checkVersions.
func (p *projector) fence(ctx context.Context, tx pgx.Tx, s projected) error {
	if err := p.checkVersions(ctx, tx); err != nil {
		return err
	}
	var at anchor
	err := tx.QueryRow(ctx, "SELECT seq, tx, rv FROM kube.place WHERE scope = $1 FOR UPDATE", s.id).Scan(&at.seq, &at.tx, &at.rv)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && s.place == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows), err == nil && (s.place == nil || at != *s.place):
		return errFenced
	}
	return err
}
