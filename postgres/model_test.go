package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/postgres/pgtest"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

var modelScope = store.Scope{Cluster: "c1", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}

// content is a state of the collection: the UID and resource version of each name.
type content map[string]string

// upstream is an API server that the test plays.
type upstream struct {
	rv        int64
	uids      int
	now       map[string]*corev1.ConfigMap
	events    []upstreamEvent
	states    map[int64]content // by resource version, of this history
	compacted int64             // a watch from below is answered with a 410
}

type upstreamEvent struct {
	rv  int64
	t   cache.DeltaType
	obj *corev1.ConfigMap
}

func (u *upstream) content() content {
	c := content{}
	for name, obj := range u.now {
		c[name] = string(obj.UID) + "@" + obj.ResourceVersion
	}
	return c
}

func (u *upstream) stepped(t cache.DeltaType, obj *corev1.ConfigMap) {
	if obj != nil {
		u.events = append(u.events, upstreamEvent{u.rv, t, obj})
	}
	u.states[u.rv] = u.content()
}

// state returns the content at a resource version.
func (u *upstream) state(rv int64) content { return stateOf(u.states, rv) }

func stateOf(states map[int64]content, rv int64) content {
	for ; rv > 0; rv-- {
		if c, ok := states[rv]; ok {
			return c
		}
	}
	return content{}
}

func (u *upstream) put(name string, replace bool) {
	u.rv++
	t := cache.Updated
	obj := &corev1.ConfigMap{}
	if old := u.now[name]; old != nil && !replace {
		obj = old.DeepCopy()
	} else {
		t = cache.Added
		u.uids++
		obj.Name, obj.Namespace, obj.UID = name, "default", types.UID(fmt.Sprintf("u%d", u.uids))
	}
	obj.ResourceVersion = strconv.FormatInt(u.rv, 10)
	u.now[name] = obj
	u.stepped(t, obj)
}

func (u *upstream) delete(name string) {
	old := u.now[name]
	if old == nil {
		return
	}
	u.rv++
	obj := old.DeepCopy()
	obj.ResourceVersion = strconv.FormatInt(u.rv, 10)
	delete(u.now, name)
	u.stepped(cache.Deleted, obj)
}

// rewind restores an earlier state, as an etcd that is restored from a snapshot.
func (u *upstream) rewind(to int64) {
	c := u.state(to)
	events := slices.Clone(u.events)
	u.now = map[string]*corev1.ConfigMap{}
	for _, e := range events {
		if e.rv <= to && e.t != cache.Deleted && c[e.obj.Name] == string(e.obj.UID)+"@"+e.obj.ResourceVersion {
			u.now[e.obj.Name] = e.obj
		}
	}
	u.events = slices.DeleteFunc(u.events, func(e upstreamEvent) bool { return e.rv > to })
	maps.DeleteFunc(u.states, func(rv int64, _ content) bool { return rv > to })
	u.rv = to
	// What the other history has done from here on is not this one's.
	u.states[u.rv] = u.content()
}

// faults cuts connections.
type faults struct {
	left  atomic.Int64 // writes until the cut; negative: never
	sends atomic.Bool  // the write that is cut reaches the server
	onCut atomic.Pointer[func()]
	mute  atomic.Bool // connections of now are not answered any more
}

type faultyConn struct {
	net.Conn
	f     *faults
	muted *atomic.Bool
}

// Read implements net.Conn. Nothing comes of a server that has vanished.
func (c faultyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.muted.Load() && !c.f.mute.Load() {
			return n, err
		}
		c.muted.Store(true)
	}
}

func (c faultyConn) Write(b []byte) (int, error) {
	if c.f.left.Add(-1) != 0 {
		return c.Conn.Write(b)
	}
	if c.f.sends.Load() {
		_, _ = c.Conn.Write(b)
	}
	_ = c.Close()
	if do := c.f.onCut.Load(); do != nil {
		(*do)()
	}
	return 0, errors.New("cut by the test")
}

