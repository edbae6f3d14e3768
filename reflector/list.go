package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/internal/endable"
	"github.com/informctl/informctl/store"
)

// errNoListEvent indicates an event that is not part of a streamed list.
var errNoListEvent = errors.New("no event of a streamed list")

// errEndedEarly indicates a streamed list that was closed before its final bookmark.
var errEndedEarly = errors.New("the streamed list ended before it was whole")

// errNoEnd indicates a streamed list whose final bookmark does not come.
var errNoEnd = errors.New("nothing was heard of the end of the streamed list")

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
	// unansweredTries is how many streamed lists in a row may have no answer, although
	// pages have one, before pages are used.
	unansweredTries = 2
	// streamSilence is how long a streamed list may deliver no initial event.
	streamSilence = 30 * time.Second
	// fakeSilence is the same for a fake, whose initial events come at once, if at all.
	fakeSilence = 500 * time.Millisecond
	// pageGrace is how long a streamed list may still begin after a page was answered
	// beside it: a server that was stuck answers both at once.
	pageGrace = 500 * time.Millisecond
)

// list replaces the content of the sink by the content of the server. After an error the
// sink is unchanged and the next step is again a list.
func (r *Reflector) list(ctx context.Context) error {
	r.stopStream()
	begin, reason := time.Now(), r.relist
	r.note(func(s *Status) { s.Listing = reason })
	defer r.note(func(s *Status) { s.Listing = "" })
	rv, err := r.listBy(ctx, r.firstWay())
	if errors.Is(err, errNoEnd) {
		r.stopStream()
		rv, err = r.listBy(ctx, byPages)
	}
	if errors.Is(err, errBroken) && isExpired(err) {
		rv, err = r.listBy(ctx, inOne)
	}
	if err != nil {
		r.stopStream()
		err = fmt.Errorf("list: %w", err)
		if apierrors.IsForbidden(err) {
			r.tally.listStreams = 0 // watches may be allowed
		}
		if isFailure(err) {
			r.tally.failedLists++
			r.listFailed = time.Now()
			if r.next == toListOrProbe {
				r.next = toProbe
				r.tolerant = r.tolerant || r.tally.undecodable.n > 1
				// The sink has given up its resource version for the list.
				err = errors.Join(err, r.keep(ctx))
			}
		}
		return err
	}
	r.hold(rv)
	n := r.Status().Listed
	r.note(func(s *Status) { s.listed(reason) })
	klog.FromContext(ctx).Info("Listed", "because", reason, "objects", n, "resourceVersion", rv, "took", time.Since(begin).Round(time.Millisecond))
	r.tolerant = r.tally.undecodable.n > 1
	r.next, r.relist, r.stored, r.resumed, r.unordered = toWatch, "", false, false, false
	r.tally.listStreams, r.tally.doubts = 0, 0
	r.now, r.listTook = "", time.Since(begin)
	r.tally.failedProbes, r.tally.failedLists = 0, 0
	if !r.caughtUp {
		if r.fake {
			r.next = toFirstWatch // what a fake changes before its watch is lost
			return nil
		}
		return r.reachedNow(ctx)
	}
	return nil
}

// keep tells the sink that it is still complete up to the held resource version.
func (r *Reflector) keep(ctx context.Context) error {
	if r.unordered || isNone(r.held) {
		return nil
	}
	return r.opts.Sink.Bookmark(ctx, r.held)
}

func (r *Reflector) firstWay() way {
	if !r.noStreams && r.streams() && r.tally.listStreams < streamTries {
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
		r.next = toList
	default:
	}
	r.note(func(s *Status) { s.Listed = 0 })
	var first runtime.Object
	if w == byStream {
		rv, first, err = r.receiveStream(ctx, session)
		if err != nil && ctx.Err() == nil && r.isPaged(ctx, err) {
			r.stopStream()
			w = byPages
			isUnanswered := errors.Is(err, errUnanswered)
			if !isUnanswered {
				r.tally.unanswered = 0
			}
			switch rv, err = r.receivePages(ctx, session, w, first); {
			case isFailure(err):
				r.tally.listStreams = streamTries // the server fails both
			case err == nil && isUnanswered:
				r.tally.unanswered++
				r.noStreams = r.tally.unanswered >= unansweredTries
			}
		} else if err == nil {
			r.tally.unanswered = 0
		}
	} else {
		rv, err = r.receivePages(ctx, session, w, nil)
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
	if isUndecodable(err) && !r.opts.Undecodable() {
		r.tally.listStreams = streamTries
	}
	if errors.Is(err, errNoEnd) {
		// One that was not answered may have waited for its turn in client-go's retries.
		r.noStreams = !errors.Is(err, errUnanswered)
		r.report(ctx, err) // reported because it took long
	}
	switch {
	case utilnet.IsConnectionRefused(err), apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err), isExpired(err):
		return false
	case r.Status().Listed > 0 || errors.Is(err, errEndedEarly):
		r.tally.listStreams++
		return false
	}
	klog.FromContext(ctx).V(2).Info("No streamed list, listing in pages", "because", err.Error())
	return true
}

