package unlogged_test

import (
	"errors"
	"testing"

	"github.com/informctl/informctl/store/bolt/internal/unlogged"
)

func TestState(t *testing.T) {
	var s unlogged.State
	s.Committed(2)
	s.Committed(0)
	s.Lost(errors.New("gone"))
	if s.Committed(3); s.Changes != 5 {
		t.Errorf("%d changes are counted, want 5", s.Changes)
	}
}
