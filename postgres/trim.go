package postgres

import (
	"context"

	"k8s.io/klog/v2"
)

// trimPart is how many rows are looked at, and deleted, at once.
const trimPart = 2000

// trim brings the logs within KeepAge and KeepBytes.
func (p *publisher) trim(ctx context.Context) {
	for _, s := range p.all() {
		for more := true; more && !isOver(ctx); {
			floor, err := p.db.trimPart(ctx, s.w.id, s.floor, p.opts)
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
// The last mark always stays.
func (db *DB) trimPart(ctx context.Context, scope, floor int64, opts PublishOptions) (int64, error) {
	var to int64
	err := db.pool.QueryRow(ctx, db.sql(`SELECT coalesce(max(t.seq), 0)
		FROM (SELECT seq, kind, at, bytes FROM informctl.change WHERE scope = $1 AND seq >= $2 ORDER BY seq LIMIT $3) t,
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
