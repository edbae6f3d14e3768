package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/reflector"
)

// partSize is how many bytes of a list are written at once.
var partSize = 4 << 20

// maxDifferences is how many differences of a list are told to watches. With more, they
// list: that is cheaper than so many rows.
var maxDifferences = 50_000

// relist receives one list. The first list of a scope is written to the objects, which
// nobody reads before it has ended; of later ones what differs goes to the table staging.
// All parts are fenced, and Finish counts them, because parts do not move the log's end.
//
// One part is written while the next one is filled. Whatever else uses the writer, or
// writes, waits for it before; so does Close.
type relist struct {
	s        *sink
	w        *writer
	id       int64
	isFirst  bool
	rewound  bool
	began    time.Time
	headers  map[string]header // of the objects before the list; none in a first list
	seen     map[string]header // of the list
	staged   map[string]bool   // of the keys in seen, those that differ from headers
	part     map[string]*row   // not written yet
	partSize int
	writing  chan error // receives the outcome of the part that is written; may be nil
	newest   int64      // resource version of the objects in the list
	passed   bool       // a difference has a resource version that the log has passed
}

func (w *writer) newRelist(ctx context.Context, s *sink, reason string) (*relist, error) {
	l := &relist{
		s: s, w: w, id: rand.Int64(), isFirst: !w.complete, rewound: reason == reflector.Rewound, began: time.Now(),
		headers: map[string]header{}, seen: map[string]header{}, staged: map[string]bool{}, part: map[string]*row{},
	}
	// Parts of an earlier list whose outcome is not known are in before this, or never.
	// What they have left goes in the same transaction: a database that goes back to
	// before it has the earlier epoch again, so this list is not added to that.
	old := []string{"DELETE FROM informctl.staging WHERE scope = $1"}
	if l.isFirst {
		old = append(old, "DELETE FROM informctl.object WHERE scope = $1")
	}
	err := l.again(ctx, func() error { return w.raiseEpoch(ctx, old...) })
	if err == nil && isRewind(reason) && !l.isFirst {
		// If this list does not end, the next one may find that the new history has
		// passed what the log has.
		w.failed = true
		err = l.fenced(ctx, func(b *batch) {
			b.Queue(w.db.sql("UPDATE informctl.scope SET problem = $2 WHERE id = $1"), w.id, reason)
		})
	}
	if err == nil && !l.isFirst {
		err = l.again(ctx, func() error { return l.readHeaders(ctx) })
	}
	return l, err
}

// again repeats what has the same result when it is repeated, until the database answers.
func (l *relist) again(ctx context.Context, do func() error) error {
	for wait := firstWait; ; wait = min(2*wait, 2*time.Second) {
		err := do()
		if err == nil || isOver(ctx) || isFinal(err) {
			return err
		}
		l.w.db.failed(ctx, err)
		klog.FromContext(ctx).Info("A part of a list was not written, it is tried again", "err", err.Error())
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
		if err := l.w.raiseEpoch(ctx); errors.Is(err, errFenced) {
			return err
		}
	}
}

// readHeaders reads what the list is compared with, behind the fence: a standby, to which
// a connection may lead, lacks what was published last.
func (l *relist) readHeaders(ctx context.Context) error {
	clear(l.headers)
	return pgx.BeginFunc(ctx, l.w.db.pool, func(tx pgx.Tx) error {
		if err := l.w.fenced(ctx, tx, 0, func(*batch) {}); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, l.w.db.sql("SELECT key, uid, rv, hash, octet_length(data) FROM informctl.object WHERE scope = $1"), l.w.id)
		if err != nil {
			return err
		}
		var key []byte
		var h header
		_, err = pgx.ForEachRow(rows, []any{&key, &h.uid, &h.rv, &h.hash, &h.size}, func() error {
			l.headers[string(key)] = h
			return nil
		})
		return err
	})
}

// Add implements reflector.Relist.
func (l *relist) Add(ctx context.Context, obj runtime.Object) error {
	l.s.hear()
	r, err := l.s.row(added, obj)
	if err != nil {
		l.s.fail(err)
		return err
	}
	key := string(r.key)
	before, had := l.headers[key]
	l.newest = max(l.newest, r.rv)
	l.seen[key] = header{uid: r.uid, rv: r.rv, hash: r.hash, size: int64(len(r.data))}
	// What differed once is written again, so that its last state counts.
	if !l.isFirst && had && before.isSame(&r) && !l.staged[key] {
		return nil
	}
	if !l.isFirst {
		l.staged[key] = true
		l.passed = l.passed || r.rv <= l.w.end.rv
	}
	l.drop(key)
	l.part[key] = &r
	if l.partSize += r.size(); l.partSize < partSize {
		return nil
	}
	return l.write(ctx)
}

