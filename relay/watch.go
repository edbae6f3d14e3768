package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/store"
)

const (
	// bookmarkEvery is how often a watch is told how far it has come, as by
	// kube-apiserver.
	bookmarkEvery = time.Minute
	// bookmarkBefore is how long before its end a watch gets the last bookmark.
	bookmarkBefore = 2 * time.Second
	// watchBuffer is how many events wait for the writer of a watch, and watchPage how
	// many objects are read at once for its beginning: there are more watches than lists.
	watchBuffer = 16
	watchPage   = 64
)

// watcher is one watch.
type watcher struct {
	s         *served
	p         *selection
	bookmarks bool
	says      bool    // with bookmarks: that the initial events are all
	target    *target // nil if the objects are sent as they are
	protobuf  bool    // and not decoded for that
	out       chan watch.Event
	owes      bool   // a bookmark, if it ends: see fail. Only its goroutine uses it
	told      string // the highest resource version that the client was told; see mark
	cancel    context.CancelFunc
	slow      <-chan struct{} // closed when the watch is too slow
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.cancel() }

// Watch implements rest.Watcher.
func (s *served) Watch(ctx context.Context, o *metainternalversion.ListOptions) (watch.Interface, error) {
	p, err := s.selection(ctx, o)
	if err != nil {
		return nil, err
	}
	rv, err := canonical(o.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &watcher{
		s: s, p: p, bookmarks: o.AllowWatchBookmarks, target: targetOf(ctx), protobuf: isProtobuf(ctx),
		out: make(chan watch.Event, watchBuffer),
	}
	s.hub.start()
	at, told, initial := store.Place{RV: rv}, rv, rv == "0"
	w.says = o.SendInitialEvents != nil && *o.SendInitialEvents
	if o.SendInitialEvents != nil { // the handlers set it for 0, and not for 00
		initial = *o.SendInitialEvents
	}
	if initial || rv == "" || rv == "0" {
		if at, told, err = s.moment(ctx, rv, false); err == nil {
			err = s.isReadable(at)
		}
		if err != nil {
			return nil, err
		}
	}
	// The place is looked for before there is an answer, so that a client hears 503.
	stop := s.hub.watch()
	from, err := w.enter(ctx, at)
	if err != nil && !isExpired(err) && !errors.Is(err, store.ErrClosed) {
		stop()
		return nil, unavailable(err)
	}
	w.owes = w.bookmarks && !initial // else the client has nothing to go on from
	ctx, w.cancel = context.WithCancel(ctx)
	go func() { // it ends with ctx, or with the collection
		defer close(w.out)
		defer w.cancel()
		defer stop()
		defer func() {
			if p := recover(); p != nil { // else the process would end
				w.fail(ctx, fmt.Errorf("panic: %v", p), told)
			}
		}()
		if err == nil && initial {
			// The place is looked for again behind the objects: nothing is held for a
			// client meanwhile.
			from = entry{}
			if err = w.sendAll(ctx, at, told); err == nil {
				from, err = w.enter(ctx, at)
			}
		}
		if err == nil {
			err = w.serve(ctx, from, told)
		}
		w.fail(ctx, err, told)
	}()
	return w, nil
}

// enter returns where the watch goes on from a place. It waits for a moment only until
// the log is followed to there: the client hears nothing meanwhile.
func (w *watcher) enter(ctx context.Context, at store.Place) (entry, error) {
	ctx, stop := context.WithTimeout(ctx, reachPatience)
	defer stop()
	return w.s.hub.enter(ctx, at)
}

// isExpired reports whether the log does not lead from where a client is. A log that was
// wiped leads from nowhere.
func isExpired(err error) bool {
	return errors.Is(err, store.ErrTrimmed) || errors.Is(err, store.ErrLineage) || errors.Is(err, store.ErrWiped)
}

// isPassing reports whether a client can go on later from what it has.
func isPassing(err error) bool {
	var log logError
	return !isExpired(err) && (errors.Is(err, errSlow) || errors.Is(err, errColumns) || errors.Is(err, store.ErrClosed) || errors.As(err, &log))
}

var (
	errSlow = errors.New("the client is too slow")
	// errColumns says that the next rows have other columns than the first Table of the
	// watch has told.
	errColumns = errors.New("the columns have changed")
)

// fail says why a watch ends. One that is too slow, or whose columns have changed, just
// ends, behind a whole group, as do all when the process ends, a collection gets another
// reader or the log cannot be followed for now: their clients go on from what they have.
// They are sent a bookmark of it if they were sent nothing: client-go lists again after a
// watch that has lasted for less than a second without any event (see
// VeryShortWatchError). rv is what the client had when the watch began.
func (w *watcher) fail(ctx context.Context, err error, rv string) {
	if w.slow = nil; ctx.Err() != nil {
		return
	}
	if isPassing(err) {
		if w.owes {
			_ = w.send(ctx, w.bookmark(rv, false))
		}
		return
	}
	status := apierrors.NewInternalError(err).Status()
	var known apierrors.APIStatus
	switch {
	case isExpired(err):
		status = metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
			Message: fmt.Sprintf("too old resource version: %s (%s)", rv, w.s.oldest()),
		}
	case errors.As(err, &known):
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	_ = w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
}

// oldest returns the resource version at which the log begins.
func (s *served) oldest() string {
	state, err := s.Reader.History()
	if err != nil {
		return ""
	}
	return state.Oldest.RV
}

func (w *watcher) send(ctx context.Context, e watch.Event) error {
	select {
	case w.out <- e:
		w.owes = false
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.slow:
		return errSlow
	}
}

// serve sends what follows a place.
func (w *watcher) serve(ctx context.Context, from entry, told string) error {
	w.told = told
	n, err := w.replay(ctx, from, told)
	if err != nil {
		return err
	}
	return w.follow(ctx, n, from.ahead)
}

// sendAll sends the objects of a place, and a bookmark that says that these are all, if
// the client has asked for it.
func (w *watcher) sendAll(ctx context.Context, at store.Place, told string) error {
	for entries, err := range w.s.pagesOf(ctx, w.p, at, "", 0, watchPage) {
		if err != nil {
			return err
		}
		for _, e := range entries {
			o := &object{of: w.s, entry: e}
			if err := w.check(o); err != nil {
				return err
			}
			if err := w.send(ctx, watch.Event{Type: watch.Added, Object: o}); err != nil {
				return err
			}
		}
	}
	if !w.bookmarks || !w.says {
		return nil
	}
	return w.send(ctx, w.bookmark(told, true))
}

// check returns the error of an object that cannot be decoded. The handlers would end the
// watch and tell nobody why, as they do for protobuf, which needs no decoding: to check
// that would be to encode each object twice.
func (w *watcher) check(o *object) error {
	if w.target == nil && w.protobuf {
		return nil
	}
	_, err := o.decoded()
	return err
}

// replay sends what the log has after a place, until the hub has come from there, too.
func (w *watcher) replay(ctx context.Context, from entry, rv string) (*node, error) {
	if from.at != nil {
		return from.at, nil
	}
	select {
	case w.s.server.replays <- struct{}{}:
		defer func() { <-w.s.server.replays }()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.s.hub.ctx.Done():
		return nil, context.Cause(w.s.hub.ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.s.hub.ctx, cancel)() // the log ends with the collection
	for g, err := range w.s.groups(ctx, from.place, func(bool) {}) {
		switch {
		case err != nil:
			return nil, cmp.Or(context.Cause(w.s.hub.ctx), error(logError{err}))
		case g.inside:
			if g, err = w.rest(g, rv); err != nil {
				return nil, err
			}
		}
		if err := w.tell(ctx, g); err != nil {
			return nil, err
		}
		e, err := w.enter(ctx, g.place)
		if e.at != nil || err != nil {
			return e.at, err
		}
	}
	return w.s.hub.tail(), nil // the log ends there, or it is the moment that is told
}

// rest returns what is left of a group for a client that is inside it: only the client of
// one object can know what it has. It may have an object that came and went, of which
// nothing is known that it could be sent.
func (w *watcher) rest(g *group, rv string) (*group, error) {
	rest := *g
	rest.changes = slices.DeleteFunc(slices.Clone(g.changes), func(c *change) bool { return compareRV(c.rv, rv) <= 0 })
	isLost := func(c *change) bool { return c.isShort() && w.p.matchesKey(c.key) }
	if g.from == "" || !w.p.isOneObject() || slices.ContainsFunc(rest.changes, isLost) {
		return nil, fmt.Errorf("%w: %s is inside of what was written at once", store.ErrTrimmed, rv)
	}
	return &rest, nil
}

// follow sends what follows a node.
func (w *watcher) follow(ctx context.Context, n *node, ahead string) error {
	if n == nil {
		return store.ErrClosed
	}
	ticker := time.NewTicker(bookmarkEvery)
	defer ticker.Stop()
	var ending <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		timer := time.NewTimer(max(time.Until(deadline)-bookmarkBefore, 0))
		defer timer.Stop()
		ending = timer.C
	}
	for {
		w.slow = n.cut
		select {
		case <-n.done:
			if n.err != nil {
				return n.err
			}
			g, err, before := n.group, error(nil), n.place.RV
			n = n.next
			switch {
			case ahead == "":
			case g.from == "" && compareRV(n.place.RV, before) < 0:
				// A list of an earlier state: what the client waits for was before that.
				return store.ErrLineage
			case compareRV(n.place.RV, ahead) < 0:
				continue
			case compareRV(n.place.RV, ahead) == 0:
				ahead = ""
				continue
			case g.from == "" || compareRV(ahead, g.from) > 0:
				g, err = w.rest(g, ahead)
			}
			if ahead = ""; err != nil {
				return err
			}
			if n, err = w.tellAll(ctx, g, n.cut); err != nil {
				return err
			}
		case <-ticker.C:
			// Nobody else may ask for objects, by which the server hears of it.
			w.s.server.dropIfGone(w.s)
			if err := context.Cause(w.s.hub.ctx); err != nil {
				return err
			}
			if err := w.mark(ctx, n, &ahead); err != nil {
				return err
			}
		case <-ending:
			if err := w.mark(ctx, n, &ahead); err != nil {
				return err
			}
			ending = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tellAll sends a whole group, however slow the client is: it could not go on from
// inside. It returns the node of the group, which it does not hold meanwhile, so that
// what comes after it can be dropped.
func (w *watcher) tellAll(ctx context.Context, g *group, cut <-chan struct{}) (*node, error) {
	w.slow = nil
	if err := w.tell(ctx, g); err != nil {
		return nil, err
	}
	select {
	case <-cut:
		return nil, errSlow
	default:
	}
	e, err := w.enter(ctx, g.place)
	if err == nil && e.at == nil {
		err = errSlow
	}
	return e.at, err
}

// tell sends the changes of a group, and a bookmark behind them: from there a client can
// go on, and not from inside.
func (w *watcher) tell(ctx context.Context, g *group) error {
	if w.target.isTable() && !slices.Equal(w.target.printer.Columns(), w.s.printer().Columns()) {
		return errColumns
	}
	if g.from == "" {
		w.told = g.place.RV // a list, which may be of an earlier state
	}
	w.told = store.Higher(w.told, g.place.RV)
	last := ""
	for _, c := range g.changes {
		e, ok, err := c.event(w.p)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		o := e.Object.(*shared).object
		if err := w.check(o); err != nil {
			return err
		}
		if w.target.isTable() {
			e.Object = o // only the first Table of a watch has the columns
		}
		if err := w.send(ctx, e); err != nil {
			return err
		}
		last = c.rv
	}
	if last == "" || !w.bookmarks || compareRV(last, g.place.RV) >= 0 {
		return nil
	}
	return w.send(ctx, w.bookmark(g.place.RV, false))
}

// mark sends a bookmark of how far a watch has come that has been sent all up to a node.
// A client that is ahead of that would go back, until that is reached; so would one that
// was told a higher resource version of the node before another commit came.
func (w *watcher) mark(ctx context.Context, n *node, ahead *string) error {
	told := w.s.hub.newest().told(n)
	if *ahead != "" && compareRV(told, *ahead) < 0 {
		return nil
	}
	if *ahead = ""; !w.bookmarks || compareRV(told, w.told) < 0 {
		return nil
	}
	w.told = told
	return w.send(ctx, w.bookmark(told, false))
}

// bookmark returns a bookmark: an object of the kind with nothing but a resource version.
func (w *watcher) bookmark(rv string, isInitial bool) watch.Event {
	var obj runtime.Object
	if w.s.Scope.Form == store.Metadata {
		obj = &metav1.PartialObjectMetadata{}
	} else if typed, err := scheme.Scheme.New(w.s.Scope.Kind); err == nil && w.s.Scope.Form == store.Typed {
		obj = typed
	} else {
		obj = &unstructured.Unstructured{}
	}
	obj.GetObjectKind().SetGroupVersionKind(w.s.Scope.Kind)
	if m, err := meta.Accessor(obj); err == nil {
		m.SetResourceVersion(rv)
		if isInitial {
			m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		}
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}
}
