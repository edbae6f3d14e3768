// Package info is the command that prints what a file holds and how recent it is.
package info

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/durable"
	"github.com/informctl/informctl/store"
)

// options are the options of info.
type options struct {
	env      cmdutil.Env
	database source.FileFlags
	table    printer.TableFlags
}

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	o := &options{env: e}
	cmd := &cobra.Command{
		Use:   "info",
		Short: "Print what a file holds and how recent it is",
		Long: cmdutil.Describe(`Print what a file holds and how recent it is: for each scope its resource,
selectors, objects, indexes with their number of values, resource version (RV),
the RV's age, bytes and codec; and its cluster, where there are several; and how many
durable consumers there are. The file is not changed. Of one that a live process holds
it is what is there after the last commit.`),
		Example: `  informctl info --db informers.db
  informctl info -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.NoArguments(cmd, args); err != nil {
				return err
			}
			return o.table.Check(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	o.database.AddPath(o.env, cmd)
	o.table.Add(cmd)
	return cmd
}

// fileInfo is the JSON form of info. Its field names are stable.
type fileInfo struct {
	Path   string             `json:"path"`
	Bytes  int64              `json:"bytes"` // of the file
	Scopes []source.ScopeInfo `json:"scopes"`
	// Consumers are the durable consumers of the file.
	Consumers []durable.Status `json:"consumers,omitempty"`
}

func run(ctx context.Context, o *options) error {
	db, err := o.database.Open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	file, err := os.Stat(db.Path)
	if err != nil {
		return source.OpenError(db.Path, err)
	}
	out := fileInfo{Path: db.Path, Bytes: file.Size(), Scopes: []source.ScopeInfo{}}
	gone := 0
	for _, info := range db.Stored {
		if source.IsGone(info) && o.table.Format == "table" {
			gone++
			continue
		}
		out.Scopes = append(out.Scopes, source.DescribeScope(info, o.env.Now()))
	}
	fromTypes := 0
	for _, info := range db.Stored {
		if info.Scope.Form == store.Typed {
			fromTypes += info.Objects
		}
	}
	o.env.NoteNewer(db.ServerVersion(ctx), fromTypes)
	out.Consumers, err = db.Consumers(ctx)
	printed := o.env.Output(func(w io.Writer) error {
		if len(out.Scopes) == 0 && o.table.Format == "table" {
			o.env.Note("%s holds nothing", db.Path)
		}
		if gone > 0 {
			o.env.Note("resources that the server no longer serves, of which the log is left: %d; informctl history --deleted and query --at read it", gone)
		}
		if n := len(out.Consumers); n > 0 && o.table.Format == "table" {
			o.env.Note("durable consumers: %d; informctl consumers says what is left for them", n)
		}
		if left := out.leftOut(); left != "" && o.table.Format == "table" {
			o.env.Note("changes that are not in the history: %s", left)
		}
		headers, rows := out.table()
		return o.table.Print(w, out, headers, rows)
	})
	return cmdutil.Found(err, printed)
}

// table returns the scopes as rows. It has a column for clusters if they differ.
func (f fileInfo) table() (headers []string, rows [][]any) {
	headers = []string{"Resource", "Namespace", "Selectors", "Form", "Objects", "RV", "Age", "Bytes", "Codec", "Indexes", "State"}
	clusters := slices.ContainsFunc(f.Scopes, func(s source.ScopeInfo) bool { return s.Cluster != f.Scopes[0].Cluster })
	if clusters {
		headers = slices.Insert(headers, 0, "Cluster")
	}
	for _, s := range f.Scopes {
		age := ""
		if s.AgeSeconds != nil {
			age = duration.HumanDuration(time.Duration(*s.AgeSeconds) * time.Second)
		}
		row := []any{
			s.Resource, cmdutil.OrDash(s.Namespace), cmdutil.OrDash(s.Selectors()), s.Form, int64(s.Objects),
			cmdutil.OrDash(s.ResourceVersion), cmdutil.OrDash(age), s.Bytes, s.Codec, cmdutil.OrDash(indexesText(s)), stateOf(s),
		}
		if clusters {
			row = slices.Insert(row, 0, any(cmdutil.OrDash(s.Cluster)))
		}
		rows = append(rows, row)
	}
	return headers, rows
}

// leftOut says how many changes the logs have left out.
func (f fileInfo) leftOut() string {
	var parts []string
	for _, s := range f.Scopes {
		if s.Log != nil && s.Log.Unlogged > 0 {
			parts = append(parts, fmt.Sprintf("%d of %s", s.Log.Unlogged, s.Resource))
		}
	}
	return strings.Join(parts, ", ")
}

func indexesText(s source.ScopeInfo) string {
	var parts []string
	for _, idx := range s.Indexes {
		parts = append(parts, fmt.Sprintf("%s(%d)", idx.Name, idx.Values))
	}
	return strings.Join(parts, ",")
}

// stateOf describes how run would continue with the scope.
func stateOf(s source.ScopeInfo) string {
	switch {
	case !s.Complete:
		return "first list not complete"
	case s.ResourceVersion == "":
		return "to be listed again: " + s.Reason
	}
	return "complete"
}
