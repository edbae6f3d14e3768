package fakeapi

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// defaultTimeout is the timeout of a watch that does not set one.
	defaultTimeout = 30 * time.Minute
	// bookmarkEvery is the period of bookmarks. If the timeout of a watch is at least
	// minBookmarkTimeout, another bookmark is sent bookmarkBefore its end.
	bookmarkEvery      = time.Minute
	bookmarkBefore     = time.Second
	minBookmarkTimeout = 3 * time.Second
	// futureWait is how long a streamed list waits for a future resource version.
	futureWait = 3 * time.Second
)

// inStream is an error that is sent as an event of an accepted watch.
type inStream struct{ error }

// InStream returns an argument of FailWatch: the server accepts the watch, sends err as
// its only event and closes it. An err without a status is sent as a 500.
func InStream(err error) error { return inStream{err} }

func errorEvent(err error) watch.Event {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	s := status.Status()
	return watch.Event{Type: watch.Error, Object: &s}
}

// Watch is like WatchWithContext but without a context.
//
// Deprecated: cache.ListerWatcher requires it; call WatchWithContext.
func (s *Server) Watch(opts metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.TODO(), opts)
}

// WatchWithContext opens a watch that ends with the context. It never blocks. Without a
// resource version, the watch starts with the current state.
func (s *Server) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &watcher{
		server: s, result: make(chan watch.Event), done: make(chan struct{}), wake: make(chan struct{}, 1),
		bookmarks: opts.AllowWatchBookmarks && !s.opts.NoBookmarks, timeout: defaultTimeout,
	}
	if opts.TimeoutSeconds != nil {
		w.timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	err := s.acceptLocked(ctx, "watch", opts, &s.failWatches)
	var event inStream
	switch {
	case err == nil:
		if err := s.startLocked(w, opts); err != nil {
			return nil, err
		}
	case errors.Is(err, ErrCloseAtOnce):
		w.Stop()
	case errors.As(err, &event):
		w.queue = []watch.Event{errorEvent(event.error)}
	default:
		return nil, err
	}
	s.watchers[w] = struct{}{}
	go w.run(ctx)
	return w, nil
}