// receiveStream lists with a watch that sends the present state first (KEP-3157). The
// watch continues as r.stream.
//
// If nothing comes, the server may be as slow with any list. So the first page is asked
// for beside the stream, and the stream counts as endless (errNoEnd) only if the page
// comes before an initial event. The page is returned then.
func (r *Reflector) receiveStream(ctx context.Context, session Relist) (rv string, first runtime.Object, err error) {
	s, err := r.open(ctx, randomTimeout(), metav1.ListOptions{
		SendInitialEvents:    ptr.To(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	switch {
	case errors.Is(err, errUnanswered):
		return "", nil, fmt.Errorf("%w: %w", errNoEnd, err)
	case err != nil:
		return "", nil, err
	}
	r.stream = s
	patience := streamSilence
	switch s.w.(type) {
	case *watch.FakeWatcher, *watch.RaceFreeFakeWatcher:
		patience = fakeSilence
	}
	silent := time.NewTimer(patience)
	defer silent.Stop()
	initial := newInitialEvents()
	var beside pageRequest
	defer func() { beside.stop() }()
	left := func() time.Duration { return s.timeout - time.Since(s.opened) }
	for {
		select {
		case <-ctx.Done():
			return "", nil, ctx.Err()
		case <-silent.C:
			if beside.isSent() || r.Status().Listed > 0 {
				return "", first, errNoEnd
			}
			beside = r.requestPage(ctx)
			silent.Reset(left() + stallGrace)
		case a := <-beside.answer:
			if a.rethrow(); a.err != nil {
				return "", nil, fmt.Errorf("%w, and pages fail: %w", errEndedEarly, a.err)
			}
			first = a.list
			silent.Reset(pageGrace)
		case e, open := <-s.w.ResultChan():
			switch {
			case !open && left() <= timeoutSlack:
				return "", nil, errNoEnd
			case !open:
				return "", nil, errEndedEarly
			}
			rv, whole, err := r.listEvent(ctx, session, e)
			if err != nil || whole {
				return rv, nil, err
			}
			if initial.include(e) {
				beside.stop()
				beside, first = pageRequest{}, nil
				silent.Reset(min(patience, left()+stallGrace))
			}
		}
	}
}

// pageRequest is a request for the first page of a list that has a goroutine of its own,
// which ends with stop or with the answer. The zero value is none.
type pageRequest struct {
	answer chan pageAnswer // has the answer once
	cancel context.CancelFunc
	done   chan struct{}
}

type pageAnswer struct {
	list     runtime.Object
	err      error
	panicked any
}

// rethrow panics as the request did, on the goroutine of the step.
func (a pageAnswer) rethrow() {
	if a.panicked != nil {
		panic(a.panicked)
	}
}

func (r *Reflector) requestPage(ctx context.Context) pageRequest {
	p := pageRequest{answer: make(chan pageAnswer, 1), done: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() {
		defer close(p.done)
		var a pageAnswer
		defer func() {
			a.panicked = recover()
			p.answer <- a
		}()
		a.list, a.err = r.listPage(ctx, metav1.ListOptions{Limit: r.opts.PageSize})
	}()
	return p
}

func (p pageRequest) isSent() bool { return p.done != nil }

func (p pageRequest) stop() {
	if !p.isSent() {
		return
	}
	p.cancel()
	<-p.done
	select {
	case a := <-p.answer:
		a.rethrow()
	default: // it was received
	}
}

// initialEvents tells the initial events of a streamed list, of which there is one for
// each object, from the changes that may follow them. Only initial events bring the end
// of the list nearer.
type initialEvents struct {
	seed    maphash.Seed
	seen    sets.Set[uint64] // hashes of the keys of objects
	present string           // the first one of a change or bookmark; "" if none
}

func newInitialEvents() *initialEvents {
	return &initialEvents{seed: maphash.MakeSeed(), seen: sets.New[uint64]()}
}

// include reports whether e may be an initial event. Changes and bookmarks are of the
// present, so an object that was added after them is not of the initial state.
func (i *initialEvents) include(e watch.Event) bool {
	accessor, err := meta.Accessor(e.Object)
	if err != nil {
		return false
	}
	rv := accessor.GetResourceVersion()
	if e.Type != watch.Added {
		i.present = cmp.Or(i.present, rv)
		return false
	}
	hash := maphash.Comparable(i.seed, cache.MetaObjectToName(accessor))
	if i.seen.Has(hash) || i.present != "" && !isLower(rv, i.present) {
		return false
	}
	i.seen.Insert(hash)
	return true
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

// receivePages lists consistently, in pages or in one response. The first page may have
// been received before; else first is nil. If a continue token has expired, the error
// wraps errBroken.
func (r *Reflector) receivePages(ctx context.Context, session Relist, w way, first runtime.Object) (string, error) {
	var opts metav1.ListOptions
	rv := ""
	if w == byPages {
		opts.Limit = r.opts.PageSize
	}
	for {
		list, err := first, error(nil)
		if first = nil; list == nil {
			list, err = r.listPage(ctx, opts)
		}
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
		// An object in memory must not keep its whole page there.
		err = meta.EachListItemWithAlloc(list, func(obj runtime.Object) error { return r.addListed(ctx, session, obj) })
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
	list, err := endable.Call(ctx, func() (runtime.Object, error) { return r.lw.ListWithContext(r.opts.Request(ctx), opts) }, nil)
	if err == nil {
		err = isList(list)
	}
	return list, err
}

// isList returns an error for a table, which the dynamic client takes for a list without
// items (kubernetes#132926).
func isList(list runtime.Object) error {
	u, ok := list.(*unstructured.UnstructuredList)
	if !ok || u == nil {
		return nil
	}
	if kind := u.GroupVersionKind(); kind.Group == metav1.GroupName && kind.Kind == "Table" {
		return fmt.Errorf("the server sends a %s instead of a list: the client must not ask for tables", kind)
	}
	return nil
}

func (r *Reflector) stopStream() {
	if r.stream != nil {
		r.stream.stop()
		r.stream = nil
	}
}

func randomTimeout() int64 { return watchSeconds + rand.Int64N(watchSeconds) }
