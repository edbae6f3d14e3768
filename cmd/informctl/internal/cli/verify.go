package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store"
)

func newVerifyCommand(e env) *cobra.Command {
	var file databaseFlag
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check every page, record and index of a file",
		Long: describe(`Check every page, record and index of a file, and that every object decodes.

One line for each scope says what it has or what is wrong with it. What is encrypted
is read with its key only; that it adds up is seen without. The file is not changed;
informctl run sets a damaged one aside and lists again. Of a file that a live process
holds a copy is checked, as snapshot makes it, which is removed afterwards.`),
		Example: `  informctl verify --db informers.db
  informctl verify --db informers.db && echo whole`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return runVerify(ctx, e, file)
		},
	}
	file.add(e, cmd)
	return cmd
}

func runVerify(ctx context.Context, e env, file databaseFlag) error {
	db, err := file.openWhole(ctx, e, true)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if len(db.scopes) == 0 {
		e.note("%s holds nothing", db.path)
	}
	var damage *store.CorruptionError
	damaged := 0
	err = e.output(func(w io.Writer) error {
		return db.verify(ctx, e, func(info store.Info, err error) error {
			line := fmt.Sprintf("%s: whole: %d objects, %d indexes", info.Scope, info.Objects, len(info.Indexes))
			switch {
			case errors.Is(err, store.ErrNoKey):
				line = fmt.Sprintf("%s: adds up: %d objects, encrypted, not read without the key", info.Scope, info.Objects)
			case errors.As(err, &damage):
				damaged++
				line = fmt.Sprintf("%s: damaged: %v", info.Scope, damage.Err)
			case err != nil:
				return err
			case !info.Complete:
				line = fmt.Sprintf("%s: whole: first list not complete", info.Scope)
			}
			_, err = fmt.Fprintln(w, line)
			return err
		})
	})
	if err == nil && damaged > 0 {
		err = &store.CorruptionError{Path: db.path, Where: "contents", Err: fmt.Errorf("%d of %d scopes", damaged, len(db.scopes))}
	}
	return db.named(err)
}

// verify checks every scope and calls report for each, with a *store.CorruptionError if
// the scope is damaged. It ends with the first error of report.
func (d *database) verify(ctx context.Context, e env, report func(store.Info, error) error) error {
	total := 0
	for _, info := range d.scopes {
		total += info.Objects
	}
	m := e.newMeter("checking", "objects", total)
	defer m.stop()
	done := 0
	for _, info := range d.scopes {
		err := d.verifyScope(ctx, info, func(n int) { done += n; m.set(done) })
		if ctx.Err() != nil {
			return errInterrupted
		}
		m.stop()
		if err := report(info, err); err != nil {
			return err
		}
	}
	return nil
}

// whole returns the error of the first damaged scope. It does not decrypt scopes without
// a key and does not count them as damaged.
func (d *database) whole(ctx context.Context, e env) error {
	return d.verify(ctx, e, func(_ store.Info, err error) error {
		if errors.Is(err, store.ErrNoKey) {
			return nil
		}
		return err
	})
}

func (d *database) verifyScope(ctx context.Context, info store.Info, checked func(int)) error {
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

func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.Flags().Lookup("db") != nil:
		return usagef(cmd, "%s takes no arguments; --db names the file", cmd.Name())
	}
	return usagef(cmd, "%s takes no arguments", cmd.Name())
}
