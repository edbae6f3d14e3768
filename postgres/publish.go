package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/reflector"
)

// PublishOptions configure Publish. The zero value is usable.
type PublishOptions struct {
	// Group names what one publisher at a time does: its scopes. Publishers of one group
	// have the same scopes, and those of several groups have others: a scope that another
	// group publishes is waited for. "" means the cluster of the scopes.
	Group string
	// Interval is how long a change waits for others to share its transaction, at most,
	// if there was a transaction within it. 0 means 50 ms.
	Interval time.Duration
	// TTL is how long another publisher waits for one that is gone. 0 means 10 s.
	TTL time.Duration
	// KeepAge and KeepBytes bound the log of each scope, and so for how long a follower
	// may be away and go on without a list. 0 means 24 hours and 1 GiB.
	KeepAge   time.Duration
	KeepBytes int64
}

func (o PublishOptions) withDefaults() PublishOptions {
	if o.Interval <= 0 {
		o.Interval = 50 * time.Millisecond
	}
	if o.TTL <= 0 {
		o.TTL = 10 * time.Second
	}
	if o.KeepAge <= 0 {
		o.KeepAge = 24 * time.Hour
	}
	if o.KeepBytes <= 0 {
		o.KeepBytes = 1 << 30
	}
	return o
}

const (
	// silentAfter is how long a publisher hears nothing of a scope until it says so: API
	// servers send bookmarks about each minute. Of one that has sent none since the
	// publisher has caught up with it, it is longer than two watches, and the answer to
	// the probe between them is heard. An API server that is down when a publisher begins
	// sends none either.
	silentAfter            = 150 * time.Second
	silentWithoutBookmarks = 25 * time.Minute
	// markEvery is how long bookmarks of scopes without changes wait for each other.
	markEvery = 2 * time.Second
	// trimEvery is how often the logs are trimmed.
	trimEvery = 10 * time.Second
	// problemWait is how long a scope that the database refuses waits until it is tried
	// again.
	problemWait = time.Minute
)

// Publish publishes collections until the context ends, while no other publisher of the
// group does: it waits for the lease, and again after it has lost it. All goroutines have
// ended when it returns. A scope that cannot be published does not stop the others; its
// problem is in the Status. The error is ErrSecrets, ErrSchema, or says which collection
// is not valid.
func (db *DB) Publish(ctx context.Context, collections []Collection, opts PublishOptions) error {
	opts = opts.withDefaults()
	for i := range collections {
		c := &collections[i]
		s, err := identity(c.Scope)
		switch {
		case err != nil:
			return fmt.Errorf("publish %s: %w", c.Scope.Resource, err)
		case c.ListerWatcher == nil || c.Example == nil:
			return fmt.Errorf("publish %s: a ListerWatcher and an Example are needed", s.Resource)
		case s.Cluster == "":
			return fmt.Errorf("publish %s: the scope needs the Cluster, which tells it from that of another cluster", s.Resource)
		case slices.ContainsFunc(collections[:i], func(other Collection) bool { return other.Scope == s }):
			return fmt.Errorf("publish %s: the scope is there twice, and needs one collection", s)
		case opts.Group == "":
			opts.Group = s.Cluster
		}
		c.Scope = s
	}
	if len(collections) == 0 {
		return errors.New("publish: there is no collection")
	}
	l := &lease{db: db, table: db.sql("informctl.lease"), group: opts.Group, holder: newHolder(), ttl: opts.TTL}
	for {
		if err := l.acquire(ctx); err != nil {
			if isOver(ctx) {
				return nil
			}
			return fmt.Errorf("publish: %w", err)
		}
		klog.FromContext(ctx).Info("Publishing", "group", opts.Group, "scopes", len(collections))
		p := &publisher{db: db, lease: l, opts: opts, sinks: map[int64]*sink{}, known: map[int64]hearsay{}, news: map[int64]struct{}{}, told: make(chan struct{}, 1), rewinds: map[history]time.Time{}, lists: map[int64]time.Time{}}
		db.publishing.Add(1)
		err := p.run(ctx, collections)
		db.publishing.Add(-1)
		l.release(ctx)
		switch {
		case isOver(ctx):
			return nil
		case errors.Is(err, ErrSchema):
			return fmt.Errorf("publish: %w", err)
		}
		klog.FromContext(ctx).Info("Publishing has ended, the lease is waited for", "group", opts.Group, "err", err.Error())
	}
}

// newHolder names one who asks for a lease.
func newHolder() string { return rand.Text() }

// publisher holds the lease of a group.
type publisher struct {
	db    *DB
	lease *lease
	opts  PublishOptions
	told  chan struct{} // there are news

	// mu protects what follows. It is taken while that of a sink is held, so that of a
	// sink is never taken while it is held.
	mu      sync.Mutex
	sinks   map[int64]*sink       // by scope, of those that are published now
	known   map[int64]hearsay     // of all scopes that were published
	news    map[int64]struct{}    // scopes with commits that were not notified
	rewinds map[history]time.Time // when a rewind was found last
	lists   map[int64]time.Time   // by scope, when its last published list began
}