// startLocked sets the start of a watch and its first events.
func (s *Server) startLocked(w *watcher, opts metav1.ListOptions) error {
	rv, err := s.parse(opts.ResourceVersion)
	if err != nil {
		return err
	}
	stream := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if bad := s.invalid(opts); bad != nil {
		return bad
	}
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return apierrors.NewBadRequest("fakeapi: " + err.Error())
	}
	switch {
	case stream && rv > s.now:
		w.first = futureWait
		w.queue = []watch.Event{errorEvent(s.tooLarge(rv))}
	case stream || rv == 0:
		w.start, w.sent = s.now, s.now
		if stream {
			w.held = s.held
		}
		for _, key := range slices.Sorted(maps.Keys(s.state)) {
			if accessor, err := meta.Accessor(s.state[key]); err == nil && selector.Matches(labels.Set(accessor.GetLabels())) {
				w.queue = append(w.queue, watch.Event{Type: watch.Added, Object: s.state[key]})
			}
		}
		if stream && opts.AllowWatchBookmarks {
			w.queue = append(w.queue, s.bookmarkLocked(map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		}
	case rv < s.oldest:
		w.queue = []watch.Event{errorEvent(s.tooOld(rv))}
	default:
		w.start, w.sent = rv, rv
	}
	return nil
}

func (s *Server) invalid(opts metav1.ListOptions) error {
	var bad *field.Error
	match := opts.ResourceVersionMatch
	switch {
	case opts.SendInitialEvents == nil && match != "":
		bad = field.Forbidden(field.NewPath("resourceVersionMatch"), "not without sendInitialEvents")
	case opts.SendInitialEvents == nil:
		return nil
	case s.opts.NoWatchList:
		bad = field.Forbidden(field.NewPath("sendInitialEvents"), "not supported")
	case match != metav1.ResourceVersionMatchNotOlderThan:
		bad = field.Forbidden(field.NewPath("resourceVersionMatch"), "must be NotOlderThan")
	default:
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "", field.ErrorList{bad})
}

func (s *Server) bookmarkLocked(annotations map[string]string) watch.Event {
	obj := s.example.DeepCopyObject()
	if accessor, err := meta.Accessor(obj); err == nil {
		accessor.SetResourceVersion(s.format(s.now))
		accessor.SetAnnotations(annotations)
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}
}

// watcher is one open watch.
type watcher struct {
	server    *Server
	result    chan watch.Event
	stop      sync.Once
	done      chan struct{} // closed by Stop, or by the server to end the watch
	wake      chan struct{} // signals that there may be an event to send
	bookmarks bool
	timeout   time.Duration
	first     time.Duration // delay before the first event
	held      chan struct{} // the first event waits until it is closed; nil: no wait

	// server.mu protects the fields below.
	start, sent uint64
	queue       []watch.Event // sent before the next changes
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

// Stop implements watch.Interface. It never blocks. The channel is closed soon
// afterwards.
func (w *watcher) Stop() { w.stop.Do(func() { close(w.done) }) }

// run sends events until the watch ends; see the package documentation.
func (w *watcher) run(ctx context.Context) {
	defer close(w.result)
	defer w.forget()
	opened := time.Now()
	end := time.NewTimer(w.timeout)
	defer end.Stop()
	mark := time.NewTimer(w.untilMark(opened))
	defer mark.Stop()
	if !w.wait(ctx, end, w.first) || !w.released(ctx, end) {
		return
	}
	for due := false; ; {
		if e, delay, ok := w.next(due); ok {
			due = due && e.Type != watch.Bookmark
			if !w.wait(ctx, end, delay) || !w.deliver(ctx, end, e) || e.Type == watch.Error {
				return
			}
			continue
		}
		due = false
		select {
		case <-w.wake:
		case <-mark.C:
			due = true
			mark.Reset(w.untilMark(opened))
		case <-end.C:
			return
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

// untilMark returns the time until the next bookmark.
func (w *watcher) untilMark(opened time.Time) time.Duration {
	last := w.timeout - bookmarkBefore - time.Since(opened)
	if w.timeout < minBookmarkTimeout || last <= 0 {
		return bookmarkEvery
	}
	return min(last, bookmarkEvery)
}

// next returns the next event. A bookmark comes last, and only if it is due.
func (w *watcher) next(due bool) (e watch.Event, delay time.Duration, ok bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.done:
		return watch.Event{}, 0, false
	default:
	}
	switch i := s.afterLocked(w.sent); {
	case len(w.queue) > 0:
		e, w.queue = w.queue[0], w.queue[1:]
	case i < len(s.log):
		e, w.sent = s.log[i].event, s.log[i].rv
	case due && w.bookmarks && s.now > w.start:
		e = s.bookmarkLocked(nil)
	default:
		return watch.Event{}, 0, false
	}
	e.Object = e.Object.DeepCopyObject()
	return e, s.delay, true
}

// wait waits for d. It returns false if the watch ends before.
func (w *watcher) wait(ctx context.Context, end *time.Timer, d time.Duration) bool {
	if d == 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-end.C:
	case <-w.done:
	case <-ctx.Done():
	}
	return false
}

// released waits for Release. It returns false if the watch ends before.
func (w *watcher) released(ctx context.Context, end *time.Timer) bool {
	if w.held == nil {
		return true
	}
	select {
	case <-w.held:
		return true
	case <-end.C:
	case <-w.done:
	case <-ctx.Done():
	}
	return false
}

// deliver sends e. It returns false if the watch ends before.
func (w *watcher) deliver(ctx context.Context, end *time.Timer, e watch.Event) bool {
	select {
	case w.result <- e:
		return true
	case <-end.C:
	case <-w.done:
	case <-ctx.Done():
	}
	return false
}

func (w *watcher) forget() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.watchers, w)
}
