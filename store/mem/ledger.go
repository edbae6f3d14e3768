package mem

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"

	"github.com/informctl/informctl/store"
)

var _ store.Ledger = (*DB)(nil)

// Ledger returns the values of a name, as long as the database is open.
func (db *DB) Ledger(ctx context.Context, name string) (values map[string][]byte, err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return nil, store.ErrClosed
	}
	db.noteConsumerLocked(name)
	values = map[string][]byte{}
	for key, value := range db.ledgers[name] {
		values[key] = bytes.Clone(value)
	}
	return values, ctx.Err()
}

// SetLedger changes values of a name; nil deletes a value.
func (db *DB) SetLedger(ctx context.Context, name string, changes map[string][]byte) error {
	return db.setLedger(ctx, name, changes, false)
}

// ReplaceLedger replaces all values of a name.
func (db *DB) ReplaceLedger(ctx context.Context, name string, changes map[string][]byte) error {
	return db.setLedger(ctx, name, changes, true)
}

// LedgerLosses returns 0: nothing is lost before Close.
func (db *DB) LedgerLosses() uint64 { return 0 }

// noteConsumerLocked begins the logs of all scopes if a ledger is that of a consumer of
// package durable: it goes on from a place in them. db.mu is held.
func (db *DB) noteConsumerLocked(name string) {
	if db.logs || !strings.HasPrefix(name, "consumer/") {
		return
	}
	db.logs = true
	for _, k := range db.scopes {
		beginLog(k.current().recent)
	}
}

// beginLog makes a log keep what is noted from now on, as if somebody followed it.
func beginLog(r *store.Recent) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range r.Follow(ended, store.Place{}, nil) {
		_ = err // the end of the context, at last
	}
}

func (db *DB) setLedger(ctx context.Context, name string, changes map[string][]byte, replace bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if name == "" {
		return errors.New("a ledger needs a name")
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed.Load() {
		return store.ErrClosed
	}
	values := map[string][]byte{}
	if !replace {
		maps.Copy(values, db.ledgers[name])
	}
	for key, value := range changes {
		if value == nil {
			delete(values, key)
		} else {
			values[key] = bytes.Clone(value)
		}
	}
	db.ledgers[name] = values
	return nil
}
