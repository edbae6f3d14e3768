// Package restore is the command that prints an object as it was, to be created again.
package restore

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// options are the options of restore.
type options struct {
	selection selection.Options
	status    bool
	output    string
}

var formats = []string{"yaml", "json"}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{selection: selection.Options{Env: e}}
	cmd := &cobra.Command{
		Use:   "restore {RESOURCE NAME | RESOURCE/NAME}",
		Short: "Print a deleted or changed object as it was, to be created again",
		Long: cmdutil.Describe(`Print a deleted or changed object as it was, to be created again.

Without --at it is the last state of an object that was deleted, from the log of the
file; with --at it is the state at that moment, whether the object is there or not.
The log has an hour by default, deletions longer, and informctl run --history keeps
more. No server is asked or changed: pipe what is printed to kubectl apply -f -, or to
kubectl create -f -, which changes nothing that is there.

Fields that the server sets are left out: resourceVersion, uid, creationTimestamp,
generation, managedFields, selfLink, what a deletion sets, the selector that a Job has
of its UID, the ephemeral containers of a Pod, the annotations of a claim that is bound,
and status without --status.
ownerReferences stay, and name owners by their UIDs. An owner that was created again has
another UID; the server deletes an object whose owners are all gone, so write the new
UID, or remove the reference.

A Secret is printed with --show-secrets only: without its values it is of no use.`),
		Example: `  informctl restore deployments web -n default
  informctl restore deployments/web -n default --at 10:02 > web.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd, args); err != nil {
				return err
			}
			return o.run(cmd.Context())
		},
	}
	o.selection.Database.Add(e, cmd)
	o.selection.AddNamespaceFlag(cmd)
	o.selection.AddMomentFlag(cmd)
	o.selection.Database.AddCluster(cmd)
	selection.AddSecretsFlag(cmd, &o.selection.ShowSecrets)
	cmd.Flags().BoolVar(&o.status, "status", false, "The status, too.")
	cmd.Flags().StringVarP(&o.output, "output", "o", formats[0], "How to print, one of: "+strings.Join(formats, ", ")+".")
	complete.Objects(&o.selection, cmd, formats...)
	return cmd
}

func (o *options) complete(cmd *cobra.Command, args []string) error {
	if !slices.Contains(formats, o.output) {
		return cmdutil.Usagef(cmd, "unknown output format %q; there are %s", o.output, strings.Join(formats, ", "))
	}
	if err := o.selection.CompleteSelection(cmd, args); err != nil {
		return err
	}
	if len(o.selection.Wanted) != 1 || len(o.selection.Wanted[0].Names) != 1 {
		return cmdutil.Usagef(cmd, "restore takes one RESOURCE NAME or RESOURCE/NAME")
	}
	o.selection.Whole = true
	return o.selection.CompleteAt(cmd, "at")
}

func (o *options) run(ctx context.Context) error {
	db, err := o.selection.OpenAt(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	db.WithGone = true
	chosen, err := o.selection.Choose(db)
	if err != nil {
		return err
	}
	if len(chosen.Items) == 0 && len(chosen.Unread.Errs) > 0 {
		return o.selection.Env.Incomplete(chosen.Unread.Lines())
	}
	if err := source.OneCluster(db.Path, source.InfosOf(chosen.Views)); err != nil {
		return err
	}
	find := o.deleted
	if !o.selection.At.IsZero() {
		find = o.then
	}
	found, err := find(ctx, &chosen)
	if err != nil {
		return err
	}
	obj, err := o.manifest(found)
	if err != nil {
		return err
	}
	p, err := genericclioptions.NewJSONYamlPrintFlags().ToPrinter(o.output)
	if err != nil {
		return err
	}
	if err := o.selection.Env.Output(func(w io.Writer) error { return p.PrintObj(obj, w) }); err != nil {
		return err
	}
	o.selection.Env.NoteNewer(db.ServerVersion(ctx), source.CountTyped([]source.Item{found.Item}))
	if o.selection.At.IsZero() {
		return nil
	}
	return db.NoteAge(ctx, o.selection.Env, []*source.View{found.View}, o.selection.At)
}
