package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

var (
	// errClosedAtOnce indicates a watch that ended at once without an event.
	errClosedAtOnce = errors.New("the watch ended at once without an event")
	// errClosedEarly indicates a watch that ended well before its timeout.
	errClosedEarly = errors.New("the watch ended before its timeout")
	// errStalled indicates a watch that sent nothing until after its timeout.
	errStalled = errors.New("nothing was heard of the watch past its timeout")
	// errUnanswered indicates a watch that the server neither accepted nor refused.
	errUnanswered = fmt.Errorf("the watch was not answered: %w", errStalled)
	// errRewound indicates a resource version below the held one.
	errRewound = errors.New(Rewound)
	// errElsewhere indicates a watch that does not begin at the held resource version:
	// the ListerWatcher asks for another one, as for 0. It does not tell what was
	// deleted.
	errElsewhere = errors.New("the watch does not begin where it was asked for")
	// errNoWatch indicates a ListerWatcher that returned neither a watch nor an error.
	errNoWatch = errors.New("the ListerWatcher returned no watch")
	// errAsked indicates that the sink requested a list.
	errAsked = errors.New("a list was asked for")
	// errUnreadable wraps the error of an object that cannot be taken.
	errUnreadable = errors.New("unreadable object")
)

const (
	atOnce        = time.Second      // a watch that lasts less has ended at once
	stallGrace    = 30 * time.Second // how long a watch may be silent beyond its timeout
	timeoutSlack  = time.Second      // how early a watch may end and count as timed out
	soon          = 10 * time.Second // an error so early is due to the start of the watch
	tooLargeTries = 3
	failureTries  = 3
	// forbiddenTries is how many watches in a row may be forbidden after probes whose
	// lists were not. An API server that starts forbids for some seconds.
	forbiddenTries = 6
	cutTries       = 10
)

// session is one watch.
type session struct {
	w     watch.Interface         // nil if the server did not accept it
	end   context.CancelCauseFunc // ends the request
	asked time.Time
	// opened is when the server accepted the watch. A proxy may report that only with the
	// first event.
	opened    time.Time
	timeout   time.Duration
	unprobed  bool
	events    int       // without bookmarks
	last      time.Time // when the last one came
	bookmarks int
	moved     int // bookmarks with another resource version than the held one
}

// brought reports whether the watch delivered an event or a bookmark.
func (s *session) brought() bool { return s.events+s.bookmarks > 0 }

// open starts a watch. The returned session is never nil. If the server does not answer
// in time, the error is errUnanswered.
func (r *Reflector) open(ctx context.Context, seconds int64, opts metav1.ListOptions) (*session, error) {
	s := &session{asked: time.Now(), timeout: time.Duration(seconds) * time.Second}
	opts.AllowWatchBookmarks, opts.TimeoutSeconds = true, &seconds
	ctx, s.end = context.WithCancelCause(ctx)
	patience := s.timeout + stallGrace
	if opts.SendInitialEvents != nil {
		patience = streamSilence
	}
	unanswered := time.AfterFunc(patience, func() { s.end(errUnanswered) })
	var err error
	s.w, err = endable.Call(ctx, func() (watch.Interface, error) { return r.lw.WatchWithContext(r.opts.Request(ctx), opts) }, stopLate)
	s.opened = time.Now()
	switch {
	case !unanswered.Stop():
		if s.w != nil {
			s.stop()
		}
		s.w, s.opened, err = nil, s.asked, errUnanswered
	case err == nil && s.w == nil:
		err = errNoWatch
	}
	if err != nil {
		s.end(err)
	}
	return s, err
}

