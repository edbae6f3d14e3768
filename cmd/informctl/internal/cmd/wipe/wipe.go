// Package wipe is the command that drops what a file holds, so that it is listed again.
package wipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "wipe [RESOURCE]",
		Short: "Drop what a file holds, so that it is listed again",
		Long: cmdutil.Describe(`Drop what a file holds of a resource, or all of it, so that it is listed again.

For a file that is whole and yet wrong, as after etcd was restored: see informctl audit.
It asks before, which --yes leaves out and has to where there is no terminal, and
prints what it has dropped. All of it goes at once or nothing.
A RESOURCE of several clusters needs --of-cluster. With the last of what a file holds go
its durable consumers, too: see informctl consumers.

No other process may hold the file: end it first. A program of your own can be started
again with another bolt.Options.Epoch instead, and drops all then.

The file does not shrink, and what was in it is not overwritten: informctl compact
leaves that behind.`),
		Example: `  informctl wipe pods --db informers.db --yes
  informctl wipe --yes && informctl compact`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.AtMostOneResource(cmd, args); err != nil {
				return err
			}
			if !yes && !e.CanAsk() {
				return cmdutil.Usagef(cmd, "wipe needs --yes where there is no terminal to ask on")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			resource := ""
			if len(args) > 0 {
				resource = args[0]
			}
			return run(cmd.Context(), e, file, resource, yes)
		},
	}
	file.Add(e, cmd)
	file.AddCluster(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask.")
	return cmd
}

func run(ctx context.Context, e cmdutil.Env, file source.FileFlags, resource string, yes bool) error {
	what, err := source.Wipeable(ctx, e, file, resource)
	if err != nil {
		return source.InUse(file.Path, err, orAnEpoch)
	}
	if len(what.Infos)+len(what.Consumers) > 0 && !yes && !e.Confirm(question(what, file.Path)) {
		return errors.New("nothing was dropped")
	}
	_, stop := cmdutil.Interruptible(ctx) // a signal does not end the process meanwhile
	defer stop()
	db, err := source.OpenToWrite(file.Path, nil)
	if err != nil {
		return source.InUse(file.Path, source.OpenError(file.Path, err), orAnEpoch)
	}
	// Wipe has written all changes, so an error of Close does not matter.
	defer func() { _ = db.Close() }()
	var which func(store.Scope) bool
	if resource != "" || what.Cluster != "" {
		which = func(s store.Scope) bool {
			return slices.ContainsFunc(what.Infos, func(i store.Info) bool { return i.ID == s.ID() })
		}
	}
	dropped, err := db.Wipe(which)
	if err != nil {
		return fmt.Errorf("wipe %s: %w", file.Path, err)
	}
	if len(dropped)+len(what.Consumers) == 0 {
		e.Note("%s holds nothing", file.Path)
	}
	return e.Output(func(w io.Writer) error {
		for _, info := range dropped {
			if _, err := fmt.Fprintf(w, "%s: dropped %d objects, %d bytes\n", info.Scope, info.Objects, info.Bytes); err != nil {
				return err
			}
		}
		for _, c := range what.Consumers {
			if _, err := fmt.Fprintf(w, "consumer %s: forgotten, its handlers receive everything at the next start\n", c.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

// question asks whether all of this is to be dropped.
func question(what source.Wiped, path string) string {
	var parts []string
	if len(what.Infos) > 0 {
		objects, scopes := 0, make([]store.Scope, len(what.Infos))
		for i, info := range what.Infos {
			objects += info.Objects
			scopes[i] = info.Scope
		}
		parts = append(parts, fmt.Sprintf("%d objects of %s", objects, resources.Name(scopes)))
	}
	if n := len(what.Consumers); n > 0 {
		parts = append(parts, fmt.Sprintf("what %d consumers have left to do", n))
	}
	return fmt.Sprintf("Drop %s in %s?", strings.Join(parts, " and "), path)
}

// orAnEpoch is the other way to drop all that a file holds.
const orAnEpoch = ", or start a program of your own again with another bolt.Options.Epoch"