// hearsay is what a publisher knows of the API server's signs of life.
type hearsay struct {
	last       time.Time
	bookmarked bool
	caught     bool // the publisher has caught up with it
}

// run publishes until the context ends or the lease is lost.
func (p *publisher) run(ctx context.Context, collections []Collection) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts sync.WaitGroup
	parts.Go(func() { cancel(p.lease.renew(ctx, p.silent, p.heardOf)) })
	parts.Go(func() { p.notify(ctx) })
	parts.Go(func() { p.every(ctx, markEvery, p.writeMarks) })
	parts.Go(func() { p.every(ctx, trimEvery, p.trim) })
	for _, c := range collections {
		parts.Go(func() { p.publishScope(ctx, c, cancel) })
	}
	parts.Wait()
	return context.Cause(ctx)
}

func (p *publisher) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	for pause(ctx, d) {
		do(ctx)
	}
}

// publishScope publishes one scope, and starts again where the database is after it went
// back or refused something.
func (p *publisher) publishScope(ctx context.Context, c Collection, lost context.CancelCauseFunc) {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithValues("resource", c.Scope.Resource))
	failed := false // the writer before could not write that a list is needed
	waits := false  // another group publishes it, and that was logged
	for !isOver(ctx) {
		w := &writer{db: p.db, holder: p.lease.holder, group: p.lease.group, ttl: p.lease.ttl, scope: c.Scope, wrote: p.committed}
		err := w.takeOver(ctx)
		w.failed = w.failed || failed
		if errors.Is(err, errFenced) {
			lost(err) // the lease is another's
			return
		}
		if err == nil {
			err = p.follow(ctx, w, c)
		}
		failed = w.failed
		p.db.failed(ctx, err)
		wait := time.Second
		switch {
		case isOver(ctx):
			return
		case errors.Is(err, ErrSchema):
			lost(err)
			return
		case errors.Is(err, errFenced), errors.Is(err, errMoved):
			p.unlisted(w.id)
			wait = p.lease.ttl / 20
		case errors.Is(err, errOtherGroup):
			wait = p.lease.ttl
		case isRefused(err), errors.Is(err, errNoOrder), errors.Is(err, errForeign), isObjectError(err):
			wait = problemWait
			p.report(ctx, w, err)
		}
		if isOther := errors.Is(err, errOtherGroup); !isOther || !waits {
			waits = isOther
			klog.FromContext(ctx).Info("A scope is published again", "after", wait, "err", err.Error())
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// report writes the problem of a scope where its followers' operators look.
func (p *publisher) report(ctx context.Context, w *writer, err error) {
	klog.FromContext(ctx).Error(err, "A scope cannot be published")
	if w.id != 0 {
		_, _ = p.db.pool.Exec(ctx, p.db.sql("UPDATE informctl.scope SET problem = $2 WHERE id = $1 AND holder = $3"), w.id, readable(err.Error()), w.holder)
	}
}

// follow runs the reflector of a scope until the context ends or a commit fails for good.
func (p *publisher) follow(ctx context.Context, w *writer, c Collection) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := newSink(w, c.Scope.Kind, p.opts.Interval)
	s.cancel, s.gone = cancel, c.gone
	var verify func(context.Context) (relist string, err error)
	if c.verify != nil {
		verify = func(ctx context.Context) (string, error) {
			err := c.verify(ctx)
			if errors.Is(err, errForeign) {
				s.fail(err)
			}
			return "", err
		}
	}
	r, err := reflector.New(reflector.Options{
		ListerWatcher: audible{c.ListerWatcher, s}, Example: c.Example, Kind: c.Scope.Kind, Sink: s, Verify: verify,
		OnError: func(ctx context.Context, err error) {
			if reflector.IsNoResource(err) {
				s.hearAbsence()
			}
			if !reflector.IsCut(err) {
				klog.FromContext(ctx).Info("A request to the API server failed", "err", err.Error())
			}
		},
	})
	if err != nil {
		return fmt.Errorf("publish %s: %w", c.Scope.Resource, err)
	}
	s.relist = r.Relist
	s.rewound, s.listed = func(ctx context.Context) { p.rewound(ctx, s) }, func(began time.Time) { p.listed(s, began) }
	p.add(w.id, s)
	defer p.remove(w.id, s)
	var parts sync.WaitGroup
	parts.Go(func() { s.run(ctx) })
	stop := context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })
	defer stop()
	r.Run(ctx)
	parts.Wait()
	return context.Cause(ctx)
}

