// Package dump is the command that prints all objects of a file, or those of a resource.
package dump

import (
	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/show"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &selection.Options{Env: e}
	cmd := &cobra.Command{
		Use:   "dump [RESOURCE[,RESOURCE...]]",
		Short: "Print all objects of a file, or those of a resource",
		Long: cmdutil.Describe(`Print all objects of a file, or those of a resource.

The order is by resource, namespace and name. Each resource has a table with kubectl's
columns; custom resources have theirs if the file holds customresourcedefinitions. JSON and YAML are a List that
kubectl apply takes, whatever the number of objects; JSONPath is applied to it.
The file is not changed. One that a live process holds is read through that process,
which goes on meanwhile: then this is no snapshot, and what is gone is left out. What
there is no key for, or no state at the moment of --at, is an error, which ends it with 1
when all else has been printed.
With --at, ages count from that moment.
How old the objects are is said on standard error, unless a process follows them.`),
		Example: `  informctl dump --db informers.db
  informctl dump deployments.apps -n default -o yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cmdutil.Usagef(cmd, "dump takes one argument, RESOURCE[,RESOURCE...]; informctl query RESOURCE NAME finds an object")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(cmd, args); err != nil {
				return err
			}
			if err := o.CompleteAt(cmd, "at"); err != nil {
				return err
			}
			return show.Objects(cmd.Context(), o)
		},
	}
	o.AddFlags(cmd)
	o.AddAtFlag(cmd)
	complete.Objects(o, cmd, printer.ObjectFormats...)
	return cmd
}