// watch opens a watch at the held resource version, or continues the watch of a streamed
// list or probe. It passes the events to the sink until the watch ends.
func (r *Reflector) watch(ctx context.Context) error {
	s := r.stream
	r.stream = nil
	if s == nil {
		seconds, unprobed, first := randomTimeout(), r.next == toUnprobedWatch, r.next == toFirstWatch
		switch {
		case unprobed:
			seconds, r.next = lastCatchUp, toProbe
		case first:
			r.next = toWatch
		case !r.caughtUp:
			seconds = r.tally.catchUpSeconds
		}
		var err error
		open := r.open
		if first {
			open = r.openFirst
		}
		s, err = open(ctx, seconds, metav1.ListOptions{ResourceVersion: r.held})
		s.unprobed = unprobed
		if err != nil {
			if s.w != nil {
				s.stop()
			}
			return r.lost(ctx, s, err) // as it is: error handlers compare it with io.EOF
		}
		r.note(func(s *Status) { s.Resumes++ })
	}
	if r.resumed {
		r.resumed = false
		klog.FromContext(ctx).Info("Resumed the watch", "resourceVersion", r.held)
	}
	defer s.stop()
	return r.lost(ctx, s, r.consume(ctx, s))
}

// fakePatience is how long the first watch of a fake may hold up that the reflector has
// caught up. A test's watch may block, which does not hold up client-go's informer.
const fakePatience = time.Second

// openFirst opens the first watch of a fake, and tells the sink that the reflector has
// caught up, also if the fake panics.
func (r *Reflector) openFirst(ctx context.Context, seconds int64, opts metav1.ListOptions) (s *session, err error) {
	reached := r.reachSoon(ctx)
	defer func() {
		if notReached := reached(); notReached != nil {
			err = errors.Join(err, notReached)
		}
	}()
	return r.open(ctx, seconds, opts)
}

// reachSoon tells the sink that the reflector has caught up when the returned function is
// called, or after fakePatience. Until then the reflector may do nothing but open its
// watch.
func (r *Reflector) reachSoon(ctx context.Context) (now func() error) {
	var err error
	done := make(chan struct{})
	reach := func() {
		defer close(done)
		err = r.reachedNow(ctx)
	}
	patience := time.AfterFunc(fakePatience, reach)
	return func() error {
		if patience.Stop() {
			reach()
		}
		<-done
		return err
	}
}

// stopGrace is how long a stopped watch may take to close its channel.
const stopGrace = time.Second

// stop ends the watch and reads the events that it still sends: apimachinery's
// watch.Filter, which the metadata client uses, would otherwise block for ever in sending
// an event.
func (s *session) stop() {
	s.w.Stop()
	s.end(nil)
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	for {
		select {
		case _, open := <-s.w.ResultChan():
			if !open {
				return
			}
		case <-grace.C:
			return
		}
	}
}

// consume passes the events of a watch to the sink. It returns nil when the watch is
// closed.
func (r *Reflector) consume(ctx context.Context, s *session) error {
	stalled := time.NewTimer(s.timeout + stallGrace)
	defer stalled.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled.C:
			if !r.isWatchedFake() {
				return errStalled
			}
		case reason := <-r.asked:
			r.relistFor(ctx, reason)
			return errAsked
		case e, open := <-s.w.ResultChan():
			if !open {
				return nil
			}
			if err := r.event(ctx, s, e); err != nil {
				return err
			}
			stalled.Reset(s.timeout + stallGrace)
		}
	}
}

