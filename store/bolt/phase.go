package bolt

import (
	"fmt"
	"slices"

	"github.com/informctl/informctl/store"
)

// phase is what a scope holds. Only the functions of this file change it.
//
//	from                    to       when
//	                        empty    Open finds nothing that can be used
//	                        loading  a reader opens a scope without a whole list
//	                        ready    Open finds a whole list
//	empty                   loading  a list begins
//	loading                 empty    the list ends unfinished
//	empty, loading          ready    a list is applied whole, or a change without a list
//	any                     lost     the file is lost, or the scope is wiped or replaced
//	lost                    mending  a list begins
//	mending                 lost     the list ends unfinished
//	lost, mending, hidden   ready    a list is applied whole
//	hidden                  hidden   a list begins or ends: standing.before changes
//	empty, loading, ready   hidden   a wipe begins
//	hidden                  before   the wipe did not happen
//
// A ready scope stays ready while it is compared with a list.
type phase uint8

const (
	phaseEmpty   phase = iota // nothing: the next list is loaded
	phaseLoading              // a part of a first list, which readers do not see
	phaseReady                // what a list is compared with
	phaseLost                 // nothing, because of standing.cause: reads return it
	phaseMending              // as lost, while a list is loaded
	phaseHidden               // what a wipe may have dropped: as lost
)

var allPhases = []phase{phaseEmpty, phaseLoading, phaseReady, phaseLost, phaseMending, phaseHidden}

func (p phase) String() string {
	return [...]string{"empty", "loading", "ready", "lost", "mending", "hidden"}[p]
}

// move changes the phase if it is one of from, and reports whether it was.
func (s *standing) move(to phase, cause error, from ...phase) bool {
	if !slices.Contains(from, s.phase) {
		return false
	}
	if to == phaseHidden {
		s.before = s.phase
	}
	s.phase, s.cause = to, cause
	s.isReady.Store(to == phaseReady)
	return true
}

// isLoading reports whether what is stored is a part of a list.
func (s *standing) isLoading() bool {
	return s.phase == phaseLoading || s.phase == phaseMending || s.phase == phaseHidden && s.before == phaseLoading
}

// beginLoad is called when a list begins. It reports whether the list is loaded:
// there is nothing to compare it with.
func (s *standing) beginLoad() bool {
	switch s.phase {
	case phaseReady:
		return false
	case phaseHidden:
		s.before = phaseLoading
	default:
		_ = s.move(phaseLoading, nil, phaseEmpty) || s.move(phaseMending, s.cause, phaseLost)
	}
	return true
}

// endLoad is called when a list that was being loaded ends unfinished.
func (s *standing) endLoad() {
	if s.phase == phaseHidden {
		s.before = phaseEmpty
		return
	}
	_ = s.move(phaseEmpty, nil, phaseLoading) || s.move(phaseLost, s.cause, phaseMending)
}

// isListed reports whether the scope holds what a list is compared with.
func (s *standing) isListed() bool {
	return s.phase == phaseReady || s.phase == phaseHidden && s.before == phaseReady
}

// whyIncompleteLocked returns store.ErrIncomplete if the scope was opened read-only
// before its first list was complete.
func (s *scopeStore) whyIncompleteLocked() error {
	if s.db.readOnly && s.phase == phaseLoading {
		return fmt.Errorf("%s: %w", s.scope, store.ErrIncomplete)
	}
	return nil
}

// role is what an open scopeStore may do. It only moves downwards.
type role uint8

const (
	roleWriter  role = iota // holds the lease and takes changes
	roleClosing             // holds the lease until what was applied is written
	roleViewer              // reads
)