func newModelDB(ctx context.Context, t rapid.TB, dsn, schema string, f *faults) *DB {
	opts := Options{Schema: schema, Poll: time.Millisecond, MaxConns: 4}
	cfg, err := parse(dsn, opts)
	if err != nil {
		t.Fatal(err)
	}
	if f != nil {
		f.left.Store(-1)
		dial := cfg.ConnConfig.DialFunc
		cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return faultyConn{c, f, new(atomic.Bool)}, err
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := &DB{pool: pool, opts: opts}
	db.hub = newHub(db)
	return db
}

// player is a publisher that the test plays.
type player struct {
	m      *model
	db     *DB
	f      *faults
	holder string
	w      *writer
	s      *sink
	ctx    context.Context
	cancel context.CancelCauseFunc
	pos    int64 // the events up to here were received
	lists  bool  // the next thing to do is a list
	runs   bool
}

// model is the API server, the database, publishers and followers.
type model struct {
	t         *rapid.T
	dsn       string
	schema    string
	admin     *DB
	up        *upstream
	players   []*player
	followers []*follower
	saved     bool
	former    []map[int64]content // the histories before the last rewind
	rewinds   []anchor            // the log's rows up to it, above its rv, are of these
	log       []string
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
}

func (m *model) fatalf(format string, args ...any) {
	m.t.Helper()
	// rapid prints the message also if it cannot reproduce the failure.
	m.t.Fatalf("%s\n%s", strings.Join(m.log, "\n"), fmt.Sprintf(format, args...))
}

func (m *model) exec(statement string, args ...any) {
	m.t.Helper()
	if _, err := m.admin.pool.Exec(m.t.Context(), m.admin.sql(statement), args...); err != nil {
		m.fatalf("%s: %v", statement, err)
	}
}

// start makes a player the publisher.
func (p *player) start() {
	m := p.m
	for _, other := range m.players {
		if other != p && other.runs {
			m.note("%s is a zombie from now on", other.holder)
		}
	}
	m.exec(`INSERT INTO informctl.lease (grp, holder, expires, heard) VALUES ('c1', $1, 'infinity', clock_timestamp())
		ON CONFLICT (grp) DO UPDATE SET holder = excluded.holder, heard = excluded.heard, expires = excluded.expires`, p.holder)
	p.again()
}

// again is what publishScope does when a commit has failed for good.
func (p *player) again() {
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(p.m.t.Context()))
	p.w = &writer{db: p.db, holder: p.holder, group: "c1", ttl: 10 * time.Second, scope: modelScope, wrote: func(int64) {}}
	p.runs = true
	if err := p.w.takeOver(p.ctx); err != nil {
		p.ended("take over", err)
		return
	}
	p.s = newSink(p.w, modelScope.Kind, 0)
	p.s.cancel, p.s.relist = func(err error) { p.cancel(err) }, func(string) { p.lists = true }
	p.pos, p.lists = p.w.end.rv, !p.w.complete
	for _, r := range p.m.rewinds {
		if p.w.end.seq <= r.seq && p.w.end.rv > r.rv {
			p.lists, p.pos = true, ahead
		}
	}
	p.m.note("%s starts at %d, seq %d", p.holder, p.pos, p.w.end.seq)
}

// ended notes why a player cannot go on.
func (p *player) ended(doing string, err error) {
	p.m.note("%s: %s: %v", p.holder, doing, err)
	p.runs = false
	p.f.left.Store(-1)
	if err != nil && !errors.Is(err, errFenced) && !errors.Is(err, errMoved) && p.ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		p.m.fatalf("%s: %s: %v", p.holder, doing, err)
	}
	if errors.Is(err, errMoved) {
		p.again()
	}
}

