package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

var (
	// errFenced: another publisher has the scope, or the database went back to a state
	// before this one had it.
	errFenced = errors.New("another process publishes the scope")
	// errOtherGroup: two groups name the scope. The one that publishes it goes on.
	errOtherGroup = errors.New("the scope is published by the group")
	// errMoved: the log does not end where this publisher has ended it.
	errMoved = errors.New("the database went back to an earlier state")
	// errCheck: what a commit depends on is not in the database.
	errCheck = errors.New("rows that the database has acknowledged are not there")
)

// anchor is a row of the log. tx tells it from a row with the same number in another
// history.
type anchor struct {
	seq, rv, tx int64
}

// firstWait is how long a statement that failed waits until it is tried again, at first.
var firstWait = 100 * time.Millisecond

// writer writes one scope. One goroutine at a time uses it.
type writer struct {
	db     *DB
	holder string // of the lease
	group  string
	ttl    time.Duration
	scope  store.Scope

	id       int64
	epoch    int64
	raises   int64         // of the epoch, whose outcome is not known
	end      anchor        // the last row, which is a mark, once there is one
	bytes    int64         // of data, up to the end
	age      time.Duration // of the end, or how far it is in the future, at the take-over
	complete bool
	caught   bool // marks say so
	failed   bool // the scope has a problem until a list has ended
	rewound  bool // that problem was a rewind of history when this writer took over

	wrote func(id int64) // is called after each commit
}

