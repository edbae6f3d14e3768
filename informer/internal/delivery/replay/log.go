package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/informer/internal/delivery/queue"
	"github.com/informctl/informctl/store"
)

// flushPatience is how long a handler that goes on from the log waits until what was
// applied before is written. After that it receives what is written, and everything that
// is stored: see Resumption.BeginUnwritten.
const flushPatience = 30 * time.Second

const (
	// lagPatience is how long a handler waits for the changes up to its place if the
	// informer is behind it, for example because another replica has had them first.
	lagPatience = 5 * time.Second
	// lagInterval is how often it looks.
	lagInterval = 100 * time.Millisecond
)

// ErrUnwritten says that what was applied before is not in the log, and cannot be
// written.
var ErrUnwritten = errors.New("what was applied before is not written")

// ErrOver says that the handler was removed or the informer has ended.
var ErrOver = errors.New("the handler receives nothing more")

// Store is what a Log reads. Every store.Store is one.
type Store interface {
	Entry(key string) (store.Entry, bool, error)
	Flush(ctx context.Context) error
	Follow(ctx context.Context, after store.Place) iter.Seq2[store.Event, error]
	History() (store.LogState, error)
}

// Log delivers what the log of a scope has after a place.
type Log struct {
	Store  Store
	Synced <-chan struct{} // closed when the informer has synced
	Limit  int             // of the notifications that are delivered at a time
	// Unwritten means that what was applied before cannot be written: the log is
	// delivered as far as it goes. An object has its present state instead of one of the
	// log, so that none is brought whose deletion is not in the log.
	Unwritten bool
	// Lags is called if an informer that has synced is behind the place.
	Lags func()
	// Note is called with each state. If it returns false, the state is left out.
	Note func(key string, s State) bool
	// Deliver delivers notifications. An error ends Follow.
	Deliver func([]queue.Notification) error
}

// isAhead reports whether a place that has only a resource version is after what is
// stored. That is after the last mark if only bookmarks have come since.
func isAhead(p store.Place, state *store.LogState) bool {
	order, err := resourceversion.CompareResourceVersion(p.RV, cmp.Or(state.Stored, state.Last.RV))
	return !p.Exact() && err == nil && order > 0
}

// isCurrent reports whether nothing was changed after a place that has only a resource
// version and that is not ahead.
func isCurrent(p store.Place, state *store.LogState) bool {
	order, err := resourceversion.CompareResourceVersion(p.RV, state.Last.RV)
	return !p.Exact() && !state.Newer && (p.RV == state.Last.RV || err == nil && order > 0)
}

// written returns the state of the log when what was applied before is in it, or cannot
// be written.
func (l Log) written(ctx context.Context) (store.LogState, error) {
	if l.Unwritten {
		return l.Store.History()
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	if err := l.Store.Flush(ctx); err != nil {
		return store.LogState{}, fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	return l.Store.History()
}

// Follow delivers what was changed after a place, up to what has been applied when it is
// called. It blocks until that is delivered. The error is ErrUnwritten, that of the
// store, store.ErrTrimmed if the log does not lead on from the place, store.ErrLineage if
// the place is of another history or may be, that of Deliver, or ErrOver if the context
// ends.
func (l Log) Follow(ctx context.Context, from store.Place) error {
	state, err := l.written(ctx)
	if err != nil {
		return err
	}
	if isAhead(from, &state) {
		if state, err = l.reach(ctx, from); err != nil {
			return err
		}
	}
	if !from.Exact() && state.Above != "" && store.Higher(from.RV, state.Above) == state.Above {
		// It may be of the history before a rewind.
		return fmt.Errorf("%w: %w", store.ErrTrimmed, store.ErrLineage)
	}
	if from.Lineage == state.Last.Lineage && from.Mark == state.Last.Mark && from.Random == state.Last.Random {
		return nil
	}
	if isCurrent(from, &state) {
		return nil // the store's Follow would wait
	}
	var batch []queue.Notification
	for e, err := range l.Store.Follow(ctx, from) {
		if err != nil {
			return err
		}
		if m := e.Mark; m != nil {
			switch {
			case m.Begins:
				return store.ErrTrimmed
			case m.Mark >= state.Last.Mark:
				return l.Deliver(batch)
			}
			continue
		}
		n, ok, err := l.event(e)
		if err != nil {
			return err
		}
		if ok {
			batch = append(batch, n)
		}
		if len(batch) == l.Limit {
			if err := l.Deliver(batch); err != nil {
				return err
			}
			batch = nil
		}
	}
	return ErrOver
}

// reach waits until the log leads up to a place that is ahead. If it does not, the place
// is not where the informer has begun, or the server was restored to an earlier state.
func (l Log) reach(ctx context.Context, from store.Place) (state store.LogState, err error) {
	select {
	case <-l.Synced:
		l.Lags()
	default:
		select {
		case <-l.Synced:
		case <-ctx.Done():
			return state, ErrOver
		}
	}
	tick := time.NewTicker(lagInterval)
	defer tick.Stop()
	for last := time.Now().Add(lagPatience); ; {
		if state, err = l.written(ctx); err != nil || !isAhead(from, &state) {
			return state, err
		}
		if !time.Now().Before(last) {
			return state, store.ErrLineage
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return state, ErrOver
		}
	}
}

// event returns the notification of an event of the log. ok is false if there is nothing
// to say: a later event has the object.
func (l Log) event(e store.Event) (n queue.Notification, ok bool, err error) {
	if e.Short != nil && e.By != nil {
		return n, false, nil
	}
	n = queue.Notification{Kind: queue.Updated, Key: e.Key}
	s := State{RV: e.RV, Deleted: e.New == nil}
	if e.Old == nil {
		n.Kind = queue.Added
	} else {
		n.Old = e.Old.Entry
	}
	switch {
	case e.New == nil:
		// Short is of an object that was created and deleted in one commit.
		last := cmp.Or(e.Old, e.Short)
		if n.Kind = queue.Deleted; last == nil || !last.IsKnown() {
			n.Kind = queue.Vanished
		}
		if last != nil {
			n.Old = last.Entry
			if e.RV == "" {
				s.RV, s.Found = last.Header.RV, true
			}
		}
	case e.New.IsKnown() && !l.Unwritten:
		n.New, s.RV = e.New.Entry, e.New.Header.RV
	default:
		if n.New, ok, err = l.Store.Entry(e.Key); err != nil {
			return n, false, err
		}
		if !ok { // it is gone now
			n.Kind = queue.Deleted
			// Nothing that follows in the log brings it back.
			s.Deleted = l.Unwritten
			if l.Unwritten && e.Old == nil {
				_ = l.Note(e.Key, s) // so that its other changes are left out, too
			}
			if e.Old == nil || !e.Old.IsKnown() {
				return n, false, nil // its deletion follows
			}
		}
	}
	return n, l.Note(e.Key, s), nil
}
