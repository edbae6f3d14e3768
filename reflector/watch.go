package reflector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/store"
)

var (
	// errClosedAtOnce indicates a watch that ended at once without an event.
	errClosedAtOnce = errors.New("the watch ended at once without an event")
	// errClosedEarly indicates a watch that ended well before its timeout.
	errClosedEarly = errors.New("the watch ended before its timeout")
	// errStalled indicates a watch of which nothing was heard past its timeout.
	errStalled = errors.New("nothing was heard of the watch past its timeout")
	// errRewound indicates a resource version below the held one.
	errRewound = errors.New("history was rewound")
	// errNoWatch indicates a ListerWatcher that returned neither a watch nor an error.
	errNoWatch = errors.New("the ListerWatcher returned no watch")
	// errAsked indicates that the sink wants a list.
	errAsked = errors.New("a list was asked for")
	// errUnreadable wraps what is wrong with an object that cannot be taken.
	errUnreadable = errors.New("unreadable object")
)

const (
	atOnce        = time.Second      // a watch that lasts less ended at once
	stallGrace    = 30 * time.Second // what a watch may be silent for beyond its timeout
	timeoutSlack  = time.Second      // a watch may end so much before its timeout and have reached it
	soon          = 10 * time.Second // an error that ends a watch so soon comes from where it began
	tooLargeTries = 3
	failureTries  = 3
	cutTries      = 10
)

// session is one watch.
type session struct {
	w         watch.Interface // nil where the server did not accept it
	asked     time.Time
	opened    time.Time // when the server had accepted it, which a proxy may report with the first event only
	timeout   time.Duration
	events    int // bookmarks not counted
	bookmarks int
}

// brought reports whether the watch brought anything.
func (s *session) brought() bool { return s.events+s.bookmarks > 0 }

// open asks for a watch. The session it returns is never nil.
func (r *Reflector) open(ctx context.Context, seconds int64, opts metav1.ListOptions) (*session, error) {
	s := &session{asked: time.Now(), timeout: time.Duration(seconds) * time.Second}
	opts.AllowWatchBookmarks, opts.TimeoutSeconds = true, &seconds
	var err error
	s.w, err = call(ctx, func() (watch.Interface, error) { return r.lw.WatchWithContext(ctx, opts) }, func(w watch.Interface) {
		if w != nil {
			w.Stop()
		}
	})
	s.opened = time.Now()
	if err == nil && s.w == nil {
		err = errNoWatch
	}
	return s, err
}

// watch opens a watch at the held resource version, or takes the one that a
// streamed list goes on as, and brings its events to the sink until it ends.
func (r *Reflector) watch(ctx context.Context) error {
	s := r.stream
	r.stream = nil
	if s == nil {
		seconds := randomTimeout()
		if !r.caughtUp {
			seconds = r.tally.catchUpSeconds
		}
		var err error
		if s, err = r.open(ctx, seconds, metav1.ListOptions{ResourceVersion: r.held}); err != nil {
			return r.lost(ctx, s, fmt.Errorf("watch: %w", err))
		}
		r.note(func(s *Status) { s.Resumes++ })
		if r.resumed {
			r.resumed = false
			klog.FromContext(ctx).Info("Resumed the watch", "resourceVersion", r.held)
		}
	}
	defer s.stop()
	return r.lost(ctx, s, r.consume(ctx, s))
}

// stopGrace is how long a stopped watch may take to close its channel.
const stopGrace = time.Second