// arm cuts a connection at one of the next statements, and may kill the player with it.
func (p *player) arm() {
	p.f.onCut.Store(nil)
	p.f.left.Store(-1)
	if rapid.IntRange(0, 2).Draw(p.m.t, "fault") > 0 {
		return
	}
	p.f.sends.Store(rapid.Bool().Draw(p.m.t, "sends"))
	if rapid.Bool().Draw(p.m.t, "kills") {
		cancel := p.cancel
		do := func() { cancel(errors.New("killed")) }
		p.f.onCut.Store(&do)
	}
	n := int64(rapid.IntRange(1, 12).Draw(p.m.t, "writes"))
	p.f.left.Store(n)
	p.m.note("%s is cut at write %d", p.holder, n)
}

// deliver gives a player what it would receive of its watch.
func (p *player) deliver() {
	m := p.m
	if p.pos < m.up.compacted || p.pos > m.up.rv {
		p.lists = true
	}
	if p.lists {
		p.list()
		return
	}
	max := rapid.IntRange(1, 6).Draw(m.t, "events")
	for _, e := range m.up.events {
		if e.rv <= p.pos || max == 0 {
			continue
		}
		max--
		if err := p.s.Push(p.ctx, e.t, e.obj, strconv.FormatInt(e.rv, 10)); err != nil {
			p.ended("push", err)
			return
		}
		p.pos = e.rv
		if rapid.Bool().Draw(m.t, "commit") && !p.commit() {
			return
		}
	}
	if max > 0 && rapid.Bool().Draw(m.t, "bookmark") {
		p.pos = m.up.rv
		_ = p.s.Bookmark(p.ctx, strconv.FormatInt(p.pos, 10))
		p.s.urgent = true
	}
	p.commit()
}

func (p *player) commit() bool {
	p.s.caught = p.pos >= p.m.up.rv
	err := p.s.commit(p.ctx)
	if err != nil {
		p.ended("commit", err)
		return false
	}
	p.m.note("%s is at %d, seq %d", p.holder, p.w.end.rv, p.w.end.seq)
	return true
}

func (p *player) list() {
	m := p.m
	reason := "410"
	if p.pos > m.up.rv {
		reason = reflector.Rewound
	}
	p.s.rows, p.s.urgent = nil, false // a killed watch
	l, err := p.s.Relist(p.ctx, reason)
	if err != nil {
		p.ended("relist", err)
		return
	}
	defer func() { _ = l.Close() }()
	p.lists, p.s.caught = true, true
	// A stream of a list may send a state again, or what is deleted before it ends.
	odd := rapid.IntRange(0, 3).Draw(m.t, "odd") == 0
	for _, name := range slices.Sorted(maps.Keys(m.up.now)) {
		if odd {
			old := m.up.now[name].DeepCopy()
			old.Data = map[string]string{"odd": "yes"}
			if err := l.Add(p.ctx, old); err != nil {
				p.ended("add", err)
				return
			}
			if rapid.Bool().Draw(m.t, "remove") {
				if err := l.Remove(p.ctx, old); err != nil {
					p.ended("remove", err)
					return
				}
			}
		}
		if err := l.Add(p.ctx, m.up.now[name].DeepCopy()); err != nil {
			p.ended("add", err)
			return
		}
	}
	_ = l.(*relist).written() // so that a failover is in the same place again
	switch rapid.IntRange(0, 8).Draw(m.t, "failover in the list") {
	case 0:
		m.exec("DELETE FROM informctl.staging")
		m.exec("DELETE FROM informctl.object o USING informctl.scope s WHERE s.id = o.scope AND NOT s.complete")
		m.note("what is staged is lost")
	case 1:
		m.goBack()
	}
	if rapid.IntRange(0, 5).Draw(m.t, "give up") == 0 {
		m.note("%s gives up a list", p.holder)
		return
	}
	if err := l.Finish(p.ctx, strconv.FormatInt(m.up.rv, 10)); err != nil && !errors.Is(err, errCheck) {
		p.ended("finish", err)
		return
	} else if err != nil {
		m.note("%s: %v", p.holder, err)
		return
	}
	p.pos, p.lists = m.up.rv, false
	m.note("%s has listed at %d, seq %d", p.holder, p.w.end.rv, p.w.end.seq)
}

