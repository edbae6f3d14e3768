package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/features"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/store"
)

// errNoListEvent indicates an event that a streamed list does not have.
var errNoListEvent = errors.New("no event of a streamed list")

// errNoStream indicates that a streamed list is not to be had; pages are.
var errNoStream = errors.New("no streamed list")

// list replaces what the sink holds by what the server has. What goes wrong
// leaves the sink as it was, and r.relist set.
func (r *Reflector) list(ctx context.Context) error {
	r.stopStream()
	reason := r.relist
	if reason == "" {
		reason = "not listed yet"
	}
	begin := time.Now()
	session, err := r.opts.Sink.Relist(ctx, reason)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	select {
	case <-r.asked: // this list is it
	default:
	}
	r.note(func(s *Status) { s.Listing, s.Listed = reason, 0 })
	defer r.note(func(s *Status) { s.Listing = "" })
	rv, err := r.receive(ctx, session)
	if err != nil {
		r.stopStream()
		return fmt.Errorf("list: %w", err)
	}
	n := r.Status().Listed
	if err := session.Finish(ctx, rv); err != nil {
		r.stopStream()
		return err
	}
	r.hold(rv)
	r.note(func(s *Status) { s.listed(reason) })
	klog.FromContext(ctx).Info("Listed", "because", reason, "objects", n, "resourceVersion", rv, "took", time.Since(begin).Round(time.Millisecond))
	r.tolerant = r.tally.undecodable > 1
	r.relist, r.listed, r.stored, r.probeNext = "", true, false, false
	if !r.caughtUp {
		return r.reachedNow(ctx)
	}
	return nil
}

// receive brings the whole list to the session and returns its resource version.
func (r *Reflector) receive(ctx context.Context, session Relist) (string, error) {
	streams := features.FeatureGates().Enabled(features.WatchListClient) &&
		!watchlist.DoesClientNotSupportWatchListSemantics(r.opts.ListerWatcher) && r.tally.listStreams < 2
	if streams {
		rv, err := r.receiveStream(ctx, session)
		if !errors.Is(err, errNoStream) {
			return rv, err
		}
	}
	return r.receivePages(ctx, session)
}

// receiveStream lists by a watch that sends the present state first (KEP-3157).
// The watch goes on as r.stream.
func (r *Reflector) receiveStream(ctx context.Context, session Relist) (string, error) {
	s, err := r.open(ctx, randomTimeout(), metav1.ListOptions{
		SendInitialEvents:    ptr.To(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		if refusesStreams(err) {
			return "", errNoStream
		}
		return "", err
	}
	r.stream = s
	stalled := time.NewTimer(s.timeout + stallGrace)
	defer stalled.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-stalled.C:
			r.tally.listStreams++
			return "", errStalled
		case e, open := <-s.w.ResultChan():
			if !open {
				r.tally.listStreams++
				return "", errors.New("the streamed list ended before it was whole")
			}
			rv, whole, err := r.listEvent(ctx, session, e)
			if errors.Is(err, errNoListEvent) {
				r.tally.listStreams++
				return "", err
			}
			if err != nil && e.Type == watch.Error && refusesStreams(err) {
				// What was added is in the session for good: pages would not take
				// back an object that is gone by then.
				if r.Status().Listed > 0 {
					r.tally.listStreams++
					return "", err
				}
				r.stopStream()
				return "", errNoStream
			}
			if whole {
				r.tally.listStreams = 0
			}
			if err != nil || whole {
				return rv, err
			}
		}
	}
}

// refusesStreams reports whether the server does not know streamed lists, or may
// not be asked for one: it lists in pages then.
func refusesStreams(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusTooManyRequests, http.StatusGone:
		return false
	default:
		return code >= 400 && code < 500
	}
}

func (r *Reflector) listEvent(ctx context.Context, session Relist, e watch.Event) (rv string, whole bool, err error) {
	switch e.Type {
	case watch.Error:
		return "", false, apierrors.FromObject(e.Object)
	case watch.Added, watch.Modified:
		return "", false, r.addListed(ctx, session, e.Object)
	case watch.Bookmark:
		accessor, err := meta.Accessor(e.Object)
		if err != nil {
			return "", false, err
		}
		if accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return accessor.GetResourceVersion(), true, nil
		}
		return "", false, nil
	case watch.Deleted:
	}
	return "", false, fmt.Errorf("%w: %s", errNoListEvent, e.Type)
}

// addListed takes one object of a list. One that cannot be stored is reported by
// the sink and does not spoil the list.
func (r *Reflector) addListed(ctx context.Context, session Relist, obj runtime.Object) error {
	r.note(func(s *Status) { s.Listed++ })
	err := session.Add(ctx, obj)
	var bad *store.ObjectError
	if errors.As(err, &bad) {
		r.opts.Sink.Reject(ctx, obj, bad)
		return nil
	}
	return err
}

// receivePages lists in pages, consistently. A continuation that has expired
// fails the list; the next try begins anew.
func (r *Reflector) receivePages(ctx context.Context, session Relist) (string, error) {
	opts := metav1.ListOptions{Limit: r.opts.PageSize}
	for {
		list, err := r.lw.ListWithContext(ctx, opts)
		if err != nil {
			return "", err
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return "", err
		}
		err = meta.EachListItem(list, func(obj runtime.Object) error { return r.addListed(ctx, session, obj) })
		if err != nil {
			return "", err
		}
		if opts.Continue = accessor.GetContinue(); opts.Continue == "" {
			return accessor.GetResourceVersion(), nil
		}
	}
}

func (r *Reflector) stopStream() {
	if r.stream != nil {
		r.stream.stop()
		r.stream = nil
	}
}

func randomTimeout() int64 { return watchSeconds + rand.Int64N(watchSeconds) }
