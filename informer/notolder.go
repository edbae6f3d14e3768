package informer

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

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
	if err := inf.state.Await(ctx, rv); err != nil {
		return fmt.Errorf("informer: %w", err)
	}
	return nil
}

// NotOlderThan is Informer.NotOlderThan: it blocks until reads of the Lister return a
// state that is at least as new as a resource version.
func (l *Lister[T]) NotOlderThan(ctx context.Context, rv string) error {
	return l.inf.NotOlderThan(ctx, rv)
}
