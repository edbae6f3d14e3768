package postgres

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/informctl/informctl/internal/builtin"
	"github.com/informctl/informctl/reflector"
	"github.com/informctl/informctl/store"
)

const (
	// maxPending is how many bytes of rows wait for a commit before the watch has to
	// wait.
	maxPending = 8 << 20
	// fullCommit is how many bytes of rows do not wait for others.
	fullCommit = 2 << 20
)

// phase is what a sink does with what it is told.
//
//	from      to        when
//	watching  listing   the reflector begins a list
//	unsure    listing   the same
//	listing   watching  the list has ended, or was given up
//	watching  unsure    an event has no place in the order of resource versions
//	any       over      a commit failed for good
type phase int

const (
	watching phase = iota
	unsure         // nothing is taken until the next list
	listing        // the goroutine of the reflector writes
	over
)

// maxDisorder is how many events without a place in the order end a scope, if no deletion
// in order came between them: some aggregated APIs send deletions with the resource
// version of the state before.
const maxDisorder = 3

// sink is the reflector's Sink of one scope.
type sink struct {
	w        *writer
	kind     schema.GroupVersionKind
	interval time.Duration
	relist   func(reason string)         // of the reflector
	rewound  func(context.Context)       // is called when a list begins after a rewind
	listed   func(began time.Time)       // is called when a list was published
	gone     func(context.Context) error // of the Collection
	kick     chan struct{}               // there is something to commit
	cancel   context.CancelCauseFunc
	// floor is the first row that trim, which alone uses it, has left. It ends with the
	// sink: the rows of a database that went back begin earlier.
	floor int64

	mu         sync.Mutex // protects what follows
	changed    sync.Cond  // of the fields below
	phase      phase
	rows       []row
	size       int
	rv         int64 // the rows are complete up to it; 0 if there is nothing to mark
	urgent     bool  // a mark is wanted without rows
	caught     bool
	busy       bool // a commit is in progress
	disorder   int
	doubtful   bool      // an event was dropped, and the database does not say so yet
	last       int64     // resource version of the last event, bookmark or list
	heard      time.Time // when the API server told something last
	since      time.Time // when the commit in progress began
	bookmarked bool      // the API server sends bookmarks
	absent     bool      // the server does not serve the resource, and that is published
	marked     time.Time // when a mark was written last
}

// newSink returns a sink of a writer that has taken over. The API server was heard of
// when the last mark was written: a take-over is no sign of life.
func newSink(w *writer, kind schema.GroupVersionKind, interval time.Duration) *sink {
	s := &sink{w: w, kind: kind, interval: interval, kick: make(chan struct{}, 1), rewound: func(context.Context) {}, listed: func(time.Time) {}, heard: time.Now().Add(-w.age), marked: time.Now().Add(-w.age), last: w.end.rv}
	s.changed.L = &s.mu
	return s
}

// Checkpoint implements reflector.Sink.
func (s *sink) Checkpoint() store.Checkpoint {
	if !s.w.complete || s.w.end.seq == 0 {
		return store.Checkpoint{Reason: "the database has no whole list"}
	}
	if s.w.failed {
		return store.Checkpoint{Reason: "the scope could not be published"}
	}
	return store.Checkpoint{RV: strconv.FormatInt(s.w.end.rv, 10), Time: time.Now()}
}

