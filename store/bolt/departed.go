package bolt

import (
	"math"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/graveyard"
)

// Departed implements store.Departer.
func (s *scopeStore) Departed(after uint64, limit int) (out []store.Departed, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	var hint graveyard.Hint
	// Those of an earlier process are there while a first list is loaded.
	err = s.readAs("departed objects", want{loaded: true, left: true}, func(sn *snapshot) error {
		hint = sn.hint
		r := graveyard.Reader{Content: &sn.Snapshot, Log: sn.log(), Gone: sn.gone}
		out, err = r.Read(&hint, max(after, sn.settled), limit)
		return err
	})
	if err != nil {
		return nil, err // the hint may lack places
	}
	// Not in the transaction: a reader that has the lock may wait for its end.
	s.locked(func(s *state) { s.departed.Hint = hint })
	return out, nil
}

// Settle implements store.Departer.
func (s *scopeStore) Settle() { s.SettleUpTo(math.MaxUint64) }

// Unsettle implements store.Departer.
func (s *scopeStore) Unsettle() { s.SettleUpTo(0) }

// LastDeparted implements store.PartSettler.
func (s *scopeStore) LastDeparted() uint64 {
	return from(s, func(s *state) uint64 { return s.departed.Last })
}

// SettleUpTo implements store.PartSettler.
func (s *scopeStore) SettleUpTo(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next.Load() != nil || s.db.readOnly || s.db.isClosed() || s.cause != nil {
		return
	}
	if s.settled(number) {
		s.db.tell(false)
	}
}

// Compares implements store.Departer.
func (s *scopeStore) Compares() bool {
	return from(s, func(s *state) bool { return s.departed.Compares })
}

// Departures implements store.Departer.
func (s *scopeStore) Departures() (kept, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.Kept, s.departed.Dropped
}

var _ store.PartSettler = (*scopeStore)(nil)