// follower is an informer: its content, and a watch that stays open between steps.
type follower struct {
	m    *model
	name string
	db   *DB
	lw   *ListerWatcher
	has  content
	rv   int64 // 0: it has to list
	w    *watcher
}

// step lets a follower read all there is, or less. It reports whether it has all.
func (f *follower) step(all bool) bool {
	m := f.m
	ctx := context.WithoutCancel(m.t.Context())
	if f.w == nil {
		if f.rv == 0 && rapid.Bool().Draw(m.t, "pages") {
			list, err := f.lw.ListWithContext(ctx, metav1.ListOptions{})
			if err != nil {
				m.note("%s: list: %v", f.name, err)
				return f.refused(err)
			}
			items, err := meta.ExtractList(list)
			if err != nil {
				m.fatalf("%v", err)
			}
			f.has = content{}
			for _, obj := range items {
				f.apply(watch.Added, obj.(*corev1.ConfigMap), false)
			}
			lm, _ := meta.ListAccessor(list)
			f.to(lm.GetResourceVersion())
			m.note("%s has listed at %d", f.name, f.rv)
			f.check("list")
		}
		opts := metav1.ListOptions{AllowWatchBookmarks: true, ResourceVersion: strconv.FormatInt(f.rv, 10)}
		if f.rv == 0 {
			yes := true
			opts.SendInitialEvents, opts.ResourceVersion, opts.ResourceVersionMatch = &yes, "", metav1.ResourceVersionMatchNotOlderThan
			f.has = content{}
		}
		w, err := f.lw.WatchWithContext(ctx, opts)
		if err != nil {
			m.note("%s: watch from %d: %v", f.name, f.rv, err)
			return f.refused(err)
		}
		m.note("%s watches from %d", f.name, f.rv)
		f.w = w.(*watcher)
	}
	initial := f.rv == 0
	max := rapid.IntRange(1, 20).Draw(m.t, "reads")
	deadline := time.After(time.Minute)
	for all || max > 0 {
		select {
		case e, ok := <-f.w.out:
			if !ok {
				f.stop()
				return false
			}
			max--
			if e.Type == watch.Error {
				m.note("%s: in the watch: %v", f.name, apierrors.FromObject(e.Object))
				f.stop()
				if initial {
					f.has = content{}
				}
				return f.refused(apierrors.FromObject(e.Object))
			}
			obj := e.Object.(*corev1.ConfigMap)
			if e.Type == watch.Bookmark {
				if obj.Annotations[metav1.InitialEventsAnnotationKey] != "" {
					initial = false
				}
				f.to(obj.ResourceVersion)
				f.check("bookmark")
				continue
			}
			f.apply(e.Type, obj, !initial)
			if !initial {
				f.to(obj.ResourceVersion)
			}
		case <-time.After(2 * time.Millisecond):
			var end anchor
			_ = m.admin.pool.QueryRow(ctx, m.admin.sql("SELECT seq, tx FROM informctl.change ORDER BY seq DESC LIMIT 1")).Scan(&end.seq, &end.tx)
			f.db.hub.mu.Lock()
			isIdle := f.w.waiter.last.seq == end.seq && f.w.waiter.last.tx == end.tx
			f.db.hub.mu.Unlock()
			if isIdle && !initial {
				return !f.w.skipping
			}
		case <-deadline:
			m.fatalf("%s: neither events nor an end: pos %+v", f.name, f.w.pos)
		}
	}
	if initial || rapid.Bool().Draw(m.t, "breaks") {
		f.stop()
		if initial {
			f.has = content{}
		}
	}
	return false
}