// Push implements reflector.Sink.
func (s *sink) Push(ctx context.Context, t cache.DeltaType, obj runtime.Object, rv string) error {
	k := modified
	switch t {
	case cache.Added:
		k = added
	case cache.Deleted:
		k = deleted
	}
	r, err := s.row(k, obj)
	if errors.Is(err, errNoOrder) {
		s.fail(err)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard, s.absent = time.Now(), false
	if rv == "" {
		s.doubt()
		return nil
	}
	upTo, err := parseRV(rv)
	if err != nil {
		return err
	}
	for s.phase == watching && s.size > maxPending {
		s.changed.Wait()
	}
	switch s.phase {
	case over:
		return s.ended(ctx)
	case unsure:
		return nil
	}
	// An event of an ordered server is above all before it, or one of several objects
	// that expire together: their deletions have one resource version. Some aggregated
	// APIs send a deletion with the resource version of the state before.
	if upTo <= s.last && (k != deleted || upTo < s.last || !s.endsDeleted()) {
		s.doubt()
		return nil
	}
	if k == deleted {
		s.disorder = 0
	}
	s.rows, s.size, s.rv, s.last = append(s.rows, r), s.size+r.size(), upTo, upTo
	s.wake()
	return nil
}

// endsDeleted reports whether the last event is a deletion that is not committed yet.
// s.mu is locked.
func (s *sink) endsDeleted() bool { return len(s.rows) > 0 && s.rows[len(s.rows)-1].kind == deleted }

// row returns the row of an object. The error is errNoOrder, or a *store.ObjectError.
func (s *sink) row(k kind, obj runtime.Object) (row, error) {
	r, err := newRow(k, s.kind, obj)
	if err != nil && !errors.Is(err, errNoOrder) {
		err = &store.ObjectError{Key: nameOf(obj), Err: err}
	}
	return r, err
}

func isObjectError(err error) bool {
	var o *store.ObjectError
	return errors.As(err, &o)
}

func nameOf(obj runtime.Object) string {
	if m, err := meta.Accessor(obj); err == nil {
		return m.GetNamespace() + "/" + m.GetName()
	}
	return ""
}

// doubt is called for an event whose place is not known. The event is dropped, and no
// later watch tells it again. So the database has to say that a list is needed, before
// anything else is done: this publisher may not live until the list has ended.
func (s *sink) doubt() {
	if s.phase != watching {
		return
	}
	s.disorder++
	s.phase, s.doubtful, s.urgent = unsure, true, true
	s.wake()
}

// noPlace is the problem of a scope that has dropped an event.
const noPlace = "an event has no place in the order of resource versions"

// doubted lists after a doubt that the database knows of. s.mu is locked.
func (s *sink) doubted() {
	if s.disorder >= maxDisorder {
		s.failLocked(errNoOrder)
		return
	}
	s.relist(noPlace)
}

// Reject implements reflector.Sink. No object that an API server sends is refused, so
// what is refused here would be missing in every follower.
func (s *sink) Reject(_ context.Context, _ runtime.Object, cause error) { s.fail(cause) }

// Bookmark implements reflector.Sink. Marks without rows wait for those of other scopes.
func (s *sink) Bookmark(_ context.Context, rv string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	s.bookmarked = true
	if n, err := parseRV(rv); err == nil && s.phase == watching {
		s.rv, s.last = max(s.rv, n), max(s.last, n)
	}
	return nil
}

// CaughtUp implements reflector.Sink.
func (s *sink) CaughtUp(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caught, s.heard = true, time.Now()
	if s.phase != watching {
		return nil
	}
	s.urgent = true
	s.wake()
	return s.drained(ctx)
}

// drained waits until nothing is left to commit. s.mu is locked.
func (s *sink) drained(ctx context.Context) error {
	for (len(s.rows) > 0 || s.urgent || s.busy) && s.phase != over {
		s.changed.Wait()
	}
	if s.phase == over {
		return s.ended(ctx)
	}
	return nil
}

// ended returns why the sink is over.
func (s *sink) ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return context.Canceled
}

func (s *sink) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *sink) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(err)
}

func (s *sink) failLocked(err error) {
	s.cancel(err)
	s.phase = over
	s.changed.Broadcast()
}

// Relist implements reflector.Sink.
func (s *sink) Relist(ctx context.Context, reason string) (reflector.Relist, error) {
	switch reason {
	case reflector.Rewound:
		s.rewound(ctx)
	case reflector.NoResource:
		if err := s.confirmGone(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.beginList(ctx); err != nil {
		return nil, err
	}
	l, err := s.w.newRelist(ctx, s, reason)
	if err != nil {
		s.fail(err)
		return nil, err
	}
	return l, nil
}

// confirmGone returns an error if the objects of a resource may exist, although the API
// server does not serve it: the resource is built in and switched off, or served in
// another version.
func (s *sink) confirmGone(ctx context.Context) error {
	resource := schema.ParseGroupResource(s.w.scope.Resource)
	if err := builtin.ConfirmGone(resource); err != nil || s.gone == nil {
		return err
	}
	return s.gone(ctx)
}

// beginList waits until nothing is left to commit. From then on the goroutine of the
// reflector writes.
func (s *sink) beginList(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.drained(ctx); err != nil {
		return err
	}
	s.phase, s.rv = listing, 0
	return nil
}

// listEnded is called when a list has ended, or was given up.
func (s *sink) listEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == listing {
		s.phase, s.last = watching, s.w.end.rv
	}
}

// run commits what was pushed until the context ends.
func (s *sink) run(ctx context.Context) {
	defer func() { s.fail(context.Cause(ctx)) }()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		}
		if wait := s.interval - time.Since(last); wait > 0 && !s.isFull() {
			if !pause(ctx, wait) {
				return
			}
		}
		s.settle(ctx)
		last = time.Now()
		if err := s.commit(ctx); err != nil {
			s.fail(err)
			return
		}
	}
}

