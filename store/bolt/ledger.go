package bolt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// ledgerValue is one value of a ledger. It names its place, so that a value that a
// damaged page shows elsewhere is not taken for another one.
type ledgerValue struct {
	Name  string `msgpack:"name"`
	Key   string `msgpack:"key"`
	Value []byte `msgpack:"value"`
}

var _ store.Ledger = (*DB)(nil)

// Ledger implements store.Ledger. If the file could not be opened again after a write
// that failed, it tries that once more. The error is then no store.ErrCorrupt: nothing is
// known to be damaged.
func (d *DB) Ledger(ctx context.Context, name string) (values map[string][]byte, err error) {
	values, err = d.readLedger(ctx, name)
	if errors.Is(err, boltfile.ErrNoHandle) {
		retryErr := d.file.Retry()
		if values, err = d.readLedger(ctx, name); errors.Is(err, boltfile.ErrNoHandle) {
			err = fmt.Errorf("ledger %q: %w: %v", name, boltfile.ErrNoHandle, retryErr) //nolint:errorlint // its damage is not known
		}
	}
	return values, err
}

func (d *DB) readLedger(ctx context.Context, name string) (values map[string][]byte, err error) {
	values = map[string][]byte{}
	if d.Suspended() != nil {
		return values, nil
	}
	var damaged error
	err = d.view("ledger", func(tx *bbolt.Tx) error {
		clear(values)
		damaged = nil
		b := tx.Bucket(layout.Meta).Bucket(layout.Ledger)
		if b == nil || name == "" {
			return nil
		}
		if b = b.Bucket([]byte(name)); b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			var found ledgerValue
			err := record.Unmarshal(v, &found)
			if err == nil && (found.Name != name || record.FileKey(found.Key) != string(k)) {
				err = errors.New("it is the value of another key")
			}
			if err != nil {
				damaged = d.corrupt(fmt.Sprintf("ledger %q", name), err)
				return ctx.Err()
			}
			values[found.Key] = found.Value
			return ctx.Err()
		})
	})
	return values, errors.Join(err, damaged)
}

// VerifyLedgers checks every value of every ledger. Open does not check them, since the
// objects do not depend on them. The error is a *store.CorruptionError.
func (d *DB) VerifyLedgers(ctx context.Context) error {
	var names []string
	err := d.view("ledgers", func(tx *bbolt.Tx) error {
		all := tx.Bucket(layout.Meta).Bucket(layout.Ledger)
		if all == nil {
			return nil
		}
		return all.ForEach(func(name, _ []byte) error {
			if all.Bucket(name) == nil {
				return d.corrupt(fmt.Sprintf("ledger %q", name), errors.New("no bucket"))
			}
			names = append(names, string(name))
			return nil
		})
	})
	for _, name := range names {
		if _, ledgerErr := d.Ledger(ctx, name); err == nil {
			err = ledgerErr
		}
	}
	return err
}

// SetLedger implements store.Ledger.
func (d *DB) SetLedger(ctx context.Context, name string, changes map[string][]byte) error {
	if len(changes) > 0 || name == "" {
		return d.setLedger(ctx, name, changes, false)
	}
	if d.readOnly {
		return store.ErrReadOnly
	}
	if err := d.file.Usable(); err != nil {
		return err
	}
	return ctx.Err()
}

// ReplaceLedger implements store.Ledger.
func (d *DB) ReplaceLedger(ctx context.Context, name string, changes map[string][]byte) error {
	return d.setLedger(ctx, name, changes, true)
}

// LedgerLosses implements store.Ledger.
func (d *DB) LedgerLosses() uint64 { return d.ledgerLosses.Load() }

func (d *DB) setLedger(ctx context.Context, name string, changes map[string][]byte, replace bool) error {
	if name == "" {
		return errors.New("a ledger needs a name")
	}
	return d.file.Update(ctx, "ledger", func(tx *bbolt.Tx) error {
		all, err := tx.Bucket(layout.Meta).CreateBucketIfNotExists(layout.Ledger)
		if err != nil {
			return err
		}
		if replace && all.Bucket([]byte(name)) != nil {
			if err := all.DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		b, err := all.CreateBucketIfNotExists([]byte(name))
		if err != nil {
			return err
		}
		// In order, a key goes to the end of a page. In another order bbolt moves all
		// that come after it, which takes 14 s for 100,000.
		for _, key := range slices.Sorted(maps.Keys(changes)) {
			value, fileKey := changes[key], []byte(record.FileKey(key))
			if value == nil {
				err = b.Delete(fileKey)
			} else if value, err = record.Marshal(ledgerValue{name, key, value}); err == nil {
				err = b.Put(fileKey, value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
