package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

const defaultMaxStale = 3 * time.Minute

// FollowOptions configure a ListerWatcher. The zero value is usable.
type FollowOptions struct {
	// Held returns the resource version that the informer has stored, "" if none: while
	// the database is behind it, as after a failover that has lost commits, requests are
	// refused with a 504, because a list would go back in time. An informer with a file
	// needs it: ListerWatcher remembers only what it has delivered. May be nil.
	Held func() string
	// MaxStale is how old the lease of the publisher may be, and the last mark of a scope
	// that it does not publish any more. Later, requests are refused with a 503, and open
	// watches end with a 429. 0 means 3 minutes. So they are, whatever MaxStale is, while
	// the publisher says that the API server tells it nothing of the scope: after 150 s,
	// or 25 minutes for a server without bookmarks.
	MaxStale time.Duration
	// Upstream is the API server, for Direct. It is also asked, by a list of one object,
	// before the database may lead the informer back in time because the API server was
	// restored. May be nil.
	Upstream cache.ListerWatcher
}

// ListerWatcher lists and watches a published collection as the API server would, with
// its resource versions. It is for one informer. Create one with DB.ListerWatcher.
//
// A list returns the latest state, also with a limit, whose continue token is expired
// (410) as soon as anything has changed: the pagers of client-go then list at once.
// A list of an exact resource version is refused with a 400.
type ListerWatcher struct {
	db      *DB
	scope   store.Scope
	decoder *decoder
	opts    FollowOptions

	mu       sync.Mutex // protects what follows
	high     int64      // the highest resource version delivered, also by Upstream
	since    int64      // the last break of history before the rows that were delivered
	lag      lag        // of the database behind what the informer has
	forgiven int64      // what Held returns up to here is of a history that is no more
	recent   []receipt  // rows that were delivered last
	direct   bool
	switched chan struct{} // is closed when direct changes
	refuses  bool          // the last watch could not begin
}

// ListerWatcher returns a ListerWatcher of a published scope. Objects have the type of
// example: one of client-go, *unstructured.Unstructured, *metav1.PartialObjectMetadata,
// or one of a custom resource. If the scope has no Cluster, the only cluster that
// publishes such a scope is meant.
func (db *DB) ListerWatcher(s store.Scope, example runtime.Object, opts FollowOptions) (*ListerWatcher, error) {
	s, err := identity(s)
	if err != nil {
		return nil, err
	}
	d, err := newDecoder(example, s.Kind)
	if err != nil {
		return nil, err
	}
	if opts.MaxStale <= 0 {
		opts.MaxStale = defaultMaxStale
	}
	return &ListerWatcher{db: db, scope: s, decoder: d, opts: opts, switched: make(chan struct{})}, nil
}

// Direct makes the API server (true) or the database (false) answer from now on, and ends
// open watches. Resource versions stay as they are, so the informer does not list.
func (l *ListerWatcher) Direct(direct bool) error {
	if l.opts.Upstream == nil {
		return errors.New("there is no Upstream to follow directly")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.direct != direct {
		l.direct = direct
		close(l.switched)
		l.switched = make(chan struct{})
	}
	return nil
}

func (l *ListerWatcher) source() (direct bool, switched <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.direct, l.switched
}

// state is what the database has of a scope, as of one statement.
type state struct {
	id     int64
	above  int64
	since  int64 // the seq of the last break of history
	last   anchor
	caught bool // the publisher had caught up at the last row
	// place is the mark before a watch; zero if there is none. known: the log has the row
	// that was delivered with that resource version.
	place anchor
	known bool
	// newest is the last change up to that resource version, zero if the log has none;
	// not read if the row is known. oldest is the resource version that the log begins
	// at.
	newest change
	oldest int64
}

// change identifies a change of an object.
type change struct {
	rv  int64
	key string
}

// receipt is a row that the informer has received, the last change up to it, nil if that
// is not known, and the last break of history before it.
type receipt struct {
	anchor
	newest *change
	since  int64
}

// maxRecent is how many rows a ListerWatcher remembers.
const maxRecent = 256

// delivered notes a row that the informer has received.
func (l *ListerWatcher) delivered(r receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.since > l.since {
		// The history that the informer has now may have lower resource versions.
		l.forgiven, l.high = max(l.forgiven, l.high), 0
	}
	l.since, l.high = r.since, max(l.high, r.rv)
	// Of rows with the same resource version the first one: who comes back with it may
	// not have received the others.
	if n := len(l.recent); n > 0 && l.recent[n-1].rv == r.rv {
		return
	}
	if len(l.recent) >= maxRecent {
		l.recent = append(l.recent[:0], l.recent[maxRecent/2:]...)
	}
	l.recent = append(l.recent, r)
}

// listed notes that the informer, or an audit beside it, has received a whole list. Rows
// from its resource version on that were delivered before are of another log.
func (l *ListerWatcher) listed(r receipt) {
	l.mu.Lock()
	l.recent = slices.DeleteFunc(l.recent, func(had receipt) bool { return had.rv >= r.rv && had.anchor != r.anchor })
	l.mu.Unlock()
	l.delivered(r)
}

// forget forgets the rows that were delivered: they are not of the present log.
func (l *ListerWatcher) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recent = nil
}