// Remove implements reflector.Relist.
func (l *relist) Remove(ctx context.Context, obj runtime.Object) error {
	r, err := newRow(deleted, l.s.kind, obj)
	if err != nil {
		return err
	}
	if err := l.written(); err != nil {
		return err
	}
	key := string(r.key)
	delete(l.seen, key)
	l.drop(key)
	delete(l.staged, key)
	return l.fenced(ctx, func(b *batch) {
		if l.isFirst {
			b.Queue(l.w.db.sql("DELETE FROM informctl.object WHERE scope = $1 AND key = $2"), l.w.id, r.key)
		} else {
			b.Queue(l.w.db.sql("DELETE FROM informctl.staging WHERE scope = $1 AND list = $2 AND key = $3"), l.w.id, l.id, r.key)
		}
	})
}

// drop takes an object out of the part.
func (l *relist) drop(key string) {
	if old := l.part[key]; old != nil {
		l.partSize -= old.size()
		delete(l.part, key)
	}
}

// write begins to write the part, after the one before. A failure of the one before is
// returned.
func (l *relist) write(ctx context.Context) error {
	if err := l.written(); err != nil || len(l.part) == 0 {
		return err
	}
	var rows objectRows
	for _, r := range l.part {
		rows.add(r)
	}
	clear(l.part)
	l.partSize = 0
	l.writing = make(chan error, 1)
	go func() { // ends when the part is written, or with ctx; written waits for it
		l.writing <- l.fenced(ctx, func(b *batch) {
			if l.isFirst {
				rows.queue(b, l.w.db, l.w.id)
			} else {
				rows.stage(b, l.w.db, l.w.id, l.id)
			}
		})
	}()
	return nil
}

// written waits until no part is being written, and returns the failure of that part.
func (l *relist) written() error {
	if l.writing == nil {
		return nil
	}
	err := <-l.writing
	l.writing = nil
	return err
}

// fenced runs statements that may be repeated, if this publisher still has the scope. An
// error ends the sink: another list would end in the same way.
func (l *relist) fenced(ctx context.Context, queue func(*batch)) error {
	err := l.again(ctx, func() error {
		return pgx.BeginFunc(ctx, l.w.db.pool, func(tx pgx.Tx) error {
			return l.w.fenced(ctx, tx, 0, queue)
		})
	})
	if err != nil {
		l.s.fail(err)
	}
	return err
}

// Close implements reflector.Relist.
func (l *relist) Close() error {
	_ = l.written() // a failure has ended the sink
	l.s.listEnded()
	return nil
}

// Finish implements reflector.Relist.
func (l *relist) Finish(ctx context.Context, rv string) error {
	n := l.w.end.rv + 1 // the server's resource version rises when a resource is removed
	if rv != "" {
		var err error
		if n, err = parseRV(rv); err != nil {
			l.s.fail(err)
			return err
		}
	} else if l.isFirst {
		return errors.New("there is no such resource, so that there is nothing to publish")
	}
	if l.newest > n {
		return fmt.Errorf("the list of resource version %d has an object of %d", n, l.newest)
	}
	if err := l.write(ctx); err != nil {
		return err
	}
	if err := l.written(); err != nil {
		return err
	}
	l.s.mu.Lock()
	l.w.caught = l.s.caught && time.Since(l.began) < 2*deadline
	l.s.mu.Unlock()
	err := l.w.run(ctx, l.commit(n))
	if errors.Is(err, errCheck) {
		return err // the reflector lists again
	}
	if err != nil {
		l.s.fail(err)
		return err
	}
	l.w.complete = true
	l.s.mu.Lock()
	l.s.absent, l.s.marked = rv == "", time.Now()
	l.s.mu.Unlock()
	l.s.hearAbsence()
	l.s.listed(l.began)
	klog.FromContext(ctx).V(2).Info("A list was published", "resourceVersion", n, "objects", len(l.seen), "different", len(l.staged))
	return nil
}

// gone returns the keys of objects that the list has not, or has under another UID.
func (l *relist) gone() (keys [][]byte, size int64) {
	for key, before := range l.headers {
		if now, ok := l.seen[key]; !ok || now.uid != before.uid {
			keys = append(keys, []byte(key))
			size += before.size
		}
	}
	return keys, size
}

