// Package watch is the command that prints the changes that the process which keeps a
// file receives.
package watch

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/show"
	"github.com/informctl/informctl/store"
)

// options are the options of watch.
type options struct {
	changes show.Changes
	text    selection.SieveFlags
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{changes: show.Changes{Selection: selection.Options{Env: e}}}
	cmd := &cobra.Command{
		Use:   "watch [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Short: "Print the changes that the process which keeps a file receives",
		Long: cmdutil.Describe(`Print the changes that the process which keeps a file receives, from now on, each at
once, until interrupted, which ends it with 0.

ADDED, MODIFIED or DELETED is the first column, or in JSON and YAML the type of the
object; a template is applied to each object. The other columns of a table are those of
the resource; those of several resources are name and age. An object that several scopes hold is
told of by each. It is an error if the process ends, if it stops following one of the
resources, as one whose definition is deleted, or if the output is taken so slowly that
more than 1024 changes wait. One that it begins to follow later is not among them.

With -l, --field-selector or --where, an object that begins to match is ADDED, and one
that no longer does is DELETED, in its last state that did. In --where, now() is the
moment at which the command began.

With --since-rv, what came after that resource version is printed first, from the log
of the file, which outlives restarts: each change is printed, some that you may have
seen too, and what follows is printed when it is written, up to a second later. It is
an error if the log does not reach back to there, or if RESOURCE is several resources,
or of several clusters: their versions do not compare.`),
		Example: `  informctl watch pods -n default --initial
  informctl watch pods -l app=web --since-rv 48213
  informctl watch pods,nodes --where 'object.status.phase == "Failed"'
  informctl watch pods -o custom-columns=NAME:.metadata.name,PHASE:.status.phase`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.completeWatch(cmd, args); err != nil {
				return err
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			err := o.changes.Run(ctx)
			if errors.Is(err, store.ErrTrimmed) || errors.Is(err, store.ErrLineage) {
				return fmt.Errorf("%w; --initial begins with what is there", err)
			}
			return err
		},
	}
	o.changes.Selection.Database.AddPath(o.changes.Selection.Env, cmd)
	o.changes.Selection.Format.AddForms(cmd)
	o.changes.Selection.AddSelectionFlags(cmd)
	flags := cmd.Flags()
	o.text.AddConditions(flags)
	flags.BoolVar(&o.changes.Initial, "initial", false, "What is there already first, as ADDED.")
	flags.StringVar(&o.changes.Since, "since-rv", "", "What came after this resource version first; needs RESOURCE.")
	complete.Objects(&o.changes.Selection, cmd, printer.ObjectFormats...)
	return cmd
}

func (o *options) completeWatch(cmd *cobra.Command, args []string) error {
	if err := o.changes.Selection.Complete(cmd, args); err != nil {
		return err
	}
	if err := o.changes.Selection.Sieve.Complete(cmd, &o.text, &o.changes.Selection.Filter, o.changes.Selection.Env.Now()); err != nil {
		return err
	}
	return o.completeSince(cmd)
}

// completeSince checks --since-rv. Resource versions of different resources cannot be
// compared.
func (o *options) completeSince(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("since-rv") {
		return nil
	}
	_, err := resourceversion.CompareResourceVersion(o.changes.Since, o.changes.Since)
	switch {
	case err != nil:
		return cmdutil.Usagef(cmd, "--since-rv %q is no resource version, which is a number from 1 on", o.changes.Since)
	case o.changes.Selection.Wanted[0].Resource == "":
		return cmdutil.Usagef(cmd, "--since-rv needs RESOURCE")
	case o.changes.Initial:
		return cmdutil.Usagef(cmd, "--since-rv and --initial do not go together")
	}
	return nil
}