// settleTime is how long a deletion waits for others with its resource version. No mark
// may come between them.
var settleTime = 20 * time.Millisecond

// settle waits until no more deletions follow a deletion at the end, for a hundred times
// settleTime at most. One that comes later is a doubt.
func (s *sink) settle(ctx context.Context) {
	for range 100 {
		s.mu.Lock()
		n, waits := len(s.rows), s.endsDeleted() && !s.urgent
		s.mu.Unlock()
		if !waits || !pause(ctx, settleTime) {
			return
		}
		s.mu.Lock()
		isQuiet := len(s.rows) == n
		s.mu.Unlock()
		if isQuiet {
			return
		}
	}
}

func (s *sink) isFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size >= fullCommit || s.urgent
}

func (s *sink) commit(ctx context.Context) error {
	s.mu.Lock()
	for s.busy {
		s.changed.Wait()
	}
	if len(s.rows) == 0 && !s.urgent || s.phase == listing || s.phase == over {
		s.urgent = false
		s.changed.Broadcast()
		s.mu.Unlock()
		return nil
	}
	rows, rv := s.rows, max(s.rv, s.w.end.rv)
	problem := ""
	if s.doubtful {
		problem = noPlace
	}
	s.rows, s.size, s.rv, s.urgent, s.doubtful, s.busy, s.since = nil, 0, 0, false, false, true, time.Now()
	s.w.caught, s.marked = s.caught, s.since
	s.changed.Broadcast()
	s.mu.Unlock()
	err := s.w.append(ctx, rows, rv, problem)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy = false
	switch {
	case err != nil:
		s.w.failed = s.w.failed || problem != "" // the next sink lists
		s.failLocked(err)
	case problem != "":
		s.doubted()
	}
	s.changed.Broadcast()
	return err
}

// sameMarkEvery is how often a mark is written at the same resource version again, while
// the API server says no other: it tells SQL and operators as of when that is so.
const sameMarkEvery = time.Minute

// takeMark returns the resource version of a mark without rows that is due, and makes the
// sink busy until markWritten. None is of a scope with a problem, which waits for a list.
func (s *sink) takeMark() (rv int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || s.phase != watching || len(s.rows) > 0 || s.urgent || !s.w.complete || s.w.failed {
		return 0, false
	}
	isSame := s.rv == s.w.end.rv && s.heard.After(s.marked) && time.Since(s.marked) >= sameMarkEvery
	if s.rv <= s.w.end.rv && !isSame {
		return 0, false
	}
	rv, s.rv, s.busy, s.since = s.rv, 0, true, time.Now()
	s.w.caught, s.marked = s.caught, s.since
	return rv, true
}

// markWritten ends what takeMark began. A mark that was not written is committed alone,
// which finds out why.
func (s *sink) markWritten(written bool, c commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if written {
		s.w.ended(c)
	} else {
		s.rv, s.urgent = max(s.rv, c.end.rv), true
		s.wake()
	}
	s.busy = false
	s.changed.Broadcast()
}

// hear notes that the API server has told something.
func (s *sink) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
}

// hearAbsence notes that the API server does not serve the resource. Once that is
// published it is a sign of life: nothing else is to come.
func (s *sink) hearAbsence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.absent {
		return
	}
	if s.heard = time.Now(); s.phase == watching && !s.busy {
		s.rv = max(s.rv, s.w.end.rv)
	}
}

// hearAnswer notes that the API server has answered a list. It is a sign of life only of
// a server without bookmarks, whose idle collections have no other: it does not show that
// watches are served.
func (s *sink) hearAnswer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.caught && !s.bookmarked {
		s.heard = time.Now()
	}
}

// audible is a ListerWatcher whose sink hears that a list, as that of a probe, was
// answered.
type audible struct {
	cache.ListerWatcher
	s *sink
}

// ListWithContext implements cache.ListerWithContext.
func (a audible) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	list, err := cache.ToListerWithContext(a.ListerWatcher).ListWithContext(ctx, opts)
	if err == nil {
		a.s.hearAnswer()
	}
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext.
func (a audible) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return cache.ToWatcherWithContext(a.ListerWatcher).WatchWithContext(ctx, opts)
}

// IsWatchListSemanticsUnSupported says what the ListerWatcher says; see
// watchlist.DoesClientNotSupportWatchListSemantics.
func (a audible) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(a.ListerWatcher)
}

// lastHeard returns what is known of the API server's signs of life. What was left
// waiting for the database is none.
func (s *sink) lastHeard() hearsay {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := hearsay{last: s.heard, bookmarked: s.bookmarked, caught: s.caught}
	if s.busy && s.since.Before(s.heard) {
		h.last = s.since
	}
	return h
}
