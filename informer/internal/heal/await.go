package heal

import (
	"context"
	"errors"
	"fmt"

	"github.com/informctl/informctl/store"
)

var (
	// ErrStopped is the error of a wait for an informer that has ended.
	ErrStopped = errors.New("the informer has stopped")
	// errFromList is the error of a wait that what the informer waits for has called.
	errFromList = errors.New("the informer waits for the caller: a transform, an index function, a ListerWatcher or a watch error handler")
)

// Await blocks until the resource version that is reached is not lower than rv. The error
// is that of the context, ErrStopped, or that of a caller for which a list waits.
func (s *State) Await(ctx context.Context, rv string) error {
	s.mu.Lock()
	isAt := s.isAtLocked(rv)
	s.mu.Unlock()
	if isAt {
		return nil
	}
	if isCalledBack() {
		return fmt.Errorf("wait for resource version %s: %w", rv, errFromList)
	}
	defer s.urge()()
	s.mu.Lock()
	defer s.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cond.Broadcast()
	})
	defer stop()
	for !s.isAtLocked(rv) {
		why := ctx.Err()
		if s.life.phase == Ended {
			why = ErrStopped
		}
		if why != nil {
			return fmt.Errorf("wait for resource version %s, it is at %q: %w", rv, s.reached, why)
		}
		s.cond.Wait()
	}
	return nil
}

func (s *State) isAtLocked(rv string) bool {
	return s.hold.isOrdered() && s.reached != "" && store.Higher(s.reached, rv) == s.reached
}
