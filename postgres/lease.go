package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"
)

// lease is the right to publish a group of scopes. Only liveness depends on it: commits
// are fenced by the epoch of their scope.
type lease struct {
	db     *DB
	table  string
	group  string
	holder string // by chance, of one Publish
	ttl    time.Duration
}

// sql returns a statement with the name of the table instead of LEASE.
func (l *lease) sql(statement string) string {
	return strings.ReplaceAll(statement, "LEASE", l.table)
}

// acquire waits for the lease.
func (l *lease) acquire(ctx context.Context) error {
	for isTold := false; ; {
		wait, err := l.try(ctx)
		if err == nil && wait == 0 {
			return nil
		}
		if isRefused(err) {
			return err
		}
		if err != nil {
			l.db.failed(ctx, err)
			klog.FromContext(ctx).Info("The lease cannot be asked for", "group", l.group, "err", err.Error())
			wait = l.ttl / 5
		} else if !isTold {
			isTold = true
			klog.FromContext(ctx).Info("Another process has the lease, which is waited for", "group", l.group)
		}
		if !pause(ctx, wait+rand.N(l.ttl/10+1)) {
			return context.Cause(ctx)
		}
	}
}

// try takes the lease if it is free, or returns how long it is not.
func (l *lease) try(ctx context.Context) (wait time.Duration, err error) {
	ms := l.ttl.Milliseconds()
	var left float64
	// SELECT first: candidates write nothing while the lease is held. A lease whose last
	// renewal is in the future is not held: it is of the clock before a failover, and may
	// expire hours from now.
	err = l.db.pool.QueryRow(ctx, l.sql(`SELECT greatest(extract(epoch FROM expires) - extract(epoch FROM clock_timestamp()), -1)::float8
		FROM LEASE WHERE grp = $1 AND holder <> $2 AND heard <= clock_timestamp() + $3 * interval '1 millisecond'`), l.group, l.holder, ms).Scan(&left)
	if err == nil && left > 0 {
		return min(time.Duration(left*float64(time.Second)), l.ttl), nil
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, err
	}
	tag, err := l.db.pool.Exec(ctx, l.sql(`INSERT INTO LEASE AS l (grp, holder, expires, heard) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 millisecond', '-infinity')
		ON CONFLICT (grp) DO UPDATE SET holder = excluded.holder, expires = excluded.expires, heard = least(l.heard, clock_timestamp())
		WHERE l.holder = $2 OR l.expires < clock_timestamp() OR l.heard > clock_timestamp() + $3 * interval '1 millisecond'`), l.group, l.holder, ms)
	if err != nil {
		return 0, err
	}
	if tag.RowsAffected() == 0 {
		return l.ttl / 5, nil
	}
	return 0, nil
}

// renew keeps the lease until the context ends, on a connection of its own, so that it
// does not wait for commits. silent returns the scopes of which nothing was heard, and
// heardOf those of which that is known: others stay as they are. It returns errFenced
// when somebody else has the lease.
func (l *lease) renew(ctx context.Context, silent, heardOf func() []int64) error {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for {
		var err error
		if conn == nil {
			conn, err = pgx.ConnectConfig(ctx, l.db.pool.Config().ConnConfig)
		}
		wait := l.ttl / 3
		if err == nil {
			known := heardOf() // before silent, which may know more
			err = l.renewOnce(ctx, conn, silent(), known)
		}
		switch {
		case errors.Is(err, errFenced):
			return err
		case err != nil && !isOver(ctx):
			klog.FromContext(ctx).Info("The lease was not renewed", "group", l.group, "err", err.Error())
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
				conn = nil
			}
			wait = l.ttl / 10
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

func (l *lease) renewOnce(ctx context.Context, conn *pgx.Conn, silent, known []int64) error {
	ctx, cancel := context.WithTimeout(ctx, l.ttl/2)
	defer cancel()
	tag, err := conn.Exec(ctx, l.sql(`UPDATE LEASE SET expires = clock_timestamp() + $3 * interval '1 millisecond', heard = clock_timestamp(),
			silent = ARRAY(SELECT unnest(silent) EXCEPT SELECT unnest($5::bigint[]) UNION SELECT unnest($4::bigint[]))
		WHERE grp = $1 AND holder = $2`), l.group, l.holder, l.ttl.Milliseconds(), silent, known)
	if err == nil && tag.RowsAffected() == 0 {
		return errFenced
	}
	return err
}

// release gives the lease to the next candidate at once.
func (l *lease) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, _ = l.db.pool.Exec(ctx, l.sql("UPDATE LEASE SET expires = '-infinity' WHERE grp = $1 AND holder = $2"), l.group, l.holder)
}