// event passes one event to the sink and advances the held resource version.
func (r *Reflector) event(ctx context.Context, s *session, e watch.Event) error {
	if e.Type == watch.Error {
		return errorOf(e)
	}
	accessor, err := meta.Accessor(e.Object)
	if err != nil && r.fake {
		r.report(ctx, err) // as in push
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	rv := accessor.GetResourceVersion()
	// A watch without a resource version starts with the present state, in no order, and
	// never tells what was deleted before it began: no later watch may continue from it.
	fromNone := isNone(r.held) && (!r.fake || e.Type == watch.Added)
	upTo := rv
	lower := isLower(rv, r.held)
	if lower || r.unordered || fromNone {
		upTo = "" // the stream is not known to be complete up to rv
	}
	if e.Type == watch.Bookmark {
		if s.bookmarks++; rv != "" && rv != r.held {
			s.moved++
		}
		r.note(func(s *Status) { s.LastBookmark = time.Now() })
		err = r.opts.Sink.Bookmark(ctx, upTo)
	} else {
		s.events++
		s.last = time.Now()
		r.note(func(s *Status) { s.LastEvent, s.Events = time.Now(), s.Events+1 })
		err = r.push(ctx, e, upTo)
	}
	if err != nil {
		return err
	}
	switch {
	case lower:
		return r.doubt(ctx, rv)
	case fromNone && !r.fake:
		r.received(rv)
	case rv != "" && !fromNone:
		r.hold(rv)
	}
	if r.now == "" {
		return nil
	}
	if order, err := resourceversion.CompareResourceVersion(r.held, r.now); err == nil && order >= 0 {
		if r.now = ""; !r.caughtUp {
			return r.reachedNow(ctx)
		}
	}
	return nil
}

func (r *Reflector) push(ctx context.Context, e watch.Event, rv string) error {
	var t cache.DeltaType
	switch e.Type {
	case watch.Added:
		t = cache.Added
	case watch.Modified:
		t = cache.Updated
	case watch.Deleted:
		t = cache.Deleted
	}
	err := r.isExpected(e.Object)
	if t == "" {
		err = fmt.Errorf("event of type %q", e.Type)
	}
	if err == nil {
		err = r.opts.Sink.Push(ctx, t, e.Object, rv)
		var bad *store.ObjectError
		if err == nil || !errors.As(err, &bad) {
			return err
		}
	}
	if r.tolerant {
		r.opts.Sink.Reject(ctx, e.Object, err)
		return nil
	}
	if r.fake && !errors.As(err, new(*store.ObjectError)) {
		r.report(ctx, err) // the author of a test sends an object of another type
		return nil
	}
	return fmt.Errorf("%w: %w", errUnreadable, err)
}

// lost decides the step after a watch has ended. It implements the table in the package
// documentation. An error makes the caller wait.
func (r *Reflector) lost(ctx context.Context, s *session, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errAsked) {
		return nil
	}
	r.closeGap(ctx, s)
	lasted := time.Since(s.opened)
	if s.unprobed {
		return r.lostUnprobed(ctx, s, err)
	}
	if lasted > healthyAfter || (err == nil && lasted >= atOnce) {
		r.backoff = newBackoff()
	}
	if s.brought() || lasted >= atOnce {
		r.tally.emptyAtOnce = 0
		if err == nil {
			r.tally.expired, r.tally.tooLarge = 0, 0
			r.tally.undecodable, r.tally.failures, r.tally.forbidden = repeated{}, repeated{}, repeated{}
			r.setError(nil)
		}
	}
	if err != nil {
		r.afterLoss()
		if s.w != nil || errors.Is(err, errUnanswered) {
			r.cutShort(ctx, s, lasted)
		}
		return r.failed(ctx, s, err)
	}
	switch {
	case r.isWatchedFake() && (s.brought() || lasted >= atOnce):
		return nil // as client-go does: what changes in a pause would be lost
	case lasted >= s.timeout-timeoutSlack:
		if !s.brought() || isNone(r.held) {
			r.afterLoss() // a watch is also silent after a rewind of history
		}
		if !r.caughtUp {
			r.catchUpEnded(ctx, s)
		}
		return nil
	case !s.brought() && lasted < atOnce && time.Since(s.asked) < s.timeout-timeoutSlack:
		r.afterLoss()
		if r.tally.emptyAtOnce++; r.tally.emptyAtOnce >= 2 || r.isWatchedFake() {
			r.tally.emptyAtOnce = 0
			r.relistFor(ctx, "the server ends watches from this resource version")
		}
		return errClosedAtOnce
	}
	r.afterLoss()
	r.cutShort(ctx, s, lasted)
	return errClosedEarly
}

