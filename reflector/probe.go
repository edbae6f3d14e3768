package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/internal/ratelimit"
)

const (
	// listPatience is how long the list of a probe may wait for the client's limit of
	// requests per second, which watches do not: behind client-go's default, the lists of
	// 200 reflectors take 40 seconds.
	listPatience = 500 * time.Millisecond
	// wholePatience is the same if the whole collection is asked for, which a streamed
	// list sends at the same cost, but without gzip. A busy machine takes some of it.
	wholePatience = 50 * time.Millisecond
	// streamPatience is how long the probe waits for its streamed list, before it lists
	// without a limit of time.
	streamPatience = 5 * time.Second
	// nothing selects no object.
	nothing = "informctl,!informctl"
)

// present returns the server's present resource version, with a consistent list of at
// most limit objects. The list is empty if limit is 1.
func (r *Reflector) present(ctx context.Context, limit int64) (rv string, list runtime.Object, err error) {
	if !r.streams() {
		return r.presentByList(ctx, limit)
	}
	if rv, list, err = r.presentSoon(ctx, limit); !apierrors.IsForbidden(err) || ctx.Err() != nil {
		return rv, list, err
	}
	// Who may watch needs no list.
	if rv, list, streamErr := r.presentByStream(ctx, limit); streamErr == nil {
		return rv, list, nil
	}
	return "", nil, err
}

// presentSoon implements present with a list, or with a streamed list where that would
// wait for the client's limit of requests per second.
func (r *Reflector) presentSoon(ctx context.Context, limit int64) (rv string, list runtime.Object, err error) {
	if r.tally.probeStreams >= streamTries {
		return r.presentByList(ctx, limit)
	}
	begin, patience := time.Now(), listPatience
	if limit > 1 {
		patience = wholePatience
	}
	rv, list, err = r.presentByList(hasty{ctx, begin.Add(patience)}, limit)
	switch {
	case !ratelimit.Refused(err) || ctx.Err() != nil:
		return rv, list, err
	case time.Since(begin) >= listPatience:
		// It was refused when client-go was about to send it again, after the server's
		// Retry-After.
		return r.presentByList(ctx, limit)
	}
	rv, list, err = r.presentByStream(ctx, limit)
	if err == nil {
		r.tally.probeStreams = 0
		return rv, list, nil
	}
	r.tally.probeStreams++
	klog.FromContext(ctx).V(2).Info("No streamed list for the present resource version, listing", "because", err.Error())
	return r.presentByList(ctx, limit)
}

