package postgres

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"
)

// hub wakes the watches of a process. One query finds out what is new for all of them;
// what the database tells by itself is a hint.
type hub struct {
	db     *DB
	ctx    context.Context
	cancel context.CancelFunc
	parts  parts

	mu      sync.Mutex // protects what follows
	polling bool
	waiters map[int64]map[*waiter]struct{} // by scope
}

// parts are the goroutines of a hub. What begins after wait was called is not waited for,
// and runs in the goroutine of its caller: it ends at once, because the hub has ended.
type parts struct {
	mu     sync.Mutex // protects what follows
	closed bool
	all    sync.WaitGroup
}

// Go runs do in a goroutine.
func (p *parts) Go(do func()) {
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.all.Go(do)
	}
	p.mu.Unlock()
	if closed {
		do()
	}
}

func (p *parts) wait() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.all.Wait()
}

// waiter is an open watch.
type waiter struct {
	last anchor        // the row that it has read last; zero while it reads
	wake chan struct{} // there may be more; of capacity 1
}

func newHub(db *DB) *hub {
	h := &hub{db: db, waiters: map[int64]map[*waiter]struct{}{}}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// close ends all watches, and those that are opened later.
func (h *hub) close() {
	h.cancel()
	h.parts.wait()
}

// join adds a watch. The caller calls leave at its end.
func (h *hub) join(scope int64) *waiter {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &waiter{wake: make(chan struct{}, 1)}
	if h.waiters[scope] == nil {
		h.waiters[scope] = map[*waiter]struct{}{}
	}
	h.waiters[scope][w] = struct{}{}
	if !h.polling && !isOver(h.ctx) {
		h.polling = true
		h.parts.Go(h.poll)
	}
	return w
}

func (h *hub) leave(scope int64, w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.waiters[scope], w); len(h.waiters[scope]) == 0 {
		delete(h.waiters, scope)
	}
}

// read says what a watch has read.
func (h *hub) read(w *waiter, last anchor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.last = last
}

// poll asks for news until the hub is closed or nobody waits.
func (h *hub) poll() {
	for pause(h.ctx, h.db.opts.Poll) {
		h.mu.Lock()
		ids := make([]int64, 0, len(h.waiters))
		for id := range h.waiters {
			ids = append(ids, id)
		}
		if h.polling = len(ids) > 0; !h.polling {
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		h.ask(ids)
	}
}

func (h *hub) ask(ids []int64) {
	// All watches wait for it.
	ctx, cancel := context.WithTimeout(h.ctx, deadline)
	defer cancel()
	rows, err := h.db.pool.Query(ctx, h.db.sql(`SELECT i.id, coalesce(c.seq, 0), coalesce(c.tx, 0) FROM unnest($1::bigint[]) AS i(id)
		LEFT JOIN LATERAL (SELECT seq, tx FROM informctl.change WHERE scope = i.id ORDER BY seq DESC LIMIT 1) c ON true`), ids)
	if err == nil {
		var id int64
		var last anchor
		_, err = pgx.ForEachRow(rows, []any{&id, &last.seq, &last.tx}, func() error {
			h.wake(id, &last)
			return nil
		})
	}
	if err == nil {
		return
	}
	h.db.failed(h.ctx, err)
	for _, id := range ids { // each finds out for itself
		h.wake(id, nil)
	}
}

// wake wakes the watches of a scope that have not read the last row of its log. A
// failover may have put another row in the place of the one that a watch has read. If
// last is nil, that row is not known, and all read again: one that reads may have begun
// before there was news.
func (h *hub) wake(id int64, last *anchor) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.waiters[id] {
		if last != nil && w.last.seq == last.seq && w.last.tx == last.tx {
			continue
		}
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// patience is how long Open waits for its own notification.
var patience = 2 * time.Second

// tryListening starts to listen, if the database tells this process what it is told: a
// pooler of transactions accepts LISTEN, and nothing comes.
func (h *hub) tryListening(ctx context.Context) {
	conn, err := h.listen(ctx)
	if err == nil {
		_, err = h.db.pool.Exec(ctx, "SELECT pg_notify($1, '')", h.db.opts.Schema)
	}
	if err == nil {
		wait, cancel := context.WithTimeout(ctx, patience)
		_, err = conn.WaitForNotification(wait)
		cancel()
	}
	if err != nil {
		if conn != nil {
			_ = conn.Close(ctx)
		}
		klog.FromContext(ctx).Info("The database does not notify, changes are polled", "every", h.db.opts.Poll, "err", err.Error())
		return
	}
	h.parts.Go(func() { h.hear(conn) })
}

func (h *hub) listen(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, h.db.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err = conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.db.opts.Schema}.Sanitize()); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// hear takes notifications until the hub is closed.
func (h *hub) hear(conn *pgx.Conn) {
	for {
		for conn != nil {
			n, err := conn.WaitForNotification(h.ctx)
			if err != nil {
				_ = conn.Close(context.WithoutCancel(h.ctx))
				conn = nil
				break
			}
			for id := range strings.SplitSeq(n.Payload, ",") {
				if id, err := strconv.ParseInt(id, 10, 64); err == nil {
					h.wake(id, nil)
				}
			}
		}
		if !pause(h.ctx, time.Second) {
			return
		}
		conn, _ = h.listen(h.ctx)
	}
}
