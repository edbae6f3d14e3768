package informer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

const (
	// changesBuffer is how many changes wait for a client that follows them.
	changesBuffer = 1024
	// changesPatience is how long it may take nothing while something waits.
	changesPatience = 5 * time.Second
	// changesCheck is how often it is looked meanwhile what waits behind that.
	changesCheck = 250 * time.Millisecond
)

// errSlow indicates a client that was disconnected.
var errSlow = fmt.Errorf("the client takes changes more slowly than they come: %d wait", changesBuffer)

// happening is one line of the answer.
type happening struct {
	kind   string
	obj    runtime.Object
	listed bool
}

// feed is the event handler of one client. It never lets its backlog grow: a
// change for which the buffer has no room ends it. What was there before may come
// faster than any client takes it, so that waits, as long as few changes wait
// behind it.
type feed struct {
	initial bool // what was there before is wanted
	out     chan happening
	handler atomic.Pointer[handler] // nil until it was added
	read    func()                  // says that what was there before was read; may be nil

	slowOnce sync.Once
	slow     chan struct{} // closed when the client is too slow
	gone     <-chan struct{}
}

// OnAdd implements cache.ResourceEventHandler.
func (f *feed) OnAdd(obj any, isInInitialList bool) {
	switch {
	case !isInInitialList:
		f.offer("ADDED", obj)
	case f.initial:
		f.wait("INITIAL", obj)
	default:
		f.wait("ADDED", obj)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
// A feed has no resync; what was may be as unknown as to be given as what is.
func (f *feed) OnUpdate(_, obj any) { f.offer("MODIFIED", obj) }

// OnDelete implements cache.ResourceEventHandler.
func (f *feed) OnDelete(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	f.offer("DELETED", obj)
}

func (f *feed) offer(kind string, v any) {
	obj, ok := v.(runtime.Object)
	if !ok {
		return
	}
	select {
	case f.out <- happening{kind: kind, obj: obj}:
	default:
		f.tooSlow()
	}
}

func (f *feed) wait(kind string, v any) {
	obj, ok := v.(runtime.Object)
	if !ok {
		return
	}
	end := time.Now().Add(changesPatience)
	check := time.NewTicker(changesCheck)
	defer check.Stop()
	for !f.isBehind() && time.Now().Before(end) {
		select {
		case f.out <- happening{kind: kind, obj: obj}:
			return
		case <-f.slow:
			return
		case <-f.gone:
			return
		case <-check.C:
		}
	}
	f.tooSlow()
}

// isBehind reports whether more waits behind what was there before than a cursor
// brings at a time, and the buffer would take.
func (f *feed) isBehind() bool {
	h := f.handler.Load()
	if h == nil {
		return false
	}
	h.inf.mu.Lock()
	defer h.inf.mu.Unlock()
	n, _, _ := h.waiting.size()
	return n > changesBuffer+scanChunk
}

func (f *feed) tooSlow() { f.slowOnce.Do(func() { close(f.slow) }) }

// addFromNow is AddEventHandler for one that is not told of what is there. It has
// no resync.
func (inf *Informer) addFromNow(eh cache.ResourceEventHandler) (*handler, error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.addFromNowLocked(eh)
}

func (inf *Informer) addFromNowLocked(eh cache.ResourceEventHandler) (*handler, error) {
	if inf.ended {
		return nil, errStopped
	}
	h := inf.newHandler(eh, nil)
	if h.stage = walking; inf.ready { // before that there is nothing, and all that comes is a change
		h.stage = live
	}
	h.markSyncedLocked()
	inf.handlers[h] = struct{}{}
	if inf.opened {
		inf.startLocked(h)
	}
	return h, nil
}

var errStopped = errors.New("the informer has stopped")

func (inf *Informer) follow(f *feed) (*handler, error) {
	if !f.initial {
		return inf.addFromNow(f)
	}
	registration, err := inf.AddEventHandlerWithOptions(f, cache.HandlerOptions{ResyncPeriod: ptr.To(time.Duration(0))})
	if err != nil {
		return nil, errStopped
	}
	return registration.(*handler), nil
}

func (e *endpoint) serveChanges(a *answer, q question) error {
	inf, err := e.find(q)
	if err != nil {
		return err
	}
	p, err := q.printer(inf)
	if err != nil {
		return err
	}
	since, err := q.since()
	if err != nil {
		return err
	}
	initial, err := q.oneOf("initial", "false", "true")
	if err != nil {
		return err
	}
	if since != "" && initial == "true" {
		return refuse(http.StatusBadRequest, "initial=true goes with since=now only, not with a resource version")
	}
	release, err := q.slot(e.following)
	if err != nil {
		return err
	}
	defer release()
	a.waits = changesPatience
	f := &feed{
		initial: initial == "true", out: make(chan happening, changesBuffer),
		slow: make(chan struct{}), gone: q.ctx.Done(),
	}
	var h *handler
	if since != "" {
		h, err = e.replay(a, q, p, &replay{inf: inf, feed: f, fresh: map[string]struct{}{}}, since)
	} else {
		if f.initial && inf.HasSynced() { // before that it may wait for long
			release, err := q.slot(e.reading)
			if err != nil {
				return err
			}
			f.read = sync.OnceFunc(release)
			defer f.read()
			defer time.AfterFunc(readingTime, f.read).Stop() // one that is so slow reads little
		}
		h, err = inf.follow(f)
	}
	if errors.Is(err, errStopped) {
		err = refuse(http.StatusServiceUnavailable, "%v", err)
	}
	if err != nil {
		return err
	}
	a.ends = time.Time{}
	f.handler.Store(h)
	defer func() {
		f.tooSlow() // nobody takes what it still says
		_ = inf.RemoveEventHandler(h)
		<-h.done
	}()
	a.begin("application/jsonl")
	if err := a.flush(); err != nil {
		return err
	}
	return f.send(a, p, h)
}

// since is the resource version after which changes are wanted; "" is from now on.
func (q question) since() (string, error) {
	rv := q.Get("since")
	if !q.Has("since") || rv == "now" {
		return "", nil
	}
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return "", refuse(http.StatusBadRequest, "since is %q, want now or a resource version, which is a number from 1 on", rv)
	}
	return rv, nil
}

// replay sends what came after a resource version, and returns the handler that goes
// on from there.
func (e *endpoint) replay(a *answer, q question, p printer, r *replay, since string) (h *handler, err error) {
	if r.next, err = q.logAfter(r.inf, since); err != nil {
		return nil, err
	}
	release, err := q.slot(e.reading)
	if err != nil {
		return nil, err
	}
	defer release()
	for end := time.Now().Add(readingTime); ; {
		lines, h, err := r.take()
		if err != nil || h != nil {
			return h, err
		}
		a.begin("application/jsonl")
		for _, line := range lines {
			c, err := r.decode(line)
			if err != nil {
				return nil, err
			}
			if err := r.feed.write(a, p, c); err != nil {
				return nil, err
			}
		}
		if err := a.flush(); err != nil {
			return nil, err
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("to send what came before took longer than %s; go on from the last line", readingTime)
		}
	}
}

// logAfter is the informer's, for which it waits a moment: one that has been started
// again is behind the one before.
func (q question) logAfter(inf *Informer, since string) (uint64, error) {
	check := time.NewTicker(changesCheck)
	defer check.Stop()
	for end := time.Now().Add(slotPatience); ; {
		n, isAhead, err := inf.logAfter(since)
		if !isAhead || time.Now().After(end) {
			return n, err
		}
		select {
		case <-check.C:
		case <-q.ctx.Done():
			return 0, q.ctx.Err()
		}
	}
}

// send writes lines until the client or the informer is gone.
func (f *feed) send(a *answer, p printer, h *handler) error {
	told := h.told
	for {
		select {
		case <-f.slow:
			return errSlow
		default:
		}
		select {
		case <-f.slow:
			return errSlow
		case <-f.gone:
			return nil
		case c := <-f.out:
			if err := f.sendOne(a, p, c); err != nil {
				return err
			}
		case <-told:
			if told = nil; f.read != nil {
				f.read()
			}
		case <-h.done:
			for len(f.out) > 0 {
				if err := f.sendOne(a, p, <-f.out); err != nil {
					return err
				}
			}
			return errStopped
		}
	}
}

func (f *feed) sendOne(a *answer, p printer, c happening) error {
	if m, err := meta.Accessor(c.obj); err == nil {
		c.listed = f.handler.Load().inf.isListed(m.GetResourceVersion())
	}
	err := f.write(a, p, c)
	if err == nil && len(f.out) == 0 {
		err = a.flush()
	}
	return err
}

func (f *feed) write(a *answer, p printer, c happening) error {
	b, err := p.json(c.obj)
	if err != nil {
		return err
	}
	return a.line(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
		Listed bool            `json:"listed,omitempty"`
	}{c.kind, b, c.listed})
}
