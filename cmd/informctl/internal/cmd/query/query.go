// Package query is the command that prints the objects that indexes, labels, fields,
// expressions or names select.
package query

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/complete"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/resources"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/show"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &selection.Options{Env: e}
	var text selection.SieveFlags
	var watch, watchOnly bool
	cmd := &cobra.Command{
		Use:     "query [RESOURCE[,RESOURCE...] [NAME...] | RESOURCE/NAME...]",
		Aliases: []string{"get"}, // as kubectl has it
		Short:   "Print the objects that indexes, labels, fields, expressions or names select",
		Long: cmdutil.Describe(`Print the objects that indexes, labels, fields, expressions or names select.

All conditions must hold. Where an index fits -n, -l or --field-selector it is used;
--index asks for one by name, and indexes lists them. --field-selector takes any
field, found by its JSONPath; a list matches if one of its values does, and a missing
field is equal to nothing, as in "spec.nodeName=". A field that no object has is noted.
An object that the path of a flag does not fit, or where it finds an object or a list,
counts as one without the field, which is noted; if that is so for all, it is an error.
The field labels of the API server mean what they mean there: source of events,
status.successful of jobs, and bools and numbers that are absent.

--where is an expression in CEL of the variable object, with the functions that
Kubernetes has in admission, such as quantity, ip, cidr, semver, url and find:

  object.status.phase == "Running" && object.spec.containers.size() > 1
  object.spec.containers.exists(c, c.image.endsWith(":latest"))
  has(object.spec.priority) && object.spec.priority > 0
  object.status.phase == "Pending" &&
    now() - timestamp(object.metadata.creationTimestamp) > duration("10m")

now() is the moment at which the command began, the same for all objects. duration()
takes days and weeks, too: duration("7d"), duration("2w").

An object that lacks a field does not match, and neither does one that the expression
has no answer for otherwise. It is an error if that is so for all objects, unless
what they lack is a field, and if the expression takes more steps for an object than
Kubernetes allows: then the search ends at that object.

--sort-by sorts numbers and quantities by their size, and objects without the field come
first; --descending turns that round, so that --limit keeps the largest.

--group-by prints groups instead of objects, the largest first. --sum, --max, --min and
--avg calculate of each group, or of all objects, and the first of them says which group
is the largest. They read numbers and quantities, as 500m and 1Gi; an object without the
field adds nothing, and one with several values, as in containers[*], adds each. A value
that is neither adds nothing, and is an error if there is no other. All results of a
column have one unit, with up to three decimals: as in kubectl top Mi, if a value is in
Ki, Mi, Gi or more, m, if one is in m or less, and else none.

These five take a path or, if it names object, an expression as --where does. A list has
the values of its elements, and an expression that fails for an object has none:

  --group-by 'object.metadata.name.split("-")[0]'
  --group-by 'object.spec.containers.map(c, c.image)'
  --max '(now() - timestamp(object.metadata.creationTimestamp)).getHours() AS hours'

AS and a name behind them name the column and what -o json has. An expression can put
objects of several resources into the same groups, as pods and their nodes:

  --group-by 'object.kind == "Node" ? object.metadata.name : object.spec.nodeName'

With --at, ages and --since count from that moment.

With --watch, what is there is followed by each change of what is selected, as in
kubectl: an object as it is now, and a last time when it is deleted or no longer
selected. watch says which of these it was. --watch-only leaves out what is there. A
NAME that is not there at the beginning is an error, which ends it.

The output is that of dump, except that the only object with a single NAME is printed
without a List around it, as in kubectl; a List is empty where nothing matches. A NAME
that is not there is an error, which ends it with 1 when what is there has been
printed, unless --ignore-not-found is given. A file that a live process holds is read as
dump reads it.

RESOURCE is a plural, a singular, a kind, a short name or the category "all". Those of
custom resources are known if the file holds their definitions.`),
		Example: `  informctl query pods --index namespace=default --index label:app=web
  informctl query pods/web-1 -n a -o yaml
  informctl query pods --where 'object.status.phase != "Running"' --sort-by .metadata.creationTimestamp
  informctl query pods --group-by spec.nodeName --since 7d
  informctl query pods --group-by spec.nodeName --sum 'spec.containers[*].resources.requests.cpu'
  informctl query pods --group-by 'object.metadata.name.split("-")[0] AS app'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Complete(cmd, args); err != nil {
				return err
			}
			if err := o.CompleteAt(cmd, "at"); err != nil {
				return err
			}
			if err := o.Sieve.Complete(cmd, &text, &o.Filter, o.Env.Now()); err != nil {
				return err
			}
			if s := &o.Sieve.Summary; s.Asked() {
				if err := completeGroups(&o.Format, cmd, s); err != nil {
					return err
				}
			}
			if watch || watchOnly {
				return watchObjects(o, cmd, !watchOnly)
			}
			return show.Objects(cmd.Context(), o)
		},
	}
	o.AddFlags(cmd)
	o.AddAtFlag(cmd)
	cmd.Flags().StringArrayVar(&o.Indexes, "index", nil, "Only objects that this index has under this value, as NAME=VALUE; repeatable.")
	o.Sieve.Add(cmd, &text)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "Go on with what is changed, until interrupted.")
	cmd.Flags().BoolVar(&watchOnly, "watch-only", false, "What is changed from now on, until interrupted, without what is there.")
	cmd.Flags().BoolVar(&o.IgnoreNotFound, "ignore-not-found", false, "A NAME that is not there is no error; where none is, nothing is printed.")
	complete.Objects(o, cmd, printer.ObjectFormats...)
	return cmd
}

// notWatched are the flags that make no sense for what comes one by one.
var notWatched = []string{"at", "not-older-than", "index", "sort-by", "descending", "limit", "since", "group-by", "sum", "max", "min", "avg", "count", "explain"}

// watchObjects prints what is changed, and what is there before that if initial is set.
func watchObjects(o *selection.Options, cmd *cobra.Command, initial bool) error {
	for _, name := range notWatched {
		if cmd.Flags().Changed(name) {
			return cmdutil.Usagef(cmd, "--watch and --%s do not go together", name)
		}
	}
	ctx, stop := cmdutil.Interruptible(cmd.Context())
	defer stop()
	if found, err := namesFound(ctx, o); err != nil || !found {
		return err
	}
	return (&show.Changes{Selection: *o, Initial: initial, Plain: true}).Run(ctx)
}

// namesFound looks up the names that are to be followed: as in kubectl, one that is not
// there is an error. It returns false where there is nothing to follow, which
// --ignore-not-found allows.
func namesFound(ctx context.Context, o *selection.Options) (bool, error) {
	if !slices.ContainsFunc(o.Wanted, func(w resources.Wanted) bool { return len(w.Names) > 0 }) {
		return true, nil
	}
	db, err := source.OpenProcess(ctx, o.Database.Path, o.ShowSecrets)
	if err == nil {
		defer func() { _ = db.Close() }()
		err = db.OfCluster(o.Database.Cluster)
	}
	var absent []error
	var others bool
	if err == nil {
		absent, others, err = o.Absent(db)
	}
	switch {
	case err != nil || len(absent) == 0:
		return true, nil //nolint:nilerr // what follows says it better
	case o.IgnoreNotFound:
		return others, nil
	}
	return false, o.Env.Incomplete(absent)
}

// completeGroups checks that the summary supports the format.
func completeGroups(f *printer.Flags, cmd *cobra.Command, s *selection.Summary) error {
	if f.Format != "" && f.Format != "table" && f.Format != "json" {
		return cmdutil.Usagef(cmd, "%s prints as table or json, not as %s", s.Flag(), f.Format)
	}
	return nil
}