// isLost reports whether a row was lost with a history that is no more. A log that has
// lost it in a failover has its changes again as soon as the publisher has written them;
// one in which the last change before it is another one is of an API server that was
// restored, too.
func (r receipt) isLost(s state) bool {
	if r.newest == nil || *r.newest == s.newest {
		return false
	}
	wasTrimmed := s.newest.rv == 0 && r.newest.rv <= s.oldest
	return !wasTrimmed
}

// reached notes a resource version that the API server has answered with: the database
// may not lead back before it.
func (l *ListerWatcher) reached(rv string) {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.high = max(l.high, n)
}

// known returns the row with a resource version that was delivered last, zero if it is
// not remembered.
func (l *ListerWatcher) known(rv int64) receipt {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.recent) - 1; i >= 0; i-- {
		if l.recent[i].rv == rv {
			return l.recent[i]
		}
	}
	return receipt{}
}

// read reads the state, and the place of a watch from rv; 0 if there is none. known is
// the row that was delivered with rv. The error has a status.
func (l *ListerWatcher) read(ctx context.Context, rv int64, known anchor) (state, error) {
	s, err := l.fresh(ctx, rv, known)
	if err != nil {
		return s, err
	}
	return s, l.checkHeld(ctx, s)
}

// fresh is read if the database may be behind what the informer has.
func (l *ListerWatcher) fresh(ctx context.Context, rv int64, known anchor) (state, error) {
	outer := ctx
	// Not WithTimeout: a context may have an earlier deadline at which it does not end,
	// as that of a reflector's probe, and WithTimeout relies on it.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(deadline, cancel).Stop()
	var s state
	var complete, silent, isForeign bool
	var age, markAge float64
	var problem string
	var key []byte
	var v int
	where, id := "s.uid = $1", l.scope.ID()
	if l.scope.Cluster == "" {
		// The identity without the cluster, of the columns.
		where, id = l.anyCluster()
	}
	rows, err := l.db.pool.Query(ctx, l.db.sql(`SELECT v.version, s.id, s.complete, s.above, s.since, coalesce(l.seq, 0), coalesce(l.rv, 0), coalesce(l.tx, 0), coalesce(l.caught, false),
			coalesce(p.seq, 0), coalesce(p.rv, 0), coalesce(p.tx, 0), k.there,
			least(extract(epoch FROM clock_timestamp()) - extract(epoch FROM le.heard), 1e9)::float8, s.id = ANY (le.silent),
			s.problem, s.holder <> le.holder, coalesce(extract(epoch FROM clock_timestamp() - l.at), 0)::float8,
			coalesce(n.rv, 0), coalesce(n.key, ''),
			CASE WHEN $3 = 0 OR k.there THEN 0 ELSE coalesce((SELECT rv FROM informctl.change WHERE scope = s.id ORDER BY seq LIMIT 1), 0) END
		FROM informctl.scope s CROSS JOIN informctl.version v JOIN informctl.lease le ON le.grp = s.grp
		CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM informctl.change WHERE scope = s.id AND seq = $3 AND tx = $4) AS there) k
		LEFT JOIN LATERAL (SELECT seq, rv, tx, caught, at FROM informctl.change WHERE scope = s.id ORDER BY seq DESC LIMIT 1) l ON true
		LEFT JOIN LATERAL (SELECT seq, rv, tx FROM informctl.change WHERE scope = s.id AND kind = 'B' AND rv <= $2 AND seq > s.since ORDER BY rv DESC, seq DESC LIMIT 1) p ON true
		LEFT JOIN LATERAL (SELECT rv, key FROM informctl.change WHERE scope = s.id AND key IS NOT NULL AND seq > s.since AND ($2 = 0 OR rv <= $2) ORDER BY seq DESC LIMIT 1) n
			ON $2 = 0 OR $3 <> 0 AND NOT k.there
		WHERE `+where+` LIMIT 2`), id, rv, known.seq, known.tx)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&v, &s.id, &complete, &s.above, &s.since, &s.last.seq, &s.last.rv, &s.last.tx, &s.caught, &s.place.seq, &s.place.rv, &s.place.tx, &s.known, &age, &silent, &problem, &isForeign, &markAge, &s.newest.rv, &key, &s.oldest}, func() error { return nil })
	}
	switch {
	case err != nil:
		return s, l.unavailable(outer, "read the database", err)
	case rows.CommandTag().RowsAffected() == 0:
		return s, lasting{apierrors.NewServiceUnavailable(l.scope.Resource + " is not published in this database")}
	case rows.CommandTag().RowsAffected() > 1:
		return s, lasting{apierrors.NewServiceUnavailable("several clusters publish " + l.scope.Resource + " in this database: the scope needs its Cluster")}
	case v != version:
		return s, lasting{apierrors.NewServiceUnavailable(fmt.Sprintf("%s: they have version %d, this program knows %d", ErrSchema, v, version))}
	case !complete || s.last.seq == 0:
		return s, apierrors.NewServiceUnavailable("the first list of " + l.scope.Resource + " has not been published yet")
	case problem != "":
		return s, apierrors.NewServiceUnavailable(fmt.Sprintf("%s cannot be published: %s", l.scope.Resource, problem))
	case isForeign && l.isStale(markAge):
		return s, apierrors.NewServiceUnavailable("nobody publishes " + l.scope.Resource + " any more")
	case silent || l.isStale(age):
		return s, apierrors.NewServiceUnavailable(fmt.Sprintf("the API server tells the publisher of %s nothing, or there was no publisher for %s", l.scope.Resource, l.opts.MaxStale))
	}
	s.newest.key = string(key)
	return s, nil
}

