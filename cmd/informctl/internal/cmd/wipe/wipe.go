// Package wipe is the command that drops what a file holds, so that it is listed again.
package wipe

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "wipe [RESOURCE]",
		Short: "Drop what a file holds, so that it is listed again",
		Long: cmdutil.Describe(`Drop what a file holds of a resource, or all of it, so that it is listed again.

For a file that is whole and yet wrong, as after etcd was restored: see informctl audit.
It asks nothing, and prints what it has dropped. All of it goes at once or nothing.
A RESOURCE of several clusters needs --of-cluster.

No other process may hold the file: end it first. A program of your own can be started
again with another bolt.Options.Epoch instead, and drops all then.

The file does not shrink, and what was in it is not overwritten: informctl compact
leaves that behind.`),
		Example: `  informctl wipe pods --db informers.db
  informctl wipe && informctl compact`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cmdutil.Usagef(cmd, "wipe takes at most one RESOURCE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			resource := ""
			if len(args) > 0 {
				resource = args[0]
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return run(ctx, e, file, resource)
		},
	}
	file.Add(e, cmd)
	file.AddCluster(cmd)
	return cmd
}

func run(ctx context.Context, e cmdutil.Env, file source.FileFlags, resource string) error {
	cluster, err := source.Wipeable(ctx, e, file, resource)
	if err != nil {
		return source.InUse(file.Path, err, orAnEpoch)
	}
	db, err := source.OpenToWrite(file.Path, nil)
	if err != nil {
		return source.InUse(file.Path, source.OpenError(file.Path, err), orAnEpoch)
	}
	// Wipe has written all changes, so an error of Close does not matter.
	defer func() { _ = db.Close() }()
	var which func(store.Scope) bool
	if resource != "" || cluster != "" {
		which = func(s store.Scope) bool {
			return (resource == "" || resources.Is(s, resource)) && (cluster == "" || source.ClusterOf(store.Info{Scope: s}) == cluster)
		}
	}
	dropped, err := db.Wipe(which)
	if err != nil {
		return fmt.Errorf("wipe %s: %w", file.Path, err)
	}
	if len(dropped) == 0 {
		e.Note("%s holds nothing", file.Path)
	}
	return e.Output(func(w io.Writer) error {
		for _, info := range dropped {
			if _, err := fmt.Fprintf(w, "%s: dropped %d objects, %d bytes\n", info.Scope, info.Objects, info.Bytes); err != nil {
				return err
			}
		}
		return nil
	})
}

// orAnEpoch is the other way to drop all that a file holds.
const orAnEpoch = ", or start a program of your own again with another bolt.Options.Epoch"