func (p *publisher) add(id int64, s *sink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sinks[id] = s
	if h, ok := p.known[id]; ok {
		s.heard, s.bookmarked = h.last, h.bookmarked // a new beginning is no sign of life
	} else {
		p.known[id] = hearsay{last: s.heard}
	}
	h := historyOf(s.w.scope)
	switch at, isKnown := p.rewinds[h]; {
	case !isKnown && s.w.rewound: // the publisher before may not have told all
		p.tell(h, s)
	case isKnown && p.lists[id].Before(at):
		s.relist(elsewhere)
	}
}

func (p *publisher) remove(id int64, s *sink) {
	h := s.lastHeard()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sinks[id] == s {
		p.known[id] = h
		delete(p.sinks, id)
	}
}

func (p *publisher) all() []*sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	sinks := make([]*sink, 0, len(p.sinks))
	for _, s := range p.sinks {
		sinks = append(sinks, s)
	}
	return sinks
}

// heardOf returns the scopes of which silent knows whether they are.
func (p *publisher) heardOf() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.known))
}

// silent returns the scopes of which nothing was heard for long.
func (p *publisher) silent() (ids []int64) {
	p.mu.Lock()
	known, sinks := maps.Clone(p.known), maps.Clone(p.sinks)
	p.mu.Unlock()
	for id, h := range known {
		if s := sinks[id]; s != nil {
			h = s.lastHeard()
		}
		limit := silentAfter
		if h.caught && !h.bookmarked {
			limit = silentWithoutBookmarks
		}
		// A monotonic clock stands still while the machine sleeps.
		if max(time.Since(h.last), time.Now().Round(0).Sub(h.last)) > limit {
			ids = append(ids, id)
		}
	}
	return ids
}

// committed notes that a scope has news. The mu of its sink may be held.
func (p *publisher) committed(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news[id] = struct{}{}
	select {
	case p.told <- struct{}{}:
	default:
	}
}

// notify tells the followers that listen what is new, in one statement for all scopes and
// outside of the commits, which a notification would make wait for each other in the
// whole server.
func (p *publisher) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.told:
		}
		p.mu.Lock()
		ids := make([]string, 0, len(p.news))
		for id := range p.news {
			ids = append(ids, strconv.FormatInt(id, 10))
		}
		clear(p.news)
		p.mu.Unlock()
		// A payload has less than 8,000 bytes.
		for len(ids) > 0 {
			n := min(len(ids), 300)
			_, _ = p.db.pool.Exec(ctx, "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)", p.db.opts.Schema, strings.Join(ids[:n], ","))
			ids = ids[n:]
		}
		if !pause(ctx, p.opts.Interval/5) {
			return
		}
	}
}

// writeMarks writes the marks of the scopes that have nothing else to commit, in one
// transaction.
func (p *publisher) writeMarks(ctx context.Context) {
	sinks := map[int64]*sink{}
	commits := map[int64]commit{}
	var ids, epochs, seqs, txs, rvs, bytes []int64
	var caughts []bool
	tx := mathrand.Int64()
	for _, s := range p.all() {
		rv, due := s.takeMark()
		if !due {
			continue
		}
		w := s.w
		sinks[w.id] = s
		commits[w.id] = commit{end: anchor{seq: w.end.seq + 1, rv: rv, tx: tx}, bytes: w.bytes}
		ids, epochs, seqs, txs = append(ids, w.id), append(epochs, w.epoch), append(seqs, w.end.seq), append(txs, w.end.tx)
		rvs, bytes, caughts = append(rvs, rv), append(bytes, w.bytes), append(caughts, w.caught)
	}
	if len(ids) == 0 {
		return
	}
	written := map[int64]bool{}
	ctx, cancel := context.WithTimeout(ctx, deadline) // all scopes wait for it
	defer cancel()
	rows, err := p.db.pool.Query(ctx, p.db.sql(`WITH due AS (
			SELECT s.id, m.* FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::boolean[]) AS m(scope, epoch, seq, tx, rv, bytes, caught)
			JOIN informctl.scope s ON s.id = m.scope AND s.epoch = m.epoch AND s.holder = $8
			WHERE (SELECT c.tx FROM informctl.change c WHERE c.scope = m.scope ORDER BY c.seq DESC LIMIT 1) = m.tx
			FOR SHARE OF s SKIP LOCKED)
		INSERT INTO informctl.change (scope, seq, kind, rv, tx, caught, bytes)
		SELECT id, seq + 1, 'B', rv, $9, caught, bytes FROM due RETURNING scope`), ids, epochs, seqs, txs, rvs, bytes, caughts, p.lease.holder, tx)
	if err == nil {
		var id int64
		_, err = pgx.ForEachRow(rows, []any{&id}, func() error { written[id] = true; return nil })
	}
	if err != nil {
		p.db.failed(ctx, err)
		clear(written) // each scope finds out by itself
	}
	for id, s := range sinks {
		s.markWritten(written[id], commits[id])
	}
}
