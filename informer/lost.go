package informer

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

// noticeLosses requests a list when the store reports that it has lost its content;
// otherwise only the next change or read would detect the loss. It blocks until the
// context ends.
func (inf *Informer) noticeLosses(ctx context.Context) {
	held, ok := inf.store.(store.Loser)
	if !ok {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-held.Lost():
		}
		// No error if a list has been loaded meanwhile.
		if _, err := inf.store.Select(store.Query{Limit: 1}); err != nil && ctx.Err() == nil {
			inf.lose(ctx, err)
		}
	}
}

// isCalledBack reports whether the caller is a transform, an index function, a watch
// error handler or a ListerWatcher that this or another informer has called. A list waits
// for these, so they must not wait for a list. Only the stack shows the caller in Go. The
// function is called only when stored objects are damaged.
func isCalledBack() bool {
	var stack [128]uintptr
	frames := runtime.CallersFrames(stack[:runtime.Callers(2, stack[:])])
	for {
		frame, more := frames.Next()
		switch name := frame.Function; {
		case strings.HasPrefix(name, reflectorPackage), strings.HasPrefix(name, endablePackage),
			strings.HasSuffix(name, ".(*Informer).processLoop"), strings.HasSuffix(name, ".(*Informer).auditLoop"),
			strings.HasSuffix(name, ".(*Informer).addIndexers"), strings.HasSuffix(name, ".(*Informer).openStore"),
			strings.HasSuffix(name, ".(*Informer).waits"):
			return true
		case !more:
			return false
		}
	}
}

// The prefixes of the names of all functions of packages reflector and endable.
const (
	reflectorPackage = "github.com/informctl/informctl/reflector."
	endablePackage   = "github.com/informctl/informctl/internal/endable."
)

// failed implements delivery.Env.Failed.
func (inf *Informer) failed(err error) { inf.lose(inf.ctx, err) }

// lose records that changes could not be applied: the stored RV is frozen (promise 2),
// and a new list restores the missing changes.
func (inf *Informer) lose(ctx context.Context, cause error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.loseLocked(ctx, cause)
}

func (inf *Informer) loseLocked(ctx context.Context, cause error) {
	if inf.hold.missing == nil {
		inf.rejectLocked(ctx, "", cause)
	}
	inf.hold.missing, inf.reached = cause, ""
	wait := mendEvery - time.Since(inf.repair.last)
	switch {
	case wait <= 0:
		inf.mendLocked()
	case inf.repair.next == nil:
		inf.repair.next = time.AfterFunc(wait, func() {
			inf.mu.Lock()
			defer inf.mu.Unlock()
			inf.repair.next = nil
			if inf.hold.missing != nil && inf.phase != ended {
				inf.mendLocked()
			}
		})
	}
}

func (inf *Informer) mendLocked() {
	inf.repair.last = time.Now()
	reason := "the store is damaged or could not take a change"
	if errors.Is(inf.hold.missing, store.ErrWiped) {
		reason = "what was stored was wiped"
	}
	inf.reflector.Relist(reason)
}

// waitForList requests a list that repairs the cause of a failed read, and blocks until
// the informer's state changes. lists is the number of lists before the read. It reports
// whether the caller should read again: false if the informer does not run or the list
// would have to wait for the caller.
func (inf *Informer) waitForList(cause error, lists uint64) bool {
	calledBack := isCalledBack() // then the hub may be waiting for the caller
	if !calledBack {
		defer inf.hub.Urge()()
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if !inf.isOpenedLocked() || inf.phase == ended {
		return false
	}
	if inf.lists.Load() != lists {
		return true // a list has been applied since, so the read may succeed now
	}
	inf.loseLocked(inf.ctx, cause)
	if calledBack {
		return false
	}
	inf.cond.Wait()
	return inf.phase != ended
}