// apply applies an event as the store of an informer does.
func (f *follower) apply(t watch.EventType, obj *corev1.ConfigMap, inOrder bool) {
	if t == watch.Deleted {
		// A replaced object is another one.
		if had := f.has[obj.Name]; inOrder && had != "" {
			uid, rv, _ := cut(had)
			if uid != string(obj.UID) {
				f.m.fatalf("%s: %s (%s) is told to be deleted, which is %s", f.name, obj.Name, obj.UID, had)
			}
			if n, _ := strconv.ParseInt(obj.ResourceVersion, 10, 64); n < rv {
				f.m.fatalf("%s: the deletion of %s at %d is older than what it has, %s", f.name, obj.Name, n, had)
			}
		}
		delete(f.has, obj.Name)
		return
	}
	if had := f.has[obj.Name]; inOrder && had != "" {
		_, rv, _ := cut(had)
		if n, _ := strconv.ParseInt(obj.ResourceVersion, 10, 64); n < rv {
			f.m.fatalf("%s: %s goes back from %s to %d", f.name, obj.Name, had, n)
		}
	}
	f.has[obj.Name] = string(obj.UID) + "@" + obj.ResourceVersion
}

func cut(state string) (uid string, rv int64, ok bool) {
	for i := range state {
		if state[i] == '@' {
			rv, _ = strconv.ParseInt(state[i+1:], 10, 64)
			return state[:i], rv, true
		}
	}
	return "", 0, false
}

func (f *follower) to(rv string) {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		f.m.fatalf("%s: resource version %q", f.name, rv)
	}
	if n < f.rv {
		f.m.fatalf("%s goes back from %d to %d", f.name, f.rv, n)
	}
	f.rv = n
}

const atTheEnd = "at the end"

// check compares the follower at a mark with the API server.
func (f *follower) check(when string) {
	// A publisher may not have found out yet that the history was rewound.
	for _, states := range f.m.former {
		if when != atTheEnd && cmp.Equal(stateOf(states, f.rv), f.has) {
			return
		}
	}
	if diff := cmp.Diff(f.m.up.state(f.rv), f.has); diff != "" {
		f.m.fatalf("%s at %d, %s (-server +follower):\n%s", f.name, f.rv, when, diff)
	}
}

func (f *follower) stop() {
	if f.w == nil {
		return
	}
	f.w.Stop()
	for range f.w.out {
	}
	f.w = nil
}

// refused handles an answer as a reflector does.
func (f *follower) refused(err error) bool {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		f.rv = 0
	}
	return false
}

// newFollower returns a follower, and one with the content of the API server at some
// resource version if it is brought from there.
func (m *model) newFollower(brought bool) *follower {
	f := &follower{m: m, name: fmt.Sprintf("follower %d", len(m.followers)), db: newModelDB(m.t.Context(), m.t, m.dsn, m.schema, nil), has: content{}}
	if brought && m.up.rv > 1 {
		f.rv = int64(rapid.IntRange(1, int(m.up.rv)).Draw(m.t, "brought"))
		f.has = maps.Clone(m.up.state(f.rv))
	}
	opts := FollowOptions{Held: func() string {
		if f.rv == 0 {
			return ""
		}
		return strconv.FormatInt(f.rv, 10)
	}}
	if rapid.Bool().Draw(m.t, "has no file") {
		opts.Held = nil
	}
	lw, err := f.db.ListerWatcher(modelScope, &corev1.ConfigMap{}, opts)
	if err != nil {
		m.fatalf("%v", err)
	}
	f.lw = lw
	m.note("%s begins at %d", f.name, f.rv)
	m.followers = append(m.followers, f)
	return f
}

func (f *follower) close() {
	f.stop()
	_ = f.db.Close()
}

// ahead is the position of a publisher that a probe has told that it is ahead.
const ahead = 1 << 40

// rewind rewinds the history of the API server. A publisher and an informer find that out
// by a probe, if they ask before the history has passed what they hold; one that comes
// later is found by an audit only, with an API server, too.
func (m *model) rewind(to int64) {
	var last, seq int64
	_ = m.admin.pool.QueryRow(m.t.Context(), m.admin.sql("SELECT coalesce(max(rv), 0), coalesce(max(seq), 0) FROM informctl.change")).Scan(&last, &seq)
	m.rewinds = append(m.rewinds, anchor{seq: seq, rv: to})
	m.former = append(m.former, maps.Clone(m.up.states))
	m.up.rewind(to)
	m.note("the API server is rewound to %d", to)
	for _, p := range m.players {
		p.lists = p.lists || p.pos > to
		if p.runs && p.pos > to {
			p.s.rv, p.s.rows, p.s.size = 0, nil, 0
			p.pos = ahead
		}
	}
	m.saved = false // the publisher of a database that goes back probes, too
	for _, f := range m.followers {
		f.stop() // its watch may have read more than it has taken
		f.lw.mu.Lock()
		high := f.lw.high
		f.lw.mu.Unlock()
		if max(f.rv, high) > last {
			f.rv, f.has = 0, content{}
		}
	}
}