// lostUnprobed is like lost, for a watch without a probe. The next step is a probe, and a
// list only where no watch can continue: its failures do not count, since lists fail,
// too.
func (r *Reflector) lostUnprobed(ctx context.Context, s *session, err error) error {
	switch {
	case errors.Is(err, errRewound) || errors.Is(err, errElsewhere) || isExpired(err) || apierrors.IsStoreReadError(err):
		return r.failed(ctx, s, err)
	case isUndecodable(err):
		r.opts.Undecodable()
	case errors.Is(err, errUnreadable):
		r.tolerant = r.tally.undecodable.count(r.held) > 1
	case err == nil && time.Since(s.opened) < s.timeout-timeoutSlack:
		return errClosedEarly
	case err == nil:
		r.backoff = newBackoff()
	}
	return err
}

// failed is like lost, for a watch that ended with an error.
func (r *Reflector) failed(ctx context.Context, s *session, err error) error {
	switch {
	case errors.Is(err, errElsewhere):
		return r.relistAtOnce(ctx, errElsewhere.Error(), err)
	case errors.Is(err, errRewound) || isExpired(err):
		reason := "the server no longer has the history"
		if errors.Is(err, errRewound) {
			reason = errRewound.Error()
		}
		return r.relistAtOnce(ctx, reason, err)
	case apierrors.IsStoreReadError(err):
		// The server sent a deletion of an object that etcd could not read. No watch from
		// this resource version will deliver it.
		return r.relistAtOnce(ctx, "the server could not read an object", err)
	case isTooLarge(err):
		if r.tally.tooLarge++; r.tally.tooLarge >= tooLargeTries {
			r.tally.tooLarge = 0
			r.listRather(ctx, "the server is behind")
		}
	case errors.Is(err, errUnreadable) || isUndecodable(err):
		if isUndecodable(err) {
			r.opts.Undecodable()
		}
		if r.tally.undecodable.count(r.held) > 1 {
			r.listRather(ctx, "an object of the watch cannot be read")
		}
	case apierrors.IsForbidden(err):
		if r.tally.forbidden.count(r.held) >= forbiddenTries {
			r.tally.forbidden = repeated{}
			r.listRather(ctx, "watches are forbidden, lists are not")
		}
	case isAnswer(err) && time.Since(s.opened) < soon:
		if r.tally.failures.count(r.held) >= failureTries {
			r.tally.failures = repeated{}
			r.listRather(ctx, "watches from this resource version fail")
		}
	}
	if r.isWatchedFake() && !apierrors.IsTooManyRequests(err) && !utilnet.IsConnectionRefused(err) {
		r.relistFor(ctx, "a fake sends nothing again")
	}
	return err
}

// isWatchedFake reports whether the server is a fake that the reflector has caught up
// with. As it may replay nothing, what changes until the next watch is open is lost
// without a list, so the reflector lists and watches when client-go's does.
func (r *Reflector) isWatchedFake() bool { return r.fake && r.caughtUp }

// relistAtOnce makes a list the next step, without a backoff the first time.
func (r *Reflector) relistAtOnce(ctx context.Context, reason string, err error) error {
	r.relistFor(ctx, reason)
	if r.tally.expired++; r.tally.expired > 1 {
		return err
	}
	r.report(ctx, err)
	return nil
}

func (r *Reflector) relistFor(ctx context.Context, reason string) {
	klog.FromContext(ctx).Info("Listing again", "because", reason, "held", r.held)
	r.next, r.relist = toList, reason
}

// listRather is relistFor if the held resource version may still be good.
func (r *Reflector) listRather(ctx context.Context, reason string) {
	if r.tally.failedLists > failureTries && time.Since(r.listFailed) < failedListEvery {
		return // the watch goes on
	}
	r.relistFor(ctx, reason)
	r.next = toListOrProbe
}
