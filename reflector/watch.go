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
	// errAsked indicates that the sink wants a list.
	errAsked = errors.New("a list was asked for")
	// errUnreadable wraps what is wrong with an object that cannot be taken.
	errUnreadable = errors.New("unreadable object")
)

const (
	atOnce        = time.Second      // a watch that lasts less ended at once
	stallGrace    = 30 * time.Second // what a watch may be silent for beyond its timeout
	timeoutSlack  = time.Second      // a watch may end so much before its timeout and have reached it
	tooLargeTries = 3
)

// session is one watch.
type session struct {
	w         watch.Interface // nil where the server did not accept it
	opened    time.Time
	timeout   time.Duration
	events    int // bookmarks not counted
	bookmarks int
}

// open asks for a watch. The session it returns is never nil.
func (r *Reflector) open(ctx context.Context, seconds int64, opts metav1.ListOptions) (*session, error) {
	s := &session{opened: time.Now(), timeout: time.Duration(seconds) * time.Second}
	opts.AllowWatchBookmarks, opts.TimeoutSeconds = true, &seconds
	var err error
	s.w, err = r.lw.WatchWithContext(ctx, opts)
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
			return errStalled
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
	if order, err := resourceversion.CompareResourceVersion(rv, r.held); err == nil && order < 0 {
		return fmt.Errorf("%w: %s after %s", errRewound, rv, r.held)
	}
	// A watch without a resource version begins with the present state, in no
	// order: none of those resource versions is one to resume from.
	if e.Type == watch.Added && (r.held == "" || r.held == "0") {
		rv = ""
	}
	if e.Type == watch.Bookmark {
		s.bookmarks++
		r.note(func(s *Status) { s.LastBookmark = time.Now() })
		err = r.opts.Sink.Bookmark(ctx, rv)
	} else {
		s.events++
		r.note(func(s *Status) { s.LastEvent, s.Events = time.Now(), s.Events+1 })
		err = r.push(ctx, e, rv)
	}
	if err != nil {
		return err
	}
	if rv != "" {
		r.hold(rv)
	}
	if !r.caughtUp {
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
	default:
		return fmt.Errorf("%w: event of type %q", errUnreadable, e.Type)
	}
	err := r.isExpected(e.Object)
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
	if s.events > 0 || s.bookmarks > 0 || lasted >= atOnce {
		r.tally.emptyAtOnce = 0
		if err == nil {
			r.tally.expired, r.tally.tooLarge, r.tally.undecodable = 0, 0, 0
			r.setError(nil)
		}
	}
	whole := err == nil && lasted >= s.timeout-timeoutSlack
	switch {
	case err == nil && !whole && s.events+s.bookmarks == 0 && lasted < atOnce:
		if r.tally.emptyAtOnce++; r.tally.emptyAtOnce >= 2 {
			r.tally.emptyAtOnce = 0
			r.relistFor(ctx, "the server ends watches from this resource version")
		}
		r.probeNext = true
		return errClosedAtOnce
	case whole:
		r.probeNext = false
		return r.catchUpEnded(ctx, s)
	case err == nil:
		err = errClosedEarly
	}
	r.probeNext = true
	if s.w != nil {
		r.tally.whole = 0
		r.lengthenCatchUp()
	}
	return r.failed(ctx, err)
}

// failed is lost for a watch that did not end as watches do.
func (r *Reflector) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errRewound) || isExpired(err):
		reason := "the server no longer has the history"
		if errors.Is(err, errRewound) {
			reason = errRewound.Error()
		}
		r.relistFor(ctx, reason)
		if r.tally.expired++; r.tally.expired == 1 {
			r.report(ctx, err)
			return nil
		}
	case isTooLarge(err):
		if r.tally.tooLarge++; r.tally.tooLarge >= tooLargeTries {
			r.tally.tooLarge = 0
			r.relistFor(ctx, "the server is behind")
		}
	case errors.Is(err, errUnreadable) || isUndecodable(err):
		if r.tally.undecodableAt != r.held {
			r.tally.undecodableAt, r.tally.undecodable = r.held, 0
		}
		if r.tally.undecodable++; r.tally.undecodable > 1 {
			r.relistFor(ctx, "an object of the watch cannot be read")
		}
	}
	return err
}

func (r *Reflector) relistFor(ctx context.Context, reason string) {
	klog.FromContext(ctx).Info("Listing again", "because", reason, "held", r.held)
	r.relist = reason
}

// catchUpEnded is what a watch that lasted to its timeout says about catching up.
// One that ended with events or with a lower bookmark was cut short: the next one
// has longer; one without anything was not. Only a server that sent no bookmark in
// two such watches, nothing at all in the last, has none to send.
func (r *Reflector) catchUpEnded(ctx context.Context, s *session) error {
	if r.caughtUp {
		return nil
	}
	if s.events+s.bookmarks > 0 {
		r.lengthenCatchUp()
	}
	if s.bookmarks > 0 {
		r.tally.whole = 0
		return nil
	}
	if r.tally.whole++; r.tally.whole >= 2 && s.events == 0 {
		return r.reachedNow(ctx)
	}
	return nil
}

func (r *Reflector) lengthenCatchUp() {
	r.tally.catchUpSeconds = min(2*r.tally.catchUpSeconds, lastCatchUp)
}

func isExpired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func isTooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// isUndecodable recognises what client-go's stream decoder makes of an object
// that it cannot decode (k8s.io/client-go/rest/watch, Decoder.Decode). The cause
// alone does not tell: a connection that breaks has it too.
func isUndecodable(err error) bool {
	if !apierrors.HasStatusCause(err, "ClientWatchDecoding") {
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