// isStale reports whether an age in seconds is over MaxStale. One that is negative is of
// the clock before a failover, and says nothing, unless the clock was only set right.
func (l *ListerWatcher) isStale(age float64) bool {
	return age > l.opts.MaxStale.Seconds() || -age > max(l.opts.MaxStale, defaultMaxStale).Seconds()
}

func (l *ListerWatcher) anyCluster() (where, value string) {
	s := l.scope
	return `s.resource || E'\n' || s.api_version || E'\n' || s.kind || E'\n' || s.namespace || E'\n' || s.label_selector || E'\n' || s.field_selector = $1`,
		s.Resource + "\n" + s.Kind.GroupVersion().String() + "\n" + s.Kind.Kind + "\n" + s.Namespace + "\n" + s.LabelSelector + "\n" + s.FieldSelector
}

// rewoundAfter is how long the database must have been behind a follower until a row that
// is written later can prove that the history of the follower is no more. What a commit
// says of the API server was known up to 2*deadline before the row is there.
var rewoundAfter = 2 * time.Minute

// unansweredAfter is for how long a follower does not believe the database while the API
// server does not answer.
const unansweredAfter = 15 * time.Minute

// lag is how the database is behind what the informer has.
type lag struct {
	held int64 // what the informer has
	// since is when that was first refused, by the clock of this process; zero if the
	// database is not behind.
	since time.Time
	// last was the last row rewoundAfter later, or is one that a failover has put in its
	// place or before; zero until then. Rows after it were written after since.
	last anchor
	// unanswered is when the API server first did not answer a question for what it has;
	// zero if it was not asked.
	unanswered time.Time
}

// checkHeld refuses requests while the database is behind what the informer has. A
// publisher that has caught up with the API server and still is behind proves that the
// server went back, too, unless the server says that it did not.
func (l *ListerWatcher) checkHeld(ctx context.Context, s state) error {
	held, isProven := l.behind(s)
	if held == 0 || isProven && l.isRewound(ctx, held) {
		return nil
	}
	return tooLarge(held, s.last.rv)
}