// streams reports whether the client supports streamed lists.
func (r *Reflector) streams() bool {
	return features.FeatureGates().Enabled(features.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(r.opts.ListerWatcher)
}

// hasty is a context with a deadline at which it does not end. client-go's rate limiter
// refuses a request that would wait longer, and a slow server gets no second one.
type hasty struct {
	context.Context
	deadline time.Time
}

// Deadline implements context.Context.
func (h hasty) Deadline() (time.Time, bool) { return h.deadline, true }

// unprobed handles a probe that failed. A server that fails every list, for example
// because it cannot convert one object, may still serve watches: after some tries Run
// watches without the probe, for a minute at most. What such a watch brings has followed
// the held resource version, or history was rewound and has grown beyond it, which no
// probe shows. It is silent if history was rewound, and it does not end catching up,
// since the present resource version is not known.
func (r *Reflector) unprobed(ctx context.Context, err error) error {
	if !isFailure(err) {
		r.tally.failedProbes = 0
		return err
	}
	if r.tally.failedProbes++; r.tally.failedProbes < failureTries {
		return err
	}
	r.report(ctx, err)
	r.next = toUnprobedWatch
	return nil
}

// isFailure reports whether the server has accepted a request and failed to answer it.
func isFailure(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && isAnswer(err) && !IsNoResource(err) && !isExpired(err)
}

// presentByList implements present with a list.
func (r *Reflector) presentByList(ctx context.Context, limit int64) (rv string, list runtime.Object, err error) {
	opts := metav1.ListOptions{Limit: limit}
	list, err = endable.Call(ctx, func() (runtime.Object, error) { return r.lw.ListWithContext(r.whose(ctx, limit), opts) }, nil)
	if err == nil {
		err = isList(list)
	}
	if err != nil {
		return "", nil, fmt.Errorf("ask for the present resource version: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", nil, fmt.Errorf("ask for the present resource version: %w", err)
	}
	return accessor.GetResourceVersion(), list, nil
}

// whose returns the context of a probe's request. The sink receives the objects of one
// for more than one object.
func (r *Reflector) whose(ctx context.Context, limit int64) context.Context {
	if limit > 1 {
		return r.opts.Request(ctx)
	}
	return ctx
}

// presentByStream implements present with a streamed list. If limit is 1, the list
// selects no object, so that it consists of its final bookmark, whose resource version is
// as recent as that of a consistent list. Otherwise the watch that sent the list is open
// as r.stream until streamPatience is over: watch continues it if the list is what is
// stored.
func (r *Reflector) presentByStream(ctx context.Context, limit int64) (rv string, list runtime.Object, err error) {
	s := &session{asked: time.Now(), timeout: streamPatience}
	opts := metav1.ListOptions{
		SendInitialEvents: ptr.To(true), ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
		TimeoutSeconds: ptr.To(int64(streamPatience / time.Second)),
	}
	if limit == 1 {
		opts.LabelSelector = nothing
	}
	request, end := context.WithCancelCause(r.whose(ctx, limit))
	s.end = end
	late := time.AfterFunc(streamPatience, func() { end(context.DeadlineExceeded) })
	defer late.Stop()
	s.w, err = endable.Call(request, func() (watch.Interface, error) { return r.lw.WatchWithContext(request, opts) }, stopLate)
	if err == nil && s.w == nil {
		err = errNoWatch
	}
	if err != nil {
		end(err)
		return "", nil, err
	}
	s.opened = time.Now()
	objects := &metav1.List{}
	rv, err = s.initial(request, func(obj runtime.Object) bool {
		objects.Items = append(objects.Items, runtime.RawExtension{Object: obj})
		return limit > 1 && int64(len(objects.Items)) <= limit
	})
	if err != nil || limit == 1 || !late.Stop() {
		s.stop()
		return rv, objects, err
	}
	s.bookmarks, s.moved = s.bookmarks+1, s.moved+1 // that of the list
	r.stream = s
	return rv, objects, nil
}

// initial passes the objects of a streamed list to add and returns its resource version.
// It fails if add returns false, or if anything but initial events comes.
func (s *session) initial(ctx context.Context, add func(runtime.Object) bool) (rv string, err error) {
	for {
		var e watch.Event
		open := false
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case e, open = <-s.w.ResultChan():
		}
		switch {
		case !open:
			return "", errEndedEarly
		case e.Type == watch.Error:
			return "", errorOf(e)
		case e.Type == watch.Added && add(e.Object):
		case e.Type != watch.Bookmark:
			// The ListerWatcher has a selector of its own, there are too many objects, or
			// the server sends changes meanwhile.
			return "", fmt.Errorf("%w: %s", errNoListEvent, e.Type)
		default:
			accessor, err := meta.Accessor(e.Object)
			if err != nil {
				return "", err
			}
			if accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
				return accessor.GetResourceVersion(), nil
			}
		}
	}
}

// stopLate stops a watch that the ListerWatcher has returned too late.
func stopLate(w watch.Interface) {
	if w != nil {
		w.Stop()
	}
}

