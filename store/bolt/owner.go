package bolt

import (
	"bytes"
	"context"
	"errors"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
)

// owner is a DB as the owner of its file.
type owner DB

// Check implements boltfile.Owner. It reads the format and verifies the entries as
// thoroughly as how says.
func (o *owner) Check(tx *bbolt.Tx, how boltfile.Thoroughness) (isOurs bool, err error) {
	d := (*DB)(o)
	meta := tx.Bucket(layout.Meta)
	if meta == nil {
		if tx.Bucket(layout.Scopes) != nil {
			return false, d.corrupt("format", errors.New("missing"))
		}
		return false, nil
	}
	if err := layout.OnlyOurs(tx); err != nil {
		return true, d.corrupt("root", err)
	}
	switch got := meta.Get(layout.KeyFormat); {
	case bytes.Equal(got, []byte(layout.Format)):
	case layout.IsFormat(got):
		return true, &formatError{d.path, string(got)}
	default:
		return true, d.corrupt("format", errors.New("unknown"))
	}
	return true, verify(context.Background(), d.path, tx, how)
}

// Create implements boltfile.Owner.
func (o *owner) Create(tx *bbolt.Tx) error {
	if err := layout.CreateMeta(tx, o.epoch); err != nil {
		return err
	}
	return layout.WriteScopeTally(tx)
}

// TakeOver implements boltfile.Owner: the file may be of another epoch.
func (o *owner) TakeOver(tx *bbolt.Tx) error { return (*DB)(o).beginEpochIn(tx) }

// Lost implements boltfile.Owner. It discards the stored content of every scope, and the
// ledgers.
func (o *owner) Lost(cause error) {
	o.ledgerLosses.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.scopes {
		s.lose(cause)
	}
}

// Reopened implements boltfile.Owner. It begins the scopes that are not in the file. Of
// those that are closed, and may not be listed again, it notes what they had reached.
func (o *owner) Reopened() error {
	o.mu.Lock()
	var scopes []*scopeStore
	reached := map[string]string{}
	for _, s := range o.scopes {
		if !s.noBucket.Load() {
			continue
		}
		if s.isLeased() {
			scopes = append(scopes, s)
		} else if rv := from(s, (*state).earlier); rv != "" {
			reached[s.id] = rv
		}
	}
	o.mu.Unlock()
	if len(scopes)+len(reached) == 0 {
		return nil
	}
	err := o.file.Try("scopes", func(tx *bbolt.Tx) error {
		if err := layout.WriteReached(tx, reached); err != nil {
			return err
		}
		for _, s := range scopes {
			if err := s.createFirst(tx, "the file was lost"); err != nil {
				return err
			}
		}
		return nil
	})
	for _, s := range scopes {
		s.noBucket.Store(err != nil)
	}
	return err
}

// lose discards the stored content of the scope.
func (s *scopeStore) lose(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noBucket.Store(true)
	s.lost(cause)
}

var _ store.Loser = (*scopeStore)(nil)

// Lost implements store.Loser.
func (s *scopeStore) Lost() <-chan struct{} { return s.lostSignal }
