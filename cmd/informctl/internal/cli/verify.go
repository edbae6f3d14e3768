package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

func newVerifyCommand(e cmdutil.Env) *cobra.Command {
	var file databaseFlag
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every page, record, index and log of a file",
		Long: cmdutil.Describe(`Check every page, record, index and log of a file, and that every object decodes.

One line for each scope says what it has or what is wrong with it. What is encrypted
is read with its key only; that it adds up is seen without. The file is not changed;
informctl run sets a damaged one aside and lists again. It does not if only a log is
damaged, or what a consumer remembers: then the objects are whole, and history is not. Of a file that a live process
holds a copy is checked, as snapshot makes it, which is removed afterwards.`),
		Example: `  informctl verify --db informers.db
  informctl verify --db informers.db && echo whole`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return runVerify(ctx, e, file)
		},
	}
	file.add(e, cmd)
	return cmd
}

func runVerify(ctx context.Context, e cmdutil.Env, file databaseFlag) error {
	db, err := file.openWhole(ctx, e, true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if len(db.scopes) == 0 {
		e.Note("%s holds nothing", db.path)
	}
	var damage *store.CorruptionError
	damaged, where := 0, cmdutil.BesideObjects
	var parts []string
	line := func(w io.Writer, name string, damage *store.CorruptionError) error {
		if !cmdutil.IsBesideObjects(damage) {
			where = "contents"
		}
		_, err := fmt.Fprintf(w, "%s: damaged: %v\n", name, damage.Err)
		return err
	}
	err = e.Output(func(w io.Writer) error {
		for _, part := range []struct {
			name string
			err  error
		}{{"pages", verifyPages(ctx, db)}, {"ledgers", verifyLedgers(ctx, db)}} {
			err := part.err
			if errors.As(err, &damage) {
				parts = append(parts, part.name)
				err = line(w, part.name, damage)
			}
			if err != nil {
				return err
			}
		}
		return db.verify(ctx, e, func(info store.Info, err error) error {
			text := fmt.Sprintf("%s: whole: %d objects, %d indexes", info.Scope, info.Objects, len(info.Indexes))
			switch {
			case errors.Is(err, store.ErrNoKey):
				text = fmt.Sprintf("%s: adds up: %d objects, encrypted, not read without the key", info.Scope, info.Objects)
			case errors.As(err, &damage):
				damaged++
				return line(w, info.Scope.String(), damage)
			case err != nil:
				return err
			case !info.Complete:
				text = fmt.Sprintf("%s: whole: first list not complete", info.Scope)
			}
			_, err = fmt.Fprintln(w, text)
			return err
		})
	})
	if damaged > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d scopes", damaged, len(db.scopes)))
	}
	if err == nil && len(parts) > 0 {
		err = &store.CorruptionError{Path: db.path, Where: where, Err: errors.New(strings.Join(parts, ", "))}
	}
	return db.named(err)
}

// verify checks every scope and calls report for each, with a *store.CorruptionError if
// the scope is damaged. It ends with the first error of report.
func (d *database) verify(ctx context.Context, e cmdutil.Env, report func(store.Info, error) error) error {
	total := 0
	for _, info := range d.scopes {
		total += info.Objects
	}
	m := e.NewMeter("checking", "objects", total)
	defer m.Stop()
	done := 0
	for _, info := range d.scopes {
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

// whole returns the error of the first damaged part. It does not decrypt scopes without a
// key and does not count them as damaged.
func (d *database) whole(ctx context.Context, e cmdutil.Env) error {
	if err := verifyLedgers(ctx, d); err != nil {
		return err
	}
	return sound(ctx, e, d, func(error) bool { return true })
}

// writable returns an error if a process that opens the file for writing would set it
// aside.
func (d *database) writable(ctx context.Context, e cmdutil.Env) error {
	return sound(ctx, e, d, func(err error) bool {
		var damage *store.CorruptionError
		return !errors.As(err, &damage) || !cmdutil.IsBesideObjects(damage)
	})
}

func sound(ctx context.Context, e cmdutil.Env, d *database, counts func(error) bool) error {
	if err := verifyPages(ctx, d); err != nil {
		return err
	}
	return d.verify(ctx, e, func(_ store.Info, err error) error {
		if err == nil || errors.Is(err, store.ErrNoKey) || !counts(err) {
			return nil
		}
		return err
	})
}

// verifyPages checks the pages of a file.
func verifyPages(ctx context.Context, d *database) error {
	return cmdutil.UnlessInterrupted(ctx, d.file.VerifyPages(ctx))
}

// verifyLedgers checks what consumers remember in a file.
func verifyLedgers(ctx context.Context, d *database) error {
	return cmdutil.UnlessInterrupted(ctx, d.file.VerifyLedgers(ctx))
}

// verifyScope checks the objects, the indexes and the log of a scope.
func verifyScope(ctx context.Context, d *database, info store.Info, checked func(int)) error {
	err := verifyObjects(ctx, d, info, checked)
	if err == nil || errors.Is(err, store.ErrNoKey) {
		err = cmp.Or(d.file.VerifyLog(info.ID), err)
	}
	return err
}

func verifyObjects(ctx context.Context, d *database, info store.Info, checked func(int)) error {
	s, err := d.file.Open(info.Scope, store.Options{})
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
		entries, err := s.Select(store.Query{After: after, Limit: chunk})
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
		if len(entries) < chunk {
			return nil
		}
		after = entries[len(entries)-1].Key
	}
}