// probe gets the server's present resource version before a watch is opened. If it is
// below the held one, history was rewound (kubernetes#107457).
func (r *Reflector) probe(ctx context.Context) error {
	if isNone(r.held) && !r.fake {
		r.relistFor(ctx, "the server gives no resource version to watch from")
		return nil
	}
	limit, compare := int64(1), r.stored && !r.fake && r.opts.IsSmall != nil && r.opts.IsSmall()
	if compare {
		limit = WholeLimit
	}
	now, list, err := r.present(ctx, limit)
	isSame := false // the list is what is stored, and the sink has taken its objects
	defer func() {
		// If something differs, what happened since is asked for.
		if !isSame || !r.caughtUp {
			r.stopStream()
		}
	}()
	if compare && (isFailure(err) || apierrors.IsForbidden(err)) {
		// The server may fail because of one object, or a streamed list may be too long.
		compare = false
		now, list, err = r.present(ctx, 1)
	}
	if err != nil {
		return r.unprobed(ctx, err)
	}
	r.setError(nil)
	r.tally.failedProbes = 0
	order, err := resourceversion.CompareResourceVersion(now, r.held)
	switch {
	case err != nil && r.stored:
		r.relistFor(ctx, "resource versions of this API cannot be compared")
		return nil
	case err != nil || r.unordered:
	case order < 0:
		klog.FromContext(ctx).Info("History was rewound", "held", r.held, "now", now)
		r.relistFor(ctx, errRewound.Error())
		return nil
	}
	r.next, r.stored = toWatch, false
	// The server's state at the first probe is a sufficient goal: a later probe must not
	// move the goal of a watch that is cut again and again.
	if r.now == "" && (!r.caughtUp || order > 0 && !r.unordered) {
		r.now, r.gap = now, gap{from: r.held}
	}
	if r.caughtUp {
		return nil
	}
	if compare && r.held != now {
		if isSame, err = r.whole(ctx, list, now); err != nil || r.next == toList {
			return err
		}
	}
	if reached, err := resourceversion.CompareResourceVersion(r.held, r.now); r.now == r.held || err == nil && reached >= 0 {
		return r.reachedNow(ctx)
	}
	return nil
}

// doubt is called when a watch delivered a resource version below the held one. An API
// server sends one after its history was rewound; only a probe can confirm that. Fake
// clients and aggregated servers may use arbitrary numbers: if the list has a lower
// resource version than the event, or if several doubts were no rewind, resource
// versions are ignored until the next list. Before the first list of a process a doubt
// is enough to list: a watch that begins with the present state tells of no deletion.
func (r *Reflector) doubt(ctx context.Context, rv string) error {
	if r.unordered || r.opts.NoProbe {
		r.hold(rv)
		return nil
	}
	if r.fake {
		r.unordered = true
		r.hold(rv)
		return nil
	}
	now, _, err := r.present(ctx, 1)
	if err != nil {
		return err
	}
	r.received(rv)
	switch isFake := isLower(now, rv); {
	case isFake:
	case isLower(now, r.held):
		return fmt.Errorf("%w: %s after %s, and %s now", errRewound, rv, r.held, now)
	case !r.caughtUp:
		return fmt.Errorf("%w: %s after %s", errElsewhere, rv, r.held)
	default:
		if r.tally.doubts++; r.tally.doubts < doubtTries {
			return nil
		}
	}
	klog.FromContext(ctx).Info("Resource versions of this server have no order, none is stored until the next list",
		"before", r.held, "after", rv, "now", now)
	r.unordered = true
	r.hold(rv)
	return nil
}

// reachedNow tells the sink that the reflector has caught up.
func (r *Reflector) reachedNow(ctx context.Context) error {
	r.note((*Status).caughtUp) // before the sink tells its readers
	if err := r.opts.Sink.CaughtUp(ctx); err != nil {
		r.note(func(s *Status) { s.Start = "" })
		return err
	}
	r.caughtUp, r.now = true, ""
	klog.FromContext(ctx).Info("Caught up", "resourceVersion", r.held, "after", time.Since(r.started).Round(time.Millisecond))
	return nil
}