var modelTables = []string{"lease", "scope", "object", "change", "staging"}

// save and goBack play an asynchronous failover to a server that lacks the last commits.
func (m *model) save() {
	err := pgx.BeginTxFunc(m.t.Context(), m.admin.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		for _, table := range modelTables {
			saved := pgx.Identifier{m.schema, "saved_" + table}.Sanitize()
			if _, err := tx.Exec(m.t.Context(), m.admin.sql("DROP TABLE IF EXISTS "+saved+"; CREATE TABLE "+saved+" AS SELECT * FROM informctl."+table)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		m.fatalf("save: %v", err)
	}
	m.saved = true
}

func (m *model) goBack() {
	if !m.saved {
		return
	}
	err := pgx.BeginFunc(m.t.Context(), m.admin.pool, func(tx pgx.Tx) error {
		for _, table := range modelTables {
			saved := pgx.Identifier{m.schema, "saved_" + table}.Sanitize()
			if _, err := tx.Exec(m.t.Context(), m.admin.sql("DELETE FROM informctl."+table)); err != nil {
				return err
			}
			if table == "staging" {
				continue // it is not logged
			}
			if _, err := tx.Exec(m.t.Context(), m.admin.sql("INSERT INTO informctl."+table+" OVERRIDING SYSTEM VALUE SELECT * FROM "+saved)); err != nil {
				return err
			}
		}
		_, err := tx.Exec(m.t.Context(), m.admin.sql("UPDATE informctl.lease SET heard = clock_timestamp()"))
		return err
	})
	if err != nil {
		m.fatalf("go back: %v", err)
	}
	m.note("the database goes back")
}

func TestModel(t *testing.T) {
	dsn := pgtest.DSN(t)
	defer func(a, b, c time.Duration, d, e, f, g int) {
		firstWait, lagPatience, rewoundAfter, partSize, maxDifferences, pageRows, fewRows = a, b, c, d, e, f, g
	}(firstWait, lagPatience, rewoundAfter, partSize, maxDifferences, pageRows, fewRows)
	firstWait, lagPatience, rewoundAfter, partSize, pageRows, fewRows = time.Millisecond, 20*time.Millisecond, 0, 1, 2, 1
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, dsn: dsn, schema: pgtest.Schema(), up: &upstream{rv: 1, now: map[string]*corev1.ConfigMap{}, states: map[int64]content{1: {}}}}
		if err := Migrate(t.Context(), dsn, Options{Schema: m.schema}); err != nil {
			t.Fatal(err)
		}
		m.admin = newModelDB(t.Context(), t, dsn, m.schema, nil)
		defer func() {
			for _, f := range m.followers {
				f.close()
			}
			for _, p := range m.players {
				_ = p.db.Close()
			}
			_, _ = m.admin.pool.Exec(context.WithoutCancel(t.Context()), "DROP SCHEMA "+pgx.Identifier{m.schema}.Sanitize()+" CASCADE")
			_ = m.admin.Close()
		}()
		for i := range 2 {
			f := &faults{}
			m.players = append(m.players, &player{m: m, f: f, db: newModelDB(t.Context(), t, dsn, m.schema, f), holder: fmt.Sprintf("publisher %d", i)})
		}
		m.newFollower(false)
		name := func() string { return fmt.Sprintf("n%d", rapid.IntRange(0, 5).Draw(t, "name")) }
		one := func() *player { return m.players[rapid.IntRange(0, 1).Draw(t, "player")] }
		steps := map[string]func(*rapid.T){
			"put":          func(*rapid.T) { m.up.put(name(), false) },
			"put more":     func(*rapid.T) { m.up.put(name(), false) },
			"replace":      func(*rapid.T) { n := name(); m.up.delete(n); m.up.put(n, true) },
			"delete":       func(*rapid.T) { m.up.delete(name()) },
			"pass":         func(*rapid.T) { m.up.rv++; m.up.stepped("", nil) },
			"publish":      func(*rapid.T) { m.publishStep(one()) },
			"publish more": func(*rapid.T) { m.publishStep(one()) },
			"take over":    func(*rapid.T) { one().start() },
			"compact":      func(*rapid.T) { m.up.compacted = m.up.rv },
			"differences":  func(t *rapid.T) { maxDifferences = rapid.IntRange(0, 20).Draw(t, "differences") },
			"trim": func(t *rapid.T) {
				var id int64
				_ = m.admin.pool.QueryRow(t.Context(), m.admin.sql("SELECT coalesce(max(id), 0) FROM informctl.scope")).Scan(&id)
				bytes := int64(rapid.IntRange(1, 600).Draw(t, "bytes"))
				if _, err := m.admin.trimPart(t.Context(), id, 0, PublishOptions{KeepAge: time.Hour, KeepBytes: bytes}); err != nil {
					m.fatalf("trim: %v", err)
				}
			},
			"rewind": func(t *rapid.T) { m.rewind(int64(rapid.IntRange(1, int(m.up.rv)).Draw(t, "to"))) },
			"failover": func(*rapid.T) {
				p := one()
				m.save()
				m.publishStep(p)
				m.goBack()
				m.publishStep(p)
			},
			"save":    func(*rapid.T) { m.save() },
			"go back": func(*rapid.T) { m.goBack() },
			"follow": func(t *rapid.T) {
				m.followers[rapid.IntRange(0, len(m.followers)-1).Draw(t, "follower")].step(rapid.Bool().Draw(t, "all"))
			},
			"new follower": func(t *rapid.T) {
				if len(m.followers) < 4 {
					m.newFollower(rapid.Bool().Draw(t, "is brought"))
				}
			},
		}
		t.Repeat(steps)
		m.settle()
	})
}

