package heal

import (
	"context"
	"fmt"
	"slices"
)

// Phase is where an informer is in its life. Only Life.move changes it.
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

// Life is the phase of an informer, and the last one before the end.
type Life struct{ phase, before Phase }

// move changes the phase if it is one of from.
func (l *Life) move(to Phase, from ...Phase) {
	if !slices.Contains(from, l.phase) {
		return
	}
	if to == Ended {
		l.before = l.phase
	}
	l.phase = to
}

// Phase returns the phase.
func (l Life) Phase() Phase { return l.phase }

// was returns the phase, or the last one before the end.
func (l Life) was() Phase {
	if l.phase == Ended {
		return l.before
	}
	return l.phase
}

// runs reports whether the store is opened and the informer has not ended.
func (l Life) runs() bool { return l.phase >= Loading && l.phase != Ended }

// IsOpened reports whether the store has been opened, even if the informer has ended
// since.
func (l Life) IsOpened() bool { return l.was() >= Loading }

// IsCaughtUp reports whether the store has reached the server's state at the start.
func (l Life) IsCaughtUp() bool { return l.was() == Current }

// Life returns where the informer is in its life.
func (s *State) Life() Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// Claim begins the life of the informer. It reports whether this call is the first.
func (s *State) Claim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.phase != Created {
		return false
	}
	s.life.move(Opening, Created)
	return true
}

// Opened is what State.Open is told.
type Opened struct {
	RV   string // that the store is complete up to
	Warm bool   // the store holds a whole list
	// Show makes the store the one that is read, at the moment at which the informer is
	// opened. It must not block.
	Show func()
	// Relist requests a list. It must not block.
	Relist func(reason string)
}

// Open says that the store is opened. Messages are logged with the logger of ctx.
func (s *State) Open(ctx context.Context, o Opened) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.Show()
	s.ctx, s.relist, s.reached = ctx, o.Relist, o.RV
	if s.life.move(Loading, Opening); o.Warm {
		s.life.move(CatchingUp, Loading)
	}
	s.cond.Broadcast()
}

// End ends the life of the informer: nothing waits any longer, and no list is requested.
func (s *State) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.move(Ended, Created, Opening, Loading, CatchingUp, Current)
	if s.repair.next != nil {
		s.repair.next.Stop()
	}
	s.cond.Broadcast()
}

// CatchUp moves to the phase Current, unless changes are missing: the error says why, and
// a list is requested.
func (s *State) CatchUp(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause := s.hold.missing; cause != nil {
		s.loseLocked(ctx, cause)
		return fmt.Errorf("changes are missing from the store: %w", cause)
	}
	s.life.move(Current, Loading, CatchingUp)
	return nil
}
