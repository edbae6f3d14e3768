// Package indexes is the command that prints the indexes of a file and what they hold.
package indexes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/selection"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// options are the options of indexes.
type options struct {
	env         cmdutil.Env
	database    source.FileFlags
	table       printer.TableFlags
	showSecrets bool
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e}
	cmd := &cobra.Command{
		Use:   "indexes [RESOURCE]",
		Short: "Print the indexes of a file and what they hold",
		Long: cmdutil.Describe(`Print the indexes of a file and what they hold: for each its name, its identity,
the number of its values and entries, and the value that most objects have.

Entries are used again by an informer whose index has the same identity. The indexes of
a file that a live process holds are counted one value after the other while it goes on.`),
		Example: `  informctl indexes --db informers.db
  informctl indexes pods -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.AtMostOneResource(cmd, args); err != nil {
				return err
			}
			return o.table.Check(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), o, args) },
	}
	o.database.Add(o.env, cmd)
	selection.AddSecretsFlag(cmd, &o.showSecrets)
	o.table.Add(cmd)
	return cmd
}

// indexUse is the JSON form of an index. Its field names are stable.
type indexUse struct {
	Scope        string `json:"scope"`
	Resource     string `json:"resource"`
	Name         string `json:"name"`
	Identity     string `json:"identity"`
	Values       int    `json:"values"`
	Entries      int    `json:"entries"`
	LargestValue string `json:"largestValue"`
	Largest      int    `json:"largest"` // number of objects with the largest value
}

func run(ctx context.Context, o *options, args []string) error {
	db, err := o.database.Open(ctx, o.showSecrets)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	infos, err := db.Find(append(args, "")[0])
	if err != nil {
		return err
	}
	found := []indexUse{}
	var unread []error
	for _, info := range infos {
		if !info.Complete {
			o.env.Note("%s: left out, its first list is not complete; %s", info.Scope, cmdutil.Completes)
			continue
		}
		used, err := indexesOf(db, info)
		if errors.Is(err, store.ErrNoKey) {
			unread = append(unread, err)
			continue
		}
		if err != nil {
			return err
		}
		found = append(found, used...)
	}
	if len(unread) > 0 && len(found) == 0 {
		return unread[0]
	}
	err = o.env.Output(func(w io.Writer) error {
		rows := make([][]any, 0, len(found))
		for _, i := range found {
			largest := "-"
			if i.Entries > 0 {
				largest = fmt.Sprintf("%s (%d)", cmp.Or(i.LargestValue, `""`), i.Largest)
			}
			rows = append(rows, []any{i.Scope, i.Name, i.Identity, int64(i.Values), int64(i.Entries), largest})
		}
		return o.table.Print(w, found, []string{"Scope", "Index", "Identity", "Values", "Entries", "Largest"}, rows)
	})
	if err != nil {
		return err
	}
	return o.env.Incomplete(unread)
}

// indexesOf counts the entries of a scope's indexes.
func indexesOf(d *source.Database, info store.Info) (out []indexUse, err error) {
	r, err := d.OpenScope(info, nil)
	if err != nil {
		return nil, err
	}
	for _, idx := range info.Indexes {
		use := indexUse{Scope: info.Scope.String(), Resource: info.Scope.Resource, Name: idx.Name, Identity: idx.Identity}
		values, err := source.IndexValues(r, idx.Name)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			use.Values++
			use.Entries += v.Count
			if v.Count > use.Largest {
				use.LargestValue, use.Largest = v.Value, v.Count
			}
		}
		if info.Scope.IsSecret() && !d.ShowSecrets && use.Entries > 0 {
			use.LargestValue = secret.Redacted // the value may be a field of the Secret
		}
		out = append(out, use)
	}
	return out, nil
}
