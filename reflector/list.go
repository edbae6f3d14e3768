package reflector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// errNoListEvent indicates an event that is not part of a streamed list.
var errNoListEvent = errors.New("no event of a streamed list")

// errEndedEarly indicates a streamed list that was closed before its final bookmark.
var errEndedEarly = errors.New("the streamed list ended before it was whole")

// errBroken wraps the error of a list that has already delivered objects. They cannot be
// taken back, so the list starts again in another way.
var errBroken = errors.New("the list broke")

// way is the kind of request for a list.
type way uint8

const (
	byStream way = iota // a watch that sends the present state first (KEP-3157)
	byPages
	inOne // the whole list in one response, after a continue token has expired
)

const (
	// streamTries is how many streamed lists in a row may break after some objects before
	// pages are used.
	streamTries = 2
	// streamSilence is how long a streamed list may deliver nothing after its first
	// object. A bookmark ends the list; without this limit, a client that drops bookmarks
	// would wait until the timeout.
	streamSilence = 30 * time.Second
)

// list replaces the content of the sink by the content of the server. After an error the
// sink is unchanged and the next step is again a list.
func (r *Reflector) list(ctx context.Context) error {
	r.stopStream()
	begin, reason := time.Now(), r.relist
	r.note(func(s *Status) { s.Listing = reason })
	defer r.note(func(s *Status) { s.Listing = "" })
	rv, err := r.listBy(ctx, r.firstWay())
	if errors.Is(err, errBroken) && isExpired(err) {
		rv, err = r.listBy(ctx, inOne)
	}
	if err != nil {
		r.stopStream()
		return fmt.Errorf("list: %w", err)
	}
	r.hold(rv)
	n := r.Status().Listed
	r.note(func(s *Status) { s.listed(reason) })
	klog.FromContext(ctx).Info("Listed", "because", reason, "objects", n, "resourceVersion", rv, "took", time.Since(begin).Round(time.Millisecond))
	r.tolerant = r.tally.undecodable.n > 1
	r.next, r.relist, r.stored, r.unordered, r.tally.listStreams, r.tally.doubts = toWatch, "", false, false, 0, 0
	if !r.caughtUp {
		return r.reachedNow(ctx)
	}
	return nil
}

func (r *Reflector) firstWay() way {
	if r.streams() && r.tally.listStreams < streamTries {
		return byStream
	}
	return byPages
}

// listBy passes a whole list to the sink and returns its resource version.
func (r *Reflector) listBy(ctx context.Context, w way) (rv string, err error) {
	session, err := r.opts.Sink.Relist(ctx, r.relist)
	if err != nil {
		return "", err
	}
	defer func() { _ = session.Close() }()
	select {
	case <-r.asked: // this list fulfils the request
	default:
	}
	r.note(func(s *Status) { s.Listed = 0 })
	if w == byStream {
		rv, err = r.receiveStream(ctx, session)
		if err != nil && ctx.Err() == nil && r.isPaged(ctx, err) {
			r.stopStream()
			w = byPages
		}
	}
	if w != byStream {
		rv, err = r.receivePages(ctx, session, w)
	}
	if err != nil {
		return "", err
	}
	return rv, session.Finish(ctx, rv)
}

// isPaged reports whether the list continues with pages at once after a failed stream, as
// in client-go. It does not if pages would fail, too, or if history is lost. If the
// session already has objects, it is not continued: the next list may use pages.
func (r *Reflector) isPaged(ctx context.Context, err error) bool {
	stalled := errors.Is(err, errStalled)
	if isUndecodable(err) && !r.opts.Undecodable() {
		r.tally.listStreams = streamTries
	}
	switch {
	case utilnet.IsConnectionRefused(err), apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err), isExpired(err):
		return false
	case r.Status().Listed > 0 || errors.Is(err, errEndedEarly):
		if r.tally.listStreams++; stalled {
			r.tally.listStreams = streamTries
		}
		return false
	case stalled:
		r.report(ctx, err) // reported because it took long
	}
	klog.FromContext(ctx).V(2).Info("No streamed list, listing in pages", "because", err.Error())
	return true
}

// receiveStream lists with a watch that sends the present state first (KEP-3157). The
// watch continues as r.stream.
func (r *Reflector) receiveStream(ctx context.Context, session Relist) (string, error) {
	s, err := r.open(ctx, randomTimeout(), metav1.ListOptions{
		SendInitialEvents:    ptr.To(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		return "", err
	}
	r.stream = s
	silent := time.NewTimer(streamSilence)
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-silent.C:
			if r.Status().Listed > 0 || time.Since(s.opened) > s.timeout+stallGrace {
				return "", errStalled
			}
			klog.FromContext(ctx).Info("Nothing has come of the streamed list yet", "waited", time.Since(s.opened).Round(time.Second))
			silent.Reset(streamSilence)
		case e, open := <-s.w.ResultChan():
			if !open {
				return "", errEndedEarly
			}
			rv, whole, err := r.listEvent(ctx, session, e)
			if err != nil || whole {
				return rv, err
			}
			silent.Reset(streamSilence)
		}
	}
}

// listEvent handles one event of a streamed list. Servers before Kubernetes 1.31 also
// send changes during the list, including deletions, before the bookmark that ends it.
func (r *Reflector) listEvent(ctx context.Context, session Relist, e watch.Event) (rv string, whole bool, err error) {
	switch e.Type {
	case watch.Error:
		return "", false, errorOf(e)
	case watch.Added, watch.Modified:
		return "", false, r.addListed(ctx, session, e.Object)
	case watch.Deleted:
		return "", false, session.Remove(ctx, e.Object)
	case watch.Bookmark:
		accessor, err := meta.Accessor(e.Object)
		if err != nil {
			return "", false, err
		}
		if accessor.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			return accessor.GetResourceVersion(), true, nil
		}
		return "", false, nil
	}
	return "", false, fmt.Errorf("%w: %s", errNoListEvent, e.Type)
}

// addListed adds one object of a list. If the object cannot be stored, it is passed to
// Sink.Reject and the list continues.
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

// receivePages lists consistently, in pages or in one response. If a continue token has
// expired, the error wraps errBroken.
func (r *Reflector) receivePages(ctx context.Context, session Relist, w way) (string, error) {
	var opts metav1.ListOptions
	rv := ""
	if w == byPages {
		opts.Limit = r.opts.PageSize
	}
	for {
		list, err := r.listPage(ctx, opts)
		if err != nil && opts.Continue != "" {
			return "", fmt.Errorf("%w: %w", errBroken, err)
		}
		if err != nil {
			return "", err
		}
		accessor, err := meta.ListAccessor(list)
		if err != nil {
			return "", err
		}
		if opts.Continue == "" {
			rv = accessor.GetResourceVersion() // later pages may be newer
		}
		err = meta.EachListItem(list, func(obj runtime.Object) error { return r.addListed(ctx, session, obj) })
		if err != nil {
			return "", err
		}
		if opts.Continue = accessor.GetContinue(); opts.Continue == "" {
			return rv, nil
		}
	}
}

// listPage sends one list request.
func (r *Reflector) listPage(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	return endable.Call(ctx, func() (runtime.Object, error) { return r.lw.ListWithContext(r.opts.Request(ctx), opts) }, nil)
}

func (r *Reflector) stopStream() {
	if r.stream != nil {
		r.stream.stop()
		r.stream = nil
	}
}

func randomTimeout() int64 { return watchSeconds + rand.Int64N(watchSeconds) }
