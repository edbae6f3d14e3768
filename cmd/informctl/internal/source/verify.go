package source

import (
	"cmp"
	"context"
	"errors"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

// Checked reads the whole file and returns its scopes.
func Checked(ctx context.Context, e cmdutil.Env, path string, keys codec.KeyProvider) ([]store.Info, error) {
	db, err := OpenDatabase(path, keys, true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	return db.Scopes, db.Whole(ctx, e)
}

// Verify checks every scope and calls report for each, with a *store.CorruptionError if
// the scope is damaged. It ends with the first error of report.
func (d *Database) Verify(ctx context.Context, e cmdutil.Env, report func(store.Info, error) error) error {
	total := 0
	for _, info := range d.Scopes {
		total += info.Objects
	}
	m := e.NewMeter("checking", "objects", total)
	defer m.Stop()
	done := 0
	for _, info := range d.Scopes {
		err := verifyScope(ctx, d, info, func(n int) { done += n; m.Set(done) })
		if ctx.Err() != nil {
			return cmdutil.ErrInterrupted
		}
		m.Stop()
		if err := report(info, err); err != nil {
			return err
		}
	}
	return nil
}

// Whole returns the error of the first damaged part. It does not decrypt scopes without a
// key and does not count them as damaged, nor objects whose Go type is not here.
func (d *Database) Whole(ctx context.Context, e cmdutil.Env) error {
	if err := VerifyLedgers(ctx, d); err != nil {
		return err
	}
	return sound(ctx, e, d, func(error) bool { return true })
}

// Writable returns an error if a process that opens the file for writing would set it
// aside.
func (d *Database) Writable(ctx context.Context, e cmdutil.Env) error {
	return sound(ctx, e, d, func(err error) bool {
		var damage *store.CorruptionError
		return !errors.As(err, &damage) || !cmdutil.IsBesideObjects(damage)
	})
}

func sound(ctx context.Context, e cmdutil.Env, d *Database, counts func(error) bool) error {
	if err := VerifyPages(ctx, d); err != nil {
		return err
	}
	return d.Verify(ctx, e, func(_ store.Info, err error) error {
		if err == nil || IsUnreadable(err) || !counts(err) {
			return nil
		}
		return err
	})
}

// VerifyPages checks the pages of a file.
func VerifyPages(ctx context.Context, d *Database) error {
	return cmdutil.UnlessInterrupted(ctx, d.File.VerifyPages(ctx))
}

// VerifyLedgers checks what consumers remember in a file.
func VerifyLedgers(ctx context.Context, d *Database) error {
	return cmdutil.UnlessInterrupted(ctx, d.File.VerifyLedgers(ctx))
}

// verifyScope checks the objects, the indexes and the log of a scope.
func verifyScope(ctx context.Context, d *Database, info store.Info, checked func(int)) error {
	err := verifyObjects(ctx, d, info, checked)
	if err == nil || IsUnreadable(err) {
		err = cmp.Or(d.File.VerifyLog(info.ID), err)
	}
	return err
}

func verifyObjects(ctx context.Context, d *Database, info store.Info, checked func(int)) error {
	s, err := d.File.Open(info.Scope, store.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	// A query that may return fewer objects than exist makes the store check every entry
	// and checksum.
	if _, err = s.Select(store.Query{Limit: 1}); err != nil && (info.Complete || errors.Is(err, store.ErrCorrupt)) {
		return err
	}
	if !info.Complete {
		return nil // the objects of an incomplete scope are neither served nor readable
	}
	for after := ""; ; {
		entries, err := s.Select(store.Query{After: after, Limit: ChunkSize})
		if err != nil || ctx.Err() != nil {
			return err
		}
		err = parallel.Do(len(entries), func(i int) error {
			_, err := s.Decode(entries[i])
			return err
		})
		if err != nil {
			return err
		}
		checked(len(entries))
		if len(entries) < ChunkSize {
			return nil
		}
		after = entries[len(entries)-1].Key
	}
}
