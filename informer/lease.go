package informer

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/informctl/informctl/store"
)

// An informer waits handOver for the scope of an informer that is ending, and
// noticeTheEnd for an informer that may not have seen the end of its context yet.
const (
	handOver     = 10 * time.Second
	noticeTheEnd = time.Second
)

// leased is a scope of a backend.
type leased struct {
	backend store.Backend
	id      string
}

// isShared reports whether it is known who else has the scope: without a backend, or with
// one that cannot be compared, it is not.
func (l leased) isShared() bool {
	return l.backend != nil && reflect.ValueOf(l.backend).Comparable()
}

// leases has the informers of the process that have opened their scopes, or open them
// first, until they have closed them.
var leases = leaseTable{of: map[leased]*Informer{}}

// leaseTable is the type of leases.
type leaseTable struct {
	mu sync.Mutex // protects of
	of map[leased]*Informer
}

// lease opens the scope of the informer. Who stops an informer does not always wait for
// its end, as controller-runtime's RemoveInformer does not, so the next informer of the
// scope may start while the previous one ends, or still opens it.
func (inf *Informer) lease(ctx context.Context, scope store.Scope, opts store.Options) (s store.Store, err error) {
	l := leased{inf.opts.Backend, scope.ID()}
	if !l.isShared() {
		return l.backend.Open(scope, opts)
	}
	for {
		holder := l.reserve(inf)
		s, err = l.backend.Open(scope, opts)
		if !errors.Is(err, store.ErrInUse) || holder == nil || !within(ctx, noticeTheEnd, holder.ending) || !within(ctx, handOver, holder.released) {
			break
		}
	}
	if err != nil {
		l.forget(inf)
		return nil, err
	}
	leases.mu.Lock()
	defer leases.mu.Unlock()
	leases.of[l] = inf
	return s, nil
}

// reserve makes an informer the holder of a scope that nobody has opened or is opening.
// It returns the holder if that is another informer.
func (l leased) reserve(inf *Informer) (holder *Informer) {
	leases.mu.Lock()
	defer leases.mu.Unlock()
	if holder = leases.of[l]; holder != nil && holder != inf {
		return holder
	}
	leases.of[l] = inf
	return nil
}

// forget removes the reference to an informer that does not hold the scope.
func (l leased) forget(inf *Informer) {
	leases.mu.Lock()
	defer leases.mu.Unlock()
	if leases.of[l] == inf {
		delete(leases.of, l)
	}
}

// forgetLease removes the reference to the informer, which has closed its store.
func (inf *Informer) forgetLease() {
	if l := (leased{inf.opts.Backend, inf.Scope().ID()}); l.isShared() {
		l.forget(inf)
	}
}

// within waits for a channel to be closed. It reports whether that happened in time.
func within(ctx context.Context, d time.Duration, closed <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-closed:
		return true
	case <-t.C:
	case <-ctx.Done():
	}
	return false
}
