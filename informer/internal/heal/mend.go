package heal

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"time"

	"github.com/informctl/informctl/store"
)

// A file can be lost under a running informer: truncated, overwritten or removed. A scope
// can also be wiped. The store then starts with an empty one and loads the next list into
// it, with nothing to compare the list with. So the informer keeps the keys of all
// objects that handlers have received, and compares those (ARCHITECTURE.md, "Damage while
// running").

// mendEvery is the minimum time between lists that repair the store: damage that a list
// cannot repair must not cause lists in a loop.
const mendEvery = time.Minute

// repair is when lists were requested that restore what is missing.
type repair struct {
	last time.Time   // when the last one was requested
	next *time.Timer // requests the next one; nil if none is due
}

// request requests a list, because changes are missing.
func (r *repair) request(relist func(reason string), missing error) {
	r.last = time.Now()
	reason := "the store is damaged or could not take a change"
	if errors.Is(missing, store.ErrWiped) {
		reason = "what was stored was wiped"
	}
	relist(reason)
}

// Lose notes that changes could not be applied: the stored resource version is frozen
// (promise 2), and a new list restores the missing changes.
func (s *State) Lose(ctx context.Context, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(ctx, cause)
}

// Failed is Lose for callers without a context, once the store is opened.
func (s *State) Failed(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(s.ctx, cause)
}

func (s *State) loseLocked(ctx context.Context, cause error) {
	if s.hold.missing == nil {
		s.hold.reject(ctx, "", cause)
	}
	s.hold.missing, s.reached = cause, ""
	wait := mendEvery - time.Since(s.repair.last)
	switch {
	case wait <= 0:
		s.repair.request(s.relist, s.hold.missing)
	case s.repair.next == nil:
		s.repair.next = time.AfterFunc(wait, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.repair.next = nil
			if s.hold.missing != nil && s.life.phase != Ended {
				s.repair.request(s.relist, s.hold.missing)
			}
		})
	}
}

// NoticeLoss requests a list when a store has reported that it has lost its content;
// otherwise only the next change or read would detect the loss.
func (s *State) NoticeLoss(ctx context.Context, of store.Store) {
	// No error if a list has been loaded meanwhile.
	if _, err := of.Select(store.Query{Limit: 1}); err != nil && ctx.Err() == nil {
		s.Lose(ctx, err)
	}
}

// isMended reports whether a new list repairs the cause of a read error.
func isMended(err error) bool {
	return errors.Is(err, store.ErrCorrupt) || errors.Is(err, store.ErrWiped)
}

// Noticed returns the error of a read, and requests a list if that repairs the cause.
func (s *State) Noticed(err error) error {
	if isMended(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.life.runs() {
			s.loseLocked(s.ctx, err)
		}
	}
	return err
}

// Whole reads for methods that return no error. If stored objects are damaged or were
// wiped and the informer runs, it blocks until a new list has repaired them, instead of
// returning fewer objects.
func (s *State) Whole(read func() error) error {
	for {
		lists := s.lists.Load()
		err := read()
		if err == nil || !isMended(err) || !s.waitForList(err, lists) {
			return err
		}
	}
}

// waitForList requests a list that repairs the cause of a failed read, and blocks until
// the informer's state changes. lists is the number of lists before the read. It reports
// whether the caller should read again: false if the informer does not run or the list
// would have to wait for the caller.
func (s *State) waitForList(cause error, lists uint64) bool {
	calledBack := isCalledBack() // then the hub may be waiting for the caller
	if !calledBack {
		defer s.urge()()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.life.runs() {
		return false
	}
	if s.lists.Load() != lists {
		return true // a list has been applied since, so the read may succeed now
	}
	s.loseLocked(s.ctx, cause)
	if calledBack {
		return false
	}
	s.cond.Wait()
	return s.life.phase != Ended
}

// isCalledBack reports whether the caller is a transform, an index function, a watch
// error handler or a ListerWatcher that this or another informer has called. A list waits
// for these, so they must not wait for a list. Only the stack shows the caller in Go. The
// function is called only when stored objects are damaged, and by waits.
func isCalledBack() bool {
	var stack [128]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack[:])])
	for {
		frame, more := frames.Next()
		name, ours := strings.CutPrefix(frame.Function, module)
		if ours && isCaller(name) {
			return true
		}
		if !more {
			return false
		}
	}
}