// stop ends the watch and takes what it still sends: apimachinery's
// watch.Filter, which the metadata client uses, would wait for ever to be rid of
// an event.
func (s *session) stop() {
	s.w.Stop()
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

// consume returns nil when the watch was closed.
func (r *Reflector) consume(ctx context.Context, s *session) error {
	stalled := time.NewTimer(s.timeout + stallGrace)
	defer stalled.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-stalled.C:
			if !r.fake || !r.caughtUp {
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

// event brings one event to the sink and advances the held resource version.
func (r *Reflector) event(ctx context.Context, s *session, e watch.Event) error {
	if e.Type == watch.Error {
		return apierrors.FromObject(e.Object)
	}
	accessor, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	rv := accessor.GetResourceVersion()
	// A watch without a resource version begins with the present state, in no
	// order: none of those resource versions is one to resume from.
	if e.Type == watch.Added && (r.held == "" || r.held == "0") {
		rv = ""
	}
	upTo := rv
	lower := isLower(rv, r.held)
	if lower || r.unordered {
		upTo = "" // nothing is said of what the stream is complete up to
	}
	if e.Type == watch.Bookmark {
		s.bookmarks++
		r.note(func(s *Status) { s.LastBookmark = time.Now() })
		err = r.opts.Sink.Bookmark(ctx, upTo)
	} else {
		s.events++
		r.note(func(s *Status) { s.LastEvent, s.Events = time.Now(), s.Events+1 })
		err = r.push(ctx, e, upTo)
	}
	if err != nil {
		return err
	}
	switch {
	case lower:
		return r.doubt(ctx, rv)
	case rv != "":
		r.hold(rv)
	}
	if !r.caughtUp && r.now != "" {
		if order, err := resourceversion.CompareResourceVersion(r.held, r.now); err == nil && order >= 0 {
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
		r.report(ctx, err) // the author of a test sends what is no object of the type
		return nil
	}
	return fmt.Errorf("%w: %w", errUnreadable, err)
}

// lost decides what follows a watch that ended; the table in the package
// documentation in code. An error makes the caller wait.
func (r *Reflector) lost(ctx context.Context, s *session, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, errAsked) {
		return nil
	}
	lasted := time.Since(s.opened)
	if lasted > healthyAfter || (err == nil && lasted >= atOnce) {
		r.backoff = newBackoff()
	}
	if s.brought() || lasted >= atOnce {
		r.tally.emptyAtOnce = 0
		if err == nil {
			r.tally.expired, r.tally.tooLarge, r.tally.undecodable, r.tally.failures = 0, 0, repeated{}, repeated{}
			r.setError(nil)
		}
	}
	if err != nil {
		r.afterLoss()
		if s.w != nil {
			r.cutShort(ctx, s, lasted)
		}
		return r.failed(ctx, s, err)
	}
	switch {
	case r.fake && r.caughtUp && s.events > 0:
		return nil // as client-go does
	case lasted >= s.timeout-timeoutSlack:
		if !s.brought() {
			r.afterLoss() // a history that was rewound is silent, too
		}
		r.catchUpEnded(ctx, s)
		return nil
	case !s.brought() && lasted < atOnce && time.Since(s.asked) < s.timeout-timeoutSlack:
		r.afterLoss()
		if r.tally.emptyAtOnce++; r.tally.emptyAtOnce >= 2 {
			r.tally.emptyAtOnce = 0
			r.relistFor(ctx, "the server ends watches from this resource version")
		}
		return errClosedAtOnce
	}
	r.afterLoss()
	r.cutShort(ctx, s, lasted)
	return errClosedEarly
}

// failed is lost for a watch that did not end as watches do.
func (r *Reflector) failed(ctx context.Context, s *session, err error) error {
	switch {
	case errors.Is(err, errRewound) || isExpired(err):
		reason := "the server no longer has the history"
		if errors.Is(err, errRewound) {
			reason = errRewound.Error()
		}
		return r.relistAtOnce(ctx, reason, err)
	case apierrors.IsStoreReadError(err):
		// A deletion of what etcd could not read: no watch from here will bring it.
		return r.relistAtOnce(ctx, "the server could not read an object", err)
	case isTooLarge(err):
		if r.tally.tooLarge++; r.tally.tooLarge >= tooLargeTries {
			r.tally.tooLarge = 0
			r.relistFor(ctx, "the server is behind")
		}
	case errors.Is(err, errUnreadable) || isUndecodable(err):
		if r.tally.undecodable.count(r.held) > 1 {
			r.relistFor(ctx, "an object of the watch cannot be read")
		}
	case isAnswer(err) && time.Since(s.opened) < soon:
		if r.tally.failures.count(r.held) >= failureTries {
			r.tally.failures = repeated{}
			r.relistFor(ctx, "watches from this resource version fail")
		}
	}
	return err
}

// relistAtOnce makes a list the next step, without a wait the first time.
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

// catchUpEnded is what a watch that lasted to its timeout says about catching up. One
// that ended with events or with a lower bookmark was cut short: the next one has
// longer; one without anything was not. A server that sent no bookmark in two such
// watches, nothing at all in the last, has none to send, or its watch cache lags: only
// a list says which.
func (r *Reflector) catchUpEnded(ctx context.Context, s *session) {
	if r.caughtUp {
		return
	}
	if s.brought() {
		r.lengthenCatchUp()
	}
	if s.bookmarks > 0 {
		r.tally.whole = 0
		return
	}
	if r.tally.whole++; r.tally.whole >= 2 && s.events == 0 {
		r.tally.whole = 0
		r.relistFor(ctx, "the server does not say when a watch has caught up")
	}
}

func (r *Reflector) lengthenCatchUp() {
	r.tally.catchUpSeconds = min(2*r.tally.catchUpSeconds, lastCatchUp)
}

// cutShort is called when a watch ended before its timeout. The next one that is to
// catch up has longer, but less than this one has lasted, if that was long enough for a
// bookmark: something on the way may cut each watch after that time.
// After cutTries in silence, one after the other, only a list says what the server has.
func (r *Reflector) cutShort(ctx context.Context, s *session, lasted time.Duration) {
	r.tally.whole = 0
	r.lengthenCatchUp()
	if most := int64(lasted.Seconds()) - 1; most >= firstCatchUp {
		r.tally.catchUpSeconds = min(r.tally.catchUpSeconds, most)
	}
	if r.caughtUp || s.brought() {
		r.tally.cut = 0
		return
	}
	r.tally.cut++
	if lasted > s.timeout { // it was not cut: nothing ends it
		r.tally.cut += cutTries / 3
	}
	if r.tally.cut >= cutTries {
		r.tally.cut = 0
		r.relistFor(ctx, "the server does not say when a watch has caught up")
	}
}

// isAnswer reports whether an error is the server's word about a watch: neither that of
// a connection, nor that the client comes too often or is not allowed to come.
func isAnswer(err error) bool {
	switch {
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err), utilnet.IsTimeout(err),
		utilnet.IsHTTP2ConnectionLost(err), apierrors.HasStatusCause(err, causeDecoding),
		apierrors.IsTooManyRequests(err), apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), errors.Is(err, errStalled):
		return false
	}
	return true
}

func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// causeDecoding is the cause of all errors of client-go's stream decoder.
const causeDecoding = "ClientWatchDecoding"

// isUndecodable recognises what client-go's stream decoder makes of an object
// that it cannot decode (k8s.io/client-go/rest/watch, Decoder.Decode). The cause
// alone does not tell: a connection that breaks has it too.
func isUndecodable(err error) bool {
	if !apierrors.HasStatusCause(err, causeDecoding) {
		return false
	}
	for _, text := range []string{
		"unable to decode watch event", "unable to decode to metav1.WatchEvent",
		"got invalid watch event type", streaming.ErrObjectTooLarge.Error(),
	} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// suggestedDelay is the server's Retry-After.
func suggestedDelay(err error) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	return time.Duration(seconds) * time.Second
}
