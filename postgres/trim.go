package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"
)

const (
	// trimRows is how many rows of a scope are looked at, and deleted, at once.
	trimRows = 2000
	// trimScopes is of how many scopes rows are looked at in one statement.
	trimScopes = 500
)

// maxSkew is how far the clock of the database may be from this machine's for something
// to be deleted by age: one that has jumped, as by a failover, says nothing of ages.
const maxSkew = time.Hour

// knowsAges reports whether the clock of the database agrees with this machine's.
func (db *DB) knowsAges(ctx context.Context) (bool, error) {
	var now time.Time
	if err := db.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return false, err
	}
	ahead := -time.Since(now)
	isSkewed := ahead.Abs() > maxSkew
	if db.skewed.Swap(isSkewed) != isSkewed && isSkewed {
		klog.FromContext(ctx).Info("The clock of the database is not this machine's, nothing is deleted by age", "ahead", ahead.Round(time.Second))
	}
	return !isSkewed, nil
}

// trim brings the logs within KeepAge and KeepBytes.
func (p *publisher) trim(ctx context.Context) {
	opts := p.opts
	switch known, err := p.db.knowsAges(ctx); {
	case err != nil:
		klog.FromContext(ctx).V(2).Info("No log was trimmed", "err", err.Error())
		return
	case !known:
		opts.KeepAge = math.MaxInt64
	}
	for sinks := range slices.Chunk(p.all(), trimScopes) {
		for len(sinks) > 0 && !isOver(ctx) {
			scopes, floors := make([]int64, len(sinks)), make([]int64, len(sinks))
			for i, s := range sinks {
				scopes[i], floors[i] = s.w.id, s.floor
			}
			ends, err := p.db.trimEnds(ctx, scopes, floors, opts)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("No log was trimmed", "err", err.Error())
				return
			}
			var more []*sink // may have more to delete
			for i, s := range sinks {
				if ends[i] <= s.floor {
					continue
				}
				if err := p.db.trimTo(ctx, s.w.id, s.floor, ends[i]); err != nil {
					klog.FromContext(ctx).V(2).Info("A log was not trimmed", "scope", s.w.scope.String(), "err", err.Error())
					continue
				}
				s.floor = ends[i]
				more = append(more, s)
			}
			sinks = more
		}
	}
}

// trimTo deletes the rows of a scope from a floor up to an end of trimEnds.
func (db *DB) trimTo(ctx context.Context, scope, floor, end int64) error {
	_, err := db.pool.Exec(ctx, db.sql("DELETE FROM informctl.change WHERE scope = $1 AND seq >= $2 AND seq < $3"), scope, floor, end)
	return err
}

// trimEnds returns for each scope the number of a mark that is too old or beyond the
// bytes to keep, 0 if there is none among the rows that are looked at, from floor on.
// What is before the mark may be deleted, and the mark stays: a watch may begin at it.
// The last mark always stays. A mark is as old as the newest one before it: the clock may
// have been behind when it was written, and one to come is of a clock that was ahead.
func (db *DB) trimEnds(ctx context.Context, scopes, floors []int64, opts PublishOptions) (ends []int64, err error) {
	// A commit may have more rows than are looked at: then its mark is looked for.
	rows, err := db.pool.Query(ctx, db.sql(`SELECT greatest(coalesce(a.seq, 0), coalesce(b.seq, 0))
		FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS i(scope, floor, n)
		LEFT JOIN LATERAL (SELECT seq, bytes FROM informctl.change WHERE scope = i.scope ORDER BY seq DESC LIMIT 1) l ON true
		LEFT JOIN LATERAL (SELECT max(t.seq) AS seq FROM (
				SELECT seq, kind, max(at) FILTER (WHERE at <= clock_timestamp()) OVER (ORDER BY seq) AS at, bytes
				FROM informctl.change WHERE scope = i.scope AND seq >= i.floor ORDER BY seq LIMIT $3) t
			WHERE t.kind = 'B' AND t.seq <= l.seq AND (t.at < clock_timestamp() - $4 * interval '1 millisecond' OR t.bytes < l.bytes - $5)) a ON true
		LEFT JOIN LATERAL (SELECT m.seq FROM (
				SELECT seq, at, bytes FROM informctl.change WHERE scope = i.scope AND seq > i.floor AND kind = 'B' ORDER BY seq LIMIT 1) m
			WHERE coalesce(a.seq, 0) <= i.floor AND (m.at < clock_timestamp() - $4 * interval '1 millisecond' OR m.bytes < l.bytes - $5)) b ON true
		ORDER BY i.n`), scopes, floors, trimRows, opts.KeepAge.Milliseconds(), opts.KeepBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}