// behind returns what the informer has if the database is behind it, else 0, and whether
// the rows prove that it is of a history that is no more.
func (l *ListerWatcher) behind(s state) (held int64, isProven bool) {
	var stored int64
	if l.opts.Held != nil {
		stored, _ = strconv.ParseInt(l.opts.Held(), 10, 64)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.high > 0 && stored <= l.high { // it has what is behind what was forgiven
		l.forgiven = 0
	}
	held = l.high
	if stored > l.forgiven {
		held = max(held, stored)
	}
	switch {
	case held <= s.last.rv:
		l.lag = lag{}
		return 0, false
	case held <= s.above && l.since < s.since:
		// It is of the history that was broken off. What an informer has received after
		// the break is not, although that may be below above, too.
		l.forgiven, l.lag = max(l.forgiven, held), lag{}
		return 0, false
	}
	if l.lag.since.IsZero() || held > l.lag.held {
		l.lag = lag{held: held, since: time.Now()}
	}
	switch last := l.lag.last; {
	case time.Since(l.lag.since) < rewoundAfter:
	case s.last.seq < last.seq, s.last.seq == last.seq && s.last.tx != last.tx, last.seq == 0:
		l.lag.last = s.last
	default:
		isProven = s.caught && s.last.seq > last.seq
	}
	return held, isProven
}

// isRewound asks the API server, if there is one to ask, whether it is below what the
// informer has. If it is, that is forgiven.
func (l *ListerWatcher) isRewound(ctx context.Context, held int64) bool {
	var now int64
	var err error
	if l.opts.Upstream != nil {
		now, err = l.present(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.lag.since.IsZero() || l.high > held: // something has changed meanwhile
		return false
	case err != nil && isOver(ctx):
		return false
	case err != nil && l.lag.unanswered.IsZero():
		l.lag.unanswered = time.Now()
		return false
	case err != nil && time.Since(l.lag.unanswered) < unansweredAfter:
		return false
	case err == nil && now >= held:
		l.lag = lag{} // it is asked again when the database was behind for as long again
		return false
	}
	l.forgiven, l.high, l.lag = held, 0, lag{}
	return true
}

// present returns the present resource version of the API server.
func (l *ListerWatcher) present(ctx context.Context) (int64, error) {
	// The context of a probe has a deadline that is for the database.
	stopped, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	list, err := cache.ToListerWithContext(l.opts.Upstream).ListWithContext(stopped, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return parseRV(m.GetResourceVersion())
}

// isOfFormer reports whether a resource version is known to be of a history that is no
// more.
func (l *ListerWatcher) isOfFormer(rv int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return rv <= l.forgiven
}

func (l *ListerWatcher) unavailable(ctx context.Context, doing string, err error) error {
	if isOver(ctx) {
		return err
	}
	l.db.failed(ctx, err)
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s: %s", doing, err))
}

// resumable returns the error that ends a watch: a 429 instead of a 503 that is not
// lasting. After any other error of a watch, client-go's reflector lists, as all
// followers would after a failover, or when there is a publisher again.
func resumable(err error) error {
	if apierrors.IsServiceUnavailable(err) && !errors.As(err, new(lasting)) {
		return apierrors.NewTooManyRequests(err.Error(), 1)
	}
	return err
}

// lasting is an error that no waiting mends.
type lasting struct{ error }

func (e lasting) Unwrap() error { return e.error }

// refused is the error of a watch that cannot begin yet. client-go's reflector takes it
// for a connection that was refused, and tries again from the same resource version.
type refused struct{ error }

func (r refused) Unwrap() []error { return []error{r.error, syscall.ECONNREFUSED} }

// refuse returns the error of a watch from a resource version that cannot begin. The
// first one is logged: client-go's reflector tells nobody.
func (l *ListerWatcher) refuse(ctx context.Context, err error) error {
	if errors.As(err, new(lasting)) || isOver(ctx) {
		return err
	}
	if l.setRefuses(true) {
		klog.FromContext(ctx).Info("A watch of PostgreSQL cannot begin, trying again", "resource", l.scope.Resource, "because", err.Error())
	}
	return refused{err}
}

// setRefuses notes whether a watch could not begin, and reports whether that is new.
func (l *ListerWatcher) setRefuses(refuses bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed = l.refuses != refuses
	l.refuses = refuses
	return changed
}

func tooLarge(rv, last int64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, last), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return err
}

func expired(rv int64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", rv))
}

// errGone: the rows that a statement depends on are not there.
var errGone = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
	Message: "the database has changed under the request",
}}

// List implements cache.Lister.
func (l *ListerWatcher) List(opts metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), opts)
}

// Watch implements cache.Watcher.
func (l *ListerWatcher) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), opts)
}
