package postgres

import (
	"context"
	"math"
	"time"

	"k8s.io/klog/v2"
)

// trimPart is how many rows are looked at, and deleted, at once.
const trimPart = 2000

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
	for _, s := range p.all() {
		for more := true; more && !isOver(ctx); {
			floor, err := p.db.trimPart(ctx, s.w.id, s.floor, opts)
			if err != nil {
				klog.FromContext(ctx).V(2).Info("A log was not trimmed", "scope", s.w.scope.String(), "err", err.Error())
				break
			}
			more = floor > s.floor
			s.floor = floor
		}
	}
}

// trimPart deletes rows before a mark that is too old or beyond the bytes to keep, from
// floor on, and returns the number of that mark, which stays: a watch may begin at it.
// The last mark always stays. A mark is as old as the newest one before it: the clock may
// have been behind when it was written, and one to come is of a clock that was ahead.
func (db *DB) trimPart(ctx context.Context, scope, floor int64, opts PublishOptions) (int64, error) {
	var to int64
	err := db.pool.QueryRow(ctx, db.sql(`SELECT coalesce(max(t.seq), 0)
		FROM (SELECT seq, kind, max(at) FILTER (WHERE at <= clock_timestamp()) OVER (ORDER BY seq) AS at, bytes FROM informctl.change WHERE scope = $1 AND seq >= $2 ORDER BY seq LIMIT $3) t,
			LATERAL (SELECT seq, bytes FROM informctl.change WHERE scope = $1 ORDER BY seq DESC LIMIT 1) l
		WHERE t.kind = 'B' AND t.seq <= l.seq AND (t.at < clock_timestamp() - $4 * interval '1 millisecond' OR t.bytes < l.bytes - $5)`),
		scope, floor, trimPart, opts.KeepAge.Milliseconds(), opts.KeepBytes).Scan(&to)
	if err != nil {
		return floor, err
	}
	if to <= floor {
		// A commit may have more rows than were looked at.
		err = db.pool.QueryRow(ctx, db.sql(`SELECT coalesce((SELECT m.seq FROM (
				SELECT seq, at, bytes FROM informctl.change WHERE scope = $1 AND seq > $2 AND kind = 'B' ORDER BY seq LIMIT 1) m,
				LATERAL (SELECT bytes FROM informctl.change WHERE scope = $1 ORDER BY seq DESC LIMIT 1) l
			WHERE m.at < clock_timestamp() - $3 * interval '1 millisecond' OR m.bytes < l.bytes - $4), 0)`),
			scope, floor, opts.KeepAge.Milliseconds(), opts.KeepBytes).Scan(&to)
		if err != nil || to <= floor {
			return floor, err
		}
	}
	_, err = db.pool.Exec(ctx, db.sql("DELETE FROM informctl.change WHERE scope = $1 AND seq >= $2 AND seq < $3"), scope, floor, to)
	return to, err
}
