// Package consumers is the command that prints the durable consumers of a file, and makes
// one begin anew.
package consumers

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
)

// options are the options of consumers.
type options struct {
	env      cmdutil.Env
	database source.FileFlags
	table    printer.TableFlags
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e}
	cmd := &cobra.Command{
		Use:   "consumers",
		Short: "Print the durable consumers of a file and what is left for them to do",
		Long: cmdutil.Describe(`Print the durable consumers of a file and what is left for them to do.

A consumer is what a controller remembers: for each scope the resource version up to
which its handlers have received what was changed, and the keys of its queue. WAITING
keys are to be worked on at once, which includes those in work; DELAYED ones later;
FAILED ones have failed and are tried again; UNRESOLVED ones have ended without success
and run after the next start.

The process that holds the file is asked through its socket. STATE is then standby
until it is elected, active, or deposed when another process has taken it over. MISSING
handlers were there before and keep the place where it is; BEHIND is how many commits
of the log are after it. Without a process, it prints what was last written.`),
		Example: `  informctl consumers --db informers.db
  informctl consumers -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cmdutil.Usagef(cmd, "consumers takes no arguments; informctl consumers reset NAME makes one begin anew")
			}
			return o.table.Check(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return runConsumers(ctx, o)
		},
	}
	o.database.Add(o.env, cmd)
	o.table.Add(cmd)
	cmd.AddCommand(newResetCommand(e))
	return cmd
}

func runConsumers(ctx context.Context, o *options) error {
	db, err := o.database.Open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	found, damage := db.Consumers(ctx)
	if damage != nil && !errors.Is(damage, store.ErrCorrupt) {
		return damage
	}
	if len(found) == 0 && damage == nil {
		o.env.Note("%s has no consumers", o.database.Path)
	}
	printed := o.env.Output(func(w io.Writer) error {
		if len(found) == 0 && o.table.Format != "json" {
			return nil
		}
		return printer.Consumers(w, o.table, found)
	})
	for _, note := range sharedErrors(found) {
		o.env.Note("%s", note)
	}
	return cmdutil.Found(damage, printed)
}

// sharedErrors names the consumers that cannot share what they have reconciled, and why.
func sharedErrors(found []durable.Status) (notes []string) {
	for _, c := range found {
		if c.SharedError != "" {
			notes = append(notes, fmt.Sprintf("what consumer %s shares with a successor could not be read or written: %s", c.Name, c.SharedError))
		}
	}
	return notes
}

func newResetCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "reset NAME",
		Short: "Make a consumer begin anew",
		Long: cmdutil.Describe(`Make a consumer begin anew: its place and its queue are forgotten, and its handlers
receive every object at the next start, as new.

No other process may hold the file: end it first.`),
		Example: `  informctl consumers reset widgets --db informers.db`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return cmdutil.Usagef(cmd, "reset takes one NAME; informctl consumers prints them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return runReset(ctx, e, file, args[0])
		},
	}
	file.AddPath(e, cmd)
	return cmd
}

func runReset(ctx context.Context, e cmdutil.Env, file source.FileFlags, name string) error {
	if _, err := source.Wipeable(ctx, e, file, ""); err != nil {
		return source.InUse(file.Path, err, "")
	}
	db, err := source.OpenToWrite(file.Path, nil)
	if err != nil {
		return source.InUse(file.Path, source.OpenError(file.Path, err), "")
	}
	defer func() { _ = db.Close() }() // Reset has written all
	if err := durable.Reset(ctx, db, name); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s has no consumer %q; informctl consumers prints those that it has", file.Path, name)
		}
		return err
	}
	return e.Output(func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s: forgotten, its handlers receive everything at the next start\n", name)
		return err
	})
}
