package informer

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/store"
)

// errFromList is the error of a wait that what the informer waits for has called.
var errFromList = errors.New("the informer waits for the caller: a transform, an index function, a ListerWatcher or a watch error handler")

// NotOlderThan blocks until the informer's state is at least as new as a resource
// version of its server: that of an applied list, event or bookmark is not lower. Reads
// that begin afterwards return that state or a newer one, so a program can read what it
// has written. An object that cannot be stored stays in its last good state all the same;
// Status.Rejected names it.
//
// A quiet resource reaches a resource version of another one by a bookmark, which a
// server sends once a minute. Resource versions are compared as numbers, also with one of
// a history that the server no longer has.
//
// The error is that of the context if it ends before, ErrStopped if the informer does, or
// names the resource version if it is none: a number from 1 on. Transforms, index
// functions, watch error handlers and the ListerWatcher must not wait; they get an error.
func (inf *Informer) NotOlderThan(ctx context.Context, rv string) error {
	if _, err := resourceversion.CompareResourceVersion(rv, rv); err != nil {
		return fmt.Errorf("informer: resource version is %q, want a number from 1 on", rv)
	}
	if inf.isAt(rv) {
		return nil
	}
	if isCalledBack() {
		return fmt.Errorf("informer: wait for resource version %s: %w", rv, errFromList)
	}
	defer inf.hub.Urge()()
	inf.mu.Lock()
	defer inf.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		inf.mu.Lock()
		defer inf.mu.Unlock()
		inf.cond.Broadcast()
	})
	defer stop()
	for !inf.isAtLocked(rv) {
		why := ctx.Err()
		if inf.phase == ended {
			why = ErrStopped
		}
		if why != nil {
			return fmt.Errorf("informer: wait for resource version %s, it is at %q: %w", rv, inf.reached, why)
		}
		inf.cond.Wait()
	}
	return nil
}

func (inf *Informer) isAt(rv string) bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.isAtLocked(rv)
}

func (inf *Informer) isAtLocked(rv string) bool {
	return inf.isKnownLocked() && inf.reached != "" && store.Higher(inf.reached, rv) == inf.reached
}

// isKnownLocked reports whether resource versions say how new the state is: changes are
// not missing, and the server is not another cluster.
func (inf *Informer) isKnownLocked() bool { return inf.hold.missing == nil && inf.hold.foreign == "" }

// NotOlderThan is Informer.NotOlderThan: it blocks until reads of the Lister return a
// state that is at least as new as a resource version.
func (l *Lister[T]) NotOlderThan(ctx context.Context, rv string) error {
	return l.inf.NotOlderThan(ctx, rv)
}