// takeOver makes this writer the only one of its scope, and reads where its log ends. It
// waits for a commit in flight.
func (w *writer) takeOver(ctx context.Context) error {
	id, err := w.db.register(ctx, w.group, w.scope)
	if err != nil {
		return err
	}
	w.id, w.caught = id, false
	if err := w.noteSilence(ctx); err != nil {
		return err
	}
	var problem string
	err = w.locked(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, w.db.sql(`UPDATE informctl.scope s SET epoch = epoch + 1, holder = $2, grp = $3
			WHERE id = $1 AND EXISTS (SELECT FROM informctl.lease WHERE grp = $3 AND holder = $2)
			AND (grp = $3 OR NOT EXISTS (SELECT FROM informctl.lease o WHERE o.grp = s.grp AND o.holder = s.holder AND o.expires > clock_timestamp()
				AND o.heard <= clock_timestamp() + $4 * interval '1 millisecond'))
			RETURNING epoch, complete, problem`), w.id, w.holder, w.group, w.ttl.Milliseconds()).Scan(&w.epoch, &w.complete, &problem)
		if errors.Is(err, pgx.ErrNoRows) {
			return w.whyNot(ctx, tx)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.failed, w.rewound = problem != "", problem == reflector.Rewound
	return w.readEnd(ctx)
}

// noteSilence says in the lease that nothing was heard of a scope whose last mark is
// old. Followers take a renewal of the lease of its publisher for a sign of life, also
// one that comes before this process has heard anything.
func (w *writer) noteSilence(ctx context.Context) error {
	_, err := w.db.pool.Exec(ctx, w.db.sql(`UPDATE informctl.lease SET silent = array_append(silent, $3)
		WHERE grp = $1 AND holder = $2 AND $3 <> ALL (silent)
		AND (SELECT at FROM informctl.change WHERE scope = $3 ORDER BY seq DESC LIMIT 1) < clock_timestamp() - $4 * interval '1 millisecond'`),
		w.group, w.holder, w.id, silentAfter.Milliseconds())
	return err
}

// whyNot returns why a scope cannot be taken over: another process has the lease, or the
// publisher of another group publishes the scope.
func (w *writer) whyNot(ctx context.Context, tx pgx.Tx) error {
	var group string
	err := tx.QueryRow(ctx, w.db.sql("SELECT s.grp FROM informctl.scope s WHERE id = $1 AND grp <> $3 AND EXISTS (SELECT FROM informctl.lease WHERE grp = $3 AND holder = $2)"),
		w.id, w.holder, w.group).Scan(&group)
	if errors.Is(err, pgx.ErrNoRows) {
		return errFenced
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w %q", errOtherGroup, group)
}

// locked runs a transaction that may wait for the lock of a publisher that is gone. It
// ends that one's session after a second.
func (w *writer) locked(ctx context.Context, do func(pgx.Tx) error) error {
	for try := 0; ; try++ {
		err := pgx.BeginFunc(ctx, w.db.pool, func(tx pgx.Tx) error {
			statement, args := w.settings("1s")
			if _, err := tx.Exec(ctx, statement, args...); err != nil {
				return err
			}
			return do(tx)
		})
		if codeOf(err) != lockNotAvailable || try == 5 {
			return err
		}
		// Only sessions of the same role can be ended, and only these can hold the lock.
		if _, err := w.db.pool.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE starts_with(application_name, $1) AND usename = current_user AND datname = current_database() AND pid <> pg_backend_pid() AND xact_start < clock_timestamp() - interval '1 second'`,
			w.sessions()); err != nil {
			return fmt.Errorf("end the session of the publisher before: %w", err)
		}
	}
}

// sessions is how the application_name of every session begins that writes the scope.
// PostgreSQL cuts these names at 63 bytes, which that of a schema may have.
func (w *writer) sessions() string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(w.db.opts.Schema))
	return fmt.Sprintf("informctl/%08x/%d/", h.Sum32(), w.id)
}

func (w *writer) session() string { return w.sessions() + strconv.FormatInt(w.epoch, 10) }

func (w *writer) readEnd(ctx context.Context) error {
	w.end, w.bytes, w.age = anchor{}, 0, 0
	var seconds float64
	err := w.db.pool.QueryRow(ctx, w.db.sql(`SELECT seq, rv, tx, bytes, abs(extract(epoch FROM clock_timestamp() - at))::float8
		FROM informctl.change WHERE scope = $1 ORDER BY seq DESC LIMIT 1`), w.id).
		Scan(&w.end.seq, &w.end.rv, &w.end.tx, &w.bytes, &seconds)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	w.age = time.Duration(seconds * float64(time.Second))
	return err
}

// settings bounds how long a transaction of a publisher that is gone keeps its locks: the
// keepalives find a host that does not answer, before the server waits for a statement. A
// statement has no limit of time on the server, whatever the database or the role sets:
// some take as long as the collection is large, and the context bounds all others.
func (w *writer) settings(lockTimeout string) (statement string, args []any) {
	ttl := strconv.FormatInt(w.ttl.Milliseconds(), 10)
	return `SELECT set_config('application_name', $1, true), set_config('idle_in_transaction_session_timeout', $2, true),
		set_config('lock_timeout', $3, true), set_config('statement_timeout', '0', true), set_config('tcp_user_timeout', $2, true), set_config('tcp_keepalives_idle', '3', true),
		set_config('tcp_keepalives_interval', '3', true), set_config('tcp_keepalives_count', '2', true)`, []any{w.session(), ttl, lockTimeout}
}

// fence locks the scope against a take-over, and checks that the log ends where this
// writer has ended it.
func (w *writer) fence(b *batch) {
	statement, args := w.settings(strconv.FormatInt(w.ttl.Milliseconds(), 10))
	b.Queue(statement, args...)
	b.Queue(w.db.sql(`SELECT v.version, coalesce(c.seq, 0), coalesce(c.tx, 0)
		FROM informctl.scope s CROSS JOIN informctl.version v
		LEFT JOIN LATERAL (SELECT seq, tx FROM informctl.change WHERE scope = s.id ORDER BY seq DESC LIMIT 1) c ON true
		WHERE s.id = $1 AND s.epoch = $2 AND s.holder = $3 FOR SHARE OF s`), w.id, w.epoch, w.holder)
}

func (w *writer) readFence(r *results) error {
	if _, err := r.next(); err != nil { // the settings
		return err
	}
	row, err := r.next()
	switch {
	case err != nil:
		return err
	case row == nil:
		return errFenced
	case row[0] != strconv.Itoa(version):
		return fmt.Errorf("%w: they have version %s, this program knows %d", ErrSchema, row[0], version)
	case row[1] != strconv.FormatInt(w.end.seq, 10) || row[2] != strconv.FormatInt(w.end.tx, 10):
		return errMoved
	}
	return nil
}

// commit is a transaction: what it does between the fence and COMMIT, and where the log
// ends after it.
type commit struct {
	queue  func(b *batch, tx int64) // tx is the number of the transaction's rows
	end    anchor                   // without tx
	bytes  int64
	isLong bool // it ends a list, and has as many rows as that has differences
	checks int  // queries of queue whose one boolean column must be true
	// problem is what the scope has from now on; "" does not change it.
	problem string
}

// run commits. It tries again until the outcome is known: a transaction is committed if
// and only if its last row is there. The error is errFenced, errMoved, ErrSchema, one
// that the database will answer again, or that of the context.
func (w *writer) run(ctx context.Context, c commit) error {
	for wait := firstWait; ; wait = min(2*wait, 2*time.Second) {
		c.end.tx = rand.Int64()
		err := w.timely(ctx, c)
		if err == nil {
			w.ended(c)
			return nil
		}
		w.db.failed(ctx, err)
		if isOver(ctx) || isFinal(err) {
			return err
		}
		klog.FromContext(ctx).Info("A commit failed, its outcome is looked up", "err", err.Error())
		for {
			if !pause(ctx, wait) {
				return context.Cause(ctx)
			}
			there, err := w.isThere(ctx, c.end)
			if err == nil && there {
				w.ended(c)
				return nil
			}
			if err == nil {
				break
			}
			w.db.failed(ctx, err)
			if isFinal(err) {
				return err
			}
			wait = min(2*wait, 2*time.Second)
		}
	}
}

func (w *writer) ended(c commit) {
	w.end, w.bytes = c.end, c.bytes
	w.failed = c.problem != "" || w.failed && !c.isLong
	w.wrote(w.id)
}

// timely runs once, within the deadline unless it is the end of a list.
func (w *writer) timely(ctx context.Context, c commit) error {
	if !c.isLong {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*deadline)
		defer cancel()
	}
	return w.once(ctx, c)
}

func (w *writer) once(ctx context.Context, c commit) error {
	tx, err := w.db.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	err = w.fenced(ctx, tx, c.checks, func(b *batch) {
		c.queue(b, c.end.tx)
		if c.problem != "" {
			b.Queue(w.db.sql("UPDATE informctl.scope SET problem = $2 WHERE id = $1"), w.id, c.problem)
		}
	})
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// fenced sends the fence and statements. The first statements are checks, with one
// boolean column that must be true.
func (w *writer) fenced(ctx context.Context, tx pgx.Tx, checks int, queue func(*batch)) error {
	b := newBatch(tx)
	w.fence(b)
	queue(b)
	results, err := b.send(ctx, tx)
	if err != nil {
		return err
	}
	err = w.readFence(results)
	for i := 0; i < checks && err == nil; i++ {
		var row []string
		if row, err = results.next(); err == nil && (len(row) != 1 || row[0] != "t") {
			err = errCheck
		}
	}
	if closeErr := results.close(); err == nil {
		err = closeErr
	}
	return err
}

// isThere reports whether the transaction with a row was committed. It raises the epoch,
// which waits for a transaction that still runs and keeps it from a later COMMIT.
func (w *writer) isThere(ctx context.Context, end anchor) (there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*deadline)
	defer cancel()
	if err := w.raiseEpoch(ctx); err != nil {
		return false, err
	}
	err = w.db.pool.QueryRow(ctx, w.db.sql("SELECT EXISTS (SELECT FROM informctl.change WHERE scope = $1 AND seq = $2 AND tx = $3)"), w.id, end.seq, end.tx).Scan(&there)
	return there, err
}

// raiseEpoch fences the statements of this writer whose outcome is not known. Those may
// be earlier calls, too: each raises the epoch further than the calls before it, whether
// or not these were committed, and one that arrives late finds it too high.
//
// It executes the statements of also in the same transaction, with the scope's id as $1.
func (w *writer) raiseEpoch(ctx context.Context, also ...string) error {
	w.raises++
	next := w.epoch + w.raises
	err := w.locked(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, w.db.sql("UPDATE informctl.scope SET epoch = $3 WHERE id = $1 AND epoch >= $2 AND epoch < $3 AND holder = $4"), w.id, w.epoch, next, w.holder)
		if err == nil && tag.RowsAffected() == 0 {
			return errFenced
		}
		for _, statement := range also {
			if err == nil {
				_, err = tx.Exec(ctx, w.db.sql(statement), w.id)
			}
		}
		return err
	})
	if err == nil {
		w.epoch, w.raises = next, 0
	}
	return err
}

// append commits rows and a mark at rv, and applies the rows to the objects. The scope
// has the problem from then on, if there is one.
func (w *writer) append(ctx context.Context, rows []row, rv int64, problem string) error {
	l := newLogRows(w.end.seq, w.bytes)
	last := map[string]*row{}
	for i := range rows {
		l.add(&rows[i], w.caught)
		last[string(rows[i].key)] = &rows[i]
	}
	l.mark(rv, w.caught)
	return w.run(ctx, commit{end: anchor{seq: l.seq, rv: rv}, bytes: l.bytes, problem: problem, queue: func(b *batch, tx int64) {
		var upserts objectRows
		var deletes [][]byte
		for _, r := range last {
			if r.kind == deleted || r.kind == gone {
				deletes = append(deletes, r.key)
			} else {
				upserts.add(r)
			}
		}
		upserts.queue(b, w.db, w.id)
		if len(deletes) > 0 {
			b.Queue(w.db.sql("DELETE FROM informctl.object WHERE scope = $1 AND key = ANY ($2)"), w.id, deletes)
		}
		l.queue(b, w.db, w.id, tx)
	}})
}