func (m *model) publishStep(p *player) {
	if !p.runs {
		return
	}
	p.arm()
	p.deliver()
	if p.ctx.Err() != nil && p.runs {
		p.ended("killed", context.Cause(p.ctx))
		// What it has sent is committed after this, or never.
		m.exec("SELECT FROM informctl.scope FOR UPDATE")
	}
	p.f.left.Store(-1)
}

// settle lets a publisher publish all, and the followers read all: they are equal.
func (m *model) settle() {
	m.note("settle")
	p := m.players[0]
	p.f.left.Store(-1)
	p.start()
	for i := 0; p.lists || p.w.end.rv < m.up.rv; i++ {
		if i > 100 {
			m.fatalf("the publisher does not come to an end: at %d of %d", p.w.end.rv, m.up.rv)
		}
		if p.pos < m.up.compacted || p.lists {
			p.list()
		} else {
			p.deliver()
			_ = p.s.Bookmark(p.ctx, strconv.FormatInt(p.pos, 10))
			if n := len(m.up.events); n == 0 || p.pos >= m.up.events[n-1].rv {
				p.pos = m.up.rv
				_ = p.s.Bookmark(p.ctx, strconv.FormatInt(m.up.rv, 10))
				p.s.urgent = true
			}
			p.commit()
		}
		if !p.runs {
			p.start()
		}
	}
	for _, f := range m.followers {
		for i := 0; !f.step(true) || f.rv < m.up.rv; i++ {
			if i > 50 {
				m.fatalf("%s does not come to an end: at %d of %d", f.name, f.rv, m.up.rv)
			}
			p.s.urgent = true // the bookmarks of the API server go on
			p.commit()
		}
		f.check(atTheEnd)
	}
}
