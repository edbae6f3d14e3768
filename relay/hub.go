package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/informctl/informctl/store"
)

// hub follows the log of a collection once for all watches. What it reads is a chain of
// groups: each watch goes along it at its own pace, and holds what is behind it in
// memory. The hub keeps the end of the chain, so that most watches that begin need not
// read the log.
type hub struct {
	s      *served
	ctx    context.Context // it ends with the collection
	cancel context.CancelCauseFunc
	begin  sync.Once
	ended  sync.WaitGroup // its goroutines

	mu       sync.Mutex    // protects the fields below
	chain    []*node       // the end of the chain; empty while there is none
	bytes    int           // of the groups of chain
	changed  chan struct{} // closed and replaced when the chain has changed
	above    string        // see store.LogState
	watching int
	watched  chan struct{} // closed and replaced when the first watch begins
	err      error         // why there is no chain
}

// node is a place in the log. It holds what comes after it, so that the end of the chain
// holds no group.
type node struct {
	place store.Place
	cut   chan struct{} // closed when those who are still at it are too slow

	done  chan struct{} // closed when next or err is set
	next  *node
	group *group // what leads to next
	err   error  // why the chain ends here
}

// maxChain bounds the groups of the chain in bytes as they are stored, and maxNodes in
// their number: who is further behind is cut, and who begins further behind reads the
// log. What is decoded and encoded of a group for watches takes up to thirty times as
// much.
const (
	maxChain = 8 << 20
	maxNodes = 10_000
)

func newHub(s *served) *hub {
	h := &hub{s: s, changed: make(chan struct{}), watched: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h
}

// start begins to follow the log, once.
func (h *hub) start() {
	h.begin.Do(func() {
		if h.ctx.Err() != nil {
			return
		}
		h.ended.Go(h.run) // both end with h.ctx
		if h.s.writes != nil {
			h.ended.Go(h.commitOnDemand)
		}
	})
}

// end ends all watches, and returns when the goroutines have ended. err is what their
// clients are told, if it is not store.ErrClosed.
func (h *hub) end(err error) {
	h.cancel(err)
	h.begin.Do(func() {})
	if h.s.writes != nil {
		h.s.writes.end()
	}
	h.ended.Wait()
}

// retryEvery is how often a log is looked at that cannot be followed.
const retryEvery = 200 * time.Millisecond

func (h *hub) run() {
	var err error
	for h.ctx.Err() == nil {
		err = h.follow(errors.Is(err, errHeld) || errors.Is(err, errNotWhole))
		h.broken(err)
		wait := time.NewTimer(retryEvery)
		select {
		case <-wait.C:
		case <-h.ctx.Done():
			wait.Stop()
		}
	}
}

// follow follows the log from its present end, until that is not possible any more. whole
// asks for an end that can be read.
func (h *hub) follow(whole bool) error {
	place, above, err := h.s.last(whole)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(h.ctx)
	defer cancel(nil)
	held := time.AfterFunc(staleAfter, func() { cancel(errHeld) })
	held.Stop()
	defer held.Stop()
	h.append(&group{place: place}, above)
	if !h.s.At.IsZero() {
		<-h.ctx.Done()
		return context.Cause(h.ctx)
	}
	last := place.RV
	for g, err := range h.s.groups(ctx, place, func(is bool) {
		if held.Stop(); is {
			held.Reset(staleAfter)
		}
	}) {
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		if rv := g.place.RV; rv != "" && store.Higher(last, rv) != rv {
			above = store.Higher(above, last) // a list of an earlier state
		}
		last = g.place.RV
		h.append(g, above)
	}
	<-h.ctx.Done() // the log of a file has an end
	return context.Cause(h.ctx)
}

// errNotWhole says that what there is is no state of the server.
var errNotWhole = errors.New("for too long a list was being applied, or an object could not be stored")

// last returns the last place of the log that can be read. With whole, nothing may have
// come after it.
func (s *served) last(whole bool) (place store.Place, above string, err error) {
	if !s.At.IsZero() {
		return s.At, "", nil
	}
	state, err := s.Reader.History()
	switch {
	case err != nil:
		return place, "", err
	case state.Readable.IsZero():
		return place, "", s.unread(state)
	case whole && state.Readable.Mark != state.Last.Mark:
		return place, "", fmt.Errorf("%s: %w", s.Scope, errNotWhole)
	}
	return state.Readable, state.Above, nil
}

func (h *hub) append(g *group, above string) {
	n := &node{place: g.place, cut: make(chan struct{}), done: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.chain) > 0 {
		last := h.chain[len(h.chain)-1]
		last.next, last.group = n, g
		close(last.done)
		h.bytes += g.bytes
	}
	h.chain, h.above, h.err = append(h.chain, n), above, nil
	h.trimLocked()
	h.wakeLocked()
}

// trimLocked drops what is too much of the chain, and all but its end if nobody watches.
func (h *hub) trimLocked() {
	for len(h.chain) > 1 && (h.bytes > maxChain || len(h.chain) > maxNodes || h.watching == 0) {
		h.bytes -= h.chain[0].group.bytes
		close(h.chain[0].cut)
		h.chain[0] = nil
		h.chain = h.chain[1:]
	}
}

func (h *hub) wakeLocked() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// logError is the error of a log that cannot be followed now. It says nothing of the
// place where a client is.
type logError struct{ error }

func (e logError) Unwrap() error { return e.error }

// broken ends the chain.
func (h *hub) broken(err error) {
	err = logError{err}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.chain) > 0 {
		last := h.chain[len(h.chain)-1]
		last.err = err
		close(last.done)
	}
	h.chain, h.bytes, h.err = nil, 0, err
	h.wakeLocked()
}