func (l *relist) commit(n int64) commit {
	w, db := l.w, l.w.db
	gone, bytes := l.gone()
	for key := range l.staged {
		bytes += l.seen[key].size
	}
	differences := len(gone) + len(l.staged)
	isBreak := l.rewound || n < w.end.rv || n == w.end.rv && differences > 0 || l.passed || differences > maxDifferences
	if l.isFirst {
		isBreak = false
	}
	before := w.end
	rows := logRows{seq: before.seq, bytes: w.bytes}
	since := int64(0)
	switch {
	case isBreak:
		rows.bare(broken, before.rv, w.caught)
		since = rows.seq
	default:
		rows.seq += int64(len(gone) + len(l.staged))
		rows.bytes += bytes
	}
	rows.mark(n, w.caught)
	above := n - 1
	if isBreak {
		above = max(above, before.rv)
	}
	c := commit{end: anchor{seq: rows.seq, rv: n}, bytes: rows.bytes, checks: 1, isLong: true}
	c.queue = func(b *batch, tx int64) {
		// The counts first, in the order in which run reads them.
		if l.isFirst {
			b.Queue(db.sql("SELECT count(*) = $2 FROM informctl.object WHERE scope = $1"), w.id, len(l.seen))
		} else {
			b.Queue(db.sql("SELECT count(*) = $3 FROM informctl.staging WHERE scope = $1 AND list = $2"), w.id, l.id, len(l.staged))
		}
		// What is staged was acknowledged, so it must not be lost with the transaction.
		b.Queue("SELECT set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, true)")
		b.Queue(db.sql("UPDATE informctl.scope SET complete = true, problem = '', above = greatest(above, $2), since = greatest(since, $3) WHERE id = $1"), w.id, above, since)
		if !l.isFirst && !isBreak {
			l.queueDifferences(b, tx, before, gone)
		}
		if len(gone) > 0 {
			b.Queue(db.sql("DELETE FROM informctl.object WHERE scope = $1 AND key = ANY ($2)"), w.id, gone)
		}
		if len(l.staged) > 0 {
			b.Queue(db.sql(`INSERT INTO informctl.object (scope, key, namespace, name, uid, rv, hash, form, data)
				SELECT scope, key, namespace, name, uid, rv, hash, form, data FROM informctl.staging WHERE scope = $1 AND list = $2
				ON CONFLICT (scope, key) DO UPDATE SET uid = excluded.uid, rv = excluded.rv, hash = excluded.hash, form = excluded.form, data = excluded.data`), w.id, l.id)
		}
		b.Queue(db.sql("DELETE FROM informctl.staging WHERE scope = $1"), w.id)
		rows.queue(b, db, w.id, tx)
	}
	return c
}

// queueDifferences appends the rows of what is gone, with their last states, and of what
// is staged.
func (l *relist) queueDifferences(b *batch, tx int64, before anchor, gone [][]byte) {
	w, db := l.w, l.w.db
	if len(gone) > 0 {
		b.Queue(db.sql(`INSERT INTO informctl.change (scope, tx, seq, kind, rv, caught, bytes, key, namespace, name, uid, form, data)
			SELECT scope, $2, $3 + row_number() OVER byKey, 'U', $4, $5, $6 + sum(octet_length(data)) OVER byKey, key, namespace, name, uid, form, data
			FROM informctl.object WHERE scope = $1 AND key = ANY ($7) WINDOW byKey AS (ORDER BY key)`),
			w.id, tx, before.seq, before.rv, w.caught, w.bytes, gone)
	}
	if len(l.staged) > 0 {
		var goneSize int64
		for _, key := range gone {
			goneSize += l.headers[string(key)].size
		}
		b.Queue(db.sql(`INSERT INTO informctl.change (scope, tx, seq, kind, rv, caught, bytes, key, namespace, name, uid, form, data)
			SELECT s.scope, $2, $3 + row_number() OVER byRV, CASE WHEN o.uid = s.uid THEN 'm' ELSE 'a' END, s.rv, $4, $5 + sum(octet_length(s.data)) OVER byRV,
				s.key, s.namespace, s.name, s.uid, s.form, s.data
			FROM informctl.staging s LEFT JOIN informctl.object o ON o.scope = s.scope AND o.key = s.key
			WHERE s.scope = $1 AND s.list = $6 WINDOW byRV AS (ORDER BY s.rv, s.key)`),
			w.id, tx, before.seq+int64(len(gone)), w.caught, w.bytes+goneSize, l.id)
	}
}
