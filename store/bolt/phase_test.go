package bolt

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/informctl/informctl/store"
)

// TestPhases checks the table of phases: where each event leads from each phase.
func TestPhases(t *testing.T) {
	cause := errors.New("cause")
	events := map[string]func(s *scopeStore){
		"list begins":          func(s *scopeStore) { s.beginLoad() },
		"list ends unfinished": func(s *scopeStore) { s.endLoad() },
		"list is applied":      func(s *scopeStore) { s.move(phaseReady, nil, allPhases...) },
		"change is applied":    func(s *scopeStore) { s.move(phaseReady, nil, phaseEmpty) },
		"file is lost":         func(s *scopeStore) { s.move(phaseLost, cause, allPhases...) },
		"wipe begins":          func(s *scopeStore) { s.locked((*state).wiping) },
		"wipe did not happen":  func(s *scopeStore) { s.locked((*state).notWiped) },
	}
	for name, to := range map[string][]phase{ // from empty, loading, ready, lost, mending
		"list begins":          {phaseLoading, phaseLoading, phaseReady, phaseMending, phaseMending},
		"list ends unfinished": {phaseEmpty, phaseEmpty, phaseReady, phaseLost, phaseLost},
		"list is applied":      {phaseReady, phaseReady, phaseReady, phaseReady, phaseReady},
		"change is applied":    {phaseReady, phaseLoading, phaseReady, phaseLost, phaseMending},
		"file is lost":         {phaseLost, phaseLost, phaseLost, phaseLost, phaseLost},
		"wipe begins":          {phaseHidden, phaseHidden, phaseHidden, phaseLost, phaseMending},
		"wipe did not happen":  {phaseEmpty, phaseLoading, phaseReady, phaseLost, phaseMending},
	} {
		for from, want := range to {
			s := &scopeStore{state: state{standing: standing{phase: phase(from)}}}
			if s.phase == phaseLost || s.phase == phaseMending {
				s.cause = store.ErrCorrupt
			}
			if events[name](s); s.phase != want {
				t.Errorf("%s, %s: %s, want %s", phase(from), name, s.phase, want)
			}
			if fails := s.phase >= phaseLost; (s.cause != nil) != fails {
				t.Errorf("%s, %s: reads return %v in phase %s", phase(from), name, s.cause, s.phase)
			}
		}
	}
	// A list that begins while a wipe may have happened is loaded, whether it has or not.
	for from, want := range []phase{phaseLoading, phaseLoading, phaseLoading} {
		s := &scopeStore{state: state{standing: standing{phase: phase(from)}}}
		s.locked((*state).wiping)
		if !s.beginLoad() || !s.isLoading() {
			t.Errorf("%s, hidden: the list is compared", phase(from))
		}
		if s.locked((*state).notWiped); s.phase != want {
			t.Errorf("%s, hidden, list begins, shown: %s, want %s", phase(from), s.phase, want)
		}
	}
}

// TestRoleMovesDownwards checks that a closed scope does not get its lease back when its
// DB is closed.
func TestRoleMovesDownwards(t *testing.T) {
	db, s := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if s.role != roleViewer {
		t.Errorf("role %d after Close of the scope and of the DB, want %d", s.role, roleViewer)
	}
}