// entry is where a watch begins: at a node, or in the log.
type entry struct {
	at    *node       // nil: the log is read from place on
	place store.Place // in the log
	// ahead is the resource version that the watch is at, if that is not reached yet:
	// what comes up to it is not sent.
	ahead string
}

// enter returns where a watch begins that knows the state of a place.
func (h *hub) enter(ctx context.Context, p store.Place) (entry, error) {
	for {
		var newest newest
		if !p.Exact() {
			newest = h.newest()
		}
		h.mu.Lock()
		changed, err := h.changed, h.err
		if len(h.chain) > 0 {
			e, wait, err := h.findLocked(p, newest.told(h.chain[len(h.chain)-1]))
			if !wait {
				h.mu.Unlock()
				return e, err
			}
		}
		h.mu.Unlock()
		select {
		case <-changed:
		case <-h.ctx.Done():
			return entry{}, context.Cause(h.ctx)
		case <-ctx.Done():
			return entry{}, cmp.Or(err, error(logError{fmt.Errorf("%s: the log is not read so far", h.s.Scope)}))
		}
	}
}

// findLocked looks for a place. told is the resource version up to which nothing has
// changed since the end of the chain; it is needed for a place that names no mark. wait
// means that the hub has not come so far.
func (h *hub) findLocked(p store.Place, told string) (e entry, wait bool, err error) {
	last := h.chain[len(h.chain)-1]
	if p.Exact() {
		if p.Lineage == last.place.Lineage && p.Mark > last.place.Mark {
			return e, true, nil
		}
		for i := len(h.chain) - 1; i >= 0 && h.chain[i].place.Mark >= p.Mark && p.Lineage == last.place.Lineage; i-- {
			if h.chain[i].place.Mark == p.Mark {
				return entry{at: h.chain[i]}, false, nil
			}
		}
		return entry{place: p}, false, nil
	}
	for i := len(h.chain) - 1; i >= 0; i-- {
		n := h.chain[i]
		switch order := compareRV(n.place.RV, p.RV); {
		case order > 0:
			continue
		case order == 0, n == last && compareRV(p.RV, told) == 0:
			return entry{at: n}, false, nil
		case h.above != "" && compareRV(p.RV, h.above) <= 0:
			// Both histories may have it, and only what was told just now is known to be
			// of the new one.
			return e, false, fmt.Errorf("%w: %s may be of a history of the server that is no more", store.ErrLineage, p.RV)
		case n == last && compareRV(p.RV, told) < 0:
			return entry{at: n}, false, nil
		case n == last && (!h.s.At.IsZero() || !h.s.Live):
			return e, false, fmt.Errorf("%w: %s is after the state that is served, and nothing follows it", store.ErrTrimmed, p.RV)
		case n == last:
			return entry{at: n, ahead: p.RV}, false, nil
		case n.group.from != "" && compareRV(p.RV, n.group.from) <= 0:
			return entry{at: n}, false, nil
		}
		return entry{place: p}, false, nil // inside a group: see replay
	}
	return entry{place: p}, false, nil
}

// tail returns the end of the chain, nil if there is none.
func (h *hub) tail() *node {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.chain) == 0 {
		return nil
	}
	return h.chain[len(h.chain)-1]
}

// newest is the newest place that can be read.
type newest struct {
	place store.Place
	rv    string // up to which nothing has changed since
}

func (h *hub) newest() (n newest) {
	n.place, n.rv, _ = h.s.present() // what is unknown equals no node
	return n
}

// told returns the resource version up to which nothing has changed since a node.
func (n newest) told(at *node) string {
	if n.place.Mark != at.place.Mark || n.place.Lineage != at.place.Lineage || n.rv == "" {
		return at.place.RV
	}
	return n.rv
}

// watch counts a watch until stop is called.
func (h *hub) watch() (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watching++; h.watching == 1 {
		close(h.watched)
		h.watched = make(chan struct{})
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.watching--
		h.trimLocked()
	}
}

// commitOnDemand has written what was applied, as long as somebody watches: a watch is
// sent what is written.
func (h *hub) commitOnDemand() {
	ticker := time.NewTicker(settleEvery)
	defer ticker.Stop()
	written := ""
	for {
		h.mu.Lock()
		watching, watched := h.watching, h.watched
		h.mu.Unlock()
		wait := ticker.C
		if watching == 0 {
			wait = nil
		}
		select {
		case <-wait:
		case <-watched:
			continue
		case <-h.ctx.Done():
			return
		}
		if rv := h.s.Reader.Checkpoint().RV; rv != written && h.s.writes.settle(h.ctx) == nil {
			written = rv
		}
	}
}
