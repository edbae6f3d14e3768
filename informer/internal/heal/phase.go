package heal

import (
	"context"
	"slices"
)

// Phase is where an informer is in its life. Only moveLocked changes it.
//
//	from                 to          when
//	Created              Opening     Claim
//	Opening              Loading     Open
//	Loading              CatchingUp  the store holds a whole list: Open or Listed
//	Loading, CatchingUp  Current     CatchUp: the server's state at the start is stored
//	any but Ended        Ended       End
//
// A list that a current informer applies changes no phase. HasSynced is a latch beside
// the phase.
type Phase uint8

// The phases of an informer.
const (
	Created Phase = iota
	Opening
	Loading    // handlers wait
	CatchingUp // handlers receive the stored objects
	Current
	Ended
)

// moveLocked changes the phase if it is one of from.
func (s *State) moveLocked(to Phase, from ...Phase) {
	if !slices.Contains(from, s.phase) {
		return
	}
	if to == Ended {
		s.before = s.phase
	}
	s.phase = to
}

// wasLocked returns the phase, or the last one before the end.
func (s *State) wasLocked() Phase {
	if s.phase == Ended {
		return s.before
	}
	return s.phase
}

// runsLocked reports whether the store is opened and the informer has not ended.
func (s *State) runsLocked() bool { return s.phase >= Loading && s.phase != Ended }

// Claim begins the life of the informer. It reports whether this call is the first.
func (s *State) Claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != Created {
		return false
	}
	s.moveLocked(Opening, Created)
	return true
}

// Open says that the store is opened, which is complete up to rv. warm says that it holds
// a whole list. relist requests a list; it does not block. Messages are logged with the
// logger of ctx.
func (s *State) Open(ctx context.Context, rv string, warm bool, relist func(reason string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx, s.relist, s.reached = ctx, relist, rv
	if s.moveLocked(Loading, Opening); warm {
		s.moveLocked(CatchingUp, Loading)
	}
	s.cond.Broadcast()
}

// End ends the life of the informer: nothing waits any longer, and no list is requested.
func (s *State) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moveLocked(Ended, Created, Opening, Loading, CatchingUp, Current)
	if s.repair.next != nil {
		s.repair.next.Stop()
	}
	s.cond.Broadcast()
}

// Phase returns the phase.
func (s *State) Phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// IsOpened reports whether the store has been opened, even if the informer has ended
// since.
func (s *State) IsOpened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wasLocked() >= Loading
}

// IsCaughtUp reports whether the store has reached the server's state at the start.
func (s *State) IsCaughtUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isCaughtUpLocked()
}

func (s *State) isCaughtUpLocked() bool { return s.wasLocked() == Current }

// CatchUp moves to the phase Current, unless changes are missing: the error says why, and
// a list is requested.
func (s *State) CatchUp(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := s.hold.missing; cause != nil {
		s.loseLocked(ctx, cause)
		return missingError(cause)
	}
	s.moveLocked(Current, Loading, CatchingUp)
	return nil
}
