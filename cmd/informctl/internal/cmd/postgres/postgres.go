// Package postgres is the command that prepares a database for informctl publish, and
// looks into it.
package postgres

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/health"
	"github.com/informctl/informctl/cmd/informctl/internal/pgflags"
	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/postgres"
)

// NewCommand returns the command.
func NewCommand(e cmdutil.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "postgres",
		Short: "Prepare a database in PostgreSQL for informctl publish, and look into it",
		Long: cmdutil.Describe(`Prepare a database in PostgreSQL for informctl publish, and look into it.

migrate makes the tables, grants prints the statements that make the roles, status prints
what is published, and drop removes a scope.`),
		Example: `  informctl postgres migrate
  informctl postgres status`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cmdutil.Usagef(cmd, "unknown command %q; there are migrate, grants, status, drop", args[0])
			}
			return cmdutil.Usagef(cmd, "no command given; there are migrate, grants, status, drop")
		},
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newMigrateCommand(e), newGrantsCommand(e), newStatusCommand(e), newDropCommand(e))
	return cmd
}

func newMigrateCommand(e cmdutil.Env) *cobra.Command {
	var flags pgflags.Flags
	var sql bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make the tables in PostgreSQL",
		Long: cmdutil.Describe(`Make the tables in PostgreSQL.

With --sql those of informctl publish --sql, in the schema kube. Tables of this version
are left as they are; those of another one are an error. The role needs the right to
create a schema in the database.`),
		Example: `  informctl postgres migrate
  informctl postgres migrate --sql`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			dsn, err := flags.DSN(cmd)
			if err != nil {
				return err
			}
			migrate, schema := postgres.Migrate, flags.Options().Schema
			if sql {
				migrate, schema = postgres.MigrateSQL, postgres.SQLSchema
			}
			if err := migrate(ctx, dsn, flags.Options()); err != nil {
				return err
			}
			e.Note("the tables in the schema %s are there", schema)
			return nil
		},
	}
	flags.Add(cmd)
	cmd.Flags().BoolVar(&sql, "sql", false, "The tables of informctl publish --sql.")
	return cmd
}

func newGrantsCommand(e cmdutil.Env) *cobra.Command {
	var flags pgflags.Flags
	var sql bool
	cmd := &cobra.Command{
		Use:   "grants",
		Short: "Print the statements that make the roles of a database",
		Long: cmdutil.Describe(`Print the statements that make the roles of a database, for psql.

SCHEMA_publisher is for informctl publish. Whoever has it decides what every follower
believes: treat it as cluster-admin. SCHEMA_follower is for informctl run --postgres, and
reads all that is published. With --sql: kube_projector is for informctl publish --sql and
kube_reader for who asks in SQL.`),
		Example: `  informctl postgres grants > roles.sql
  informctl postgres grants --sql > roles.sql`,
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			return e.Output(func(w io.Writer) error {
				grants := postgres.Grants(flags.Options().Schema)
				if sql {
					grants = postgres.GrantsSQL(flags.Options().Schema)
				}
				_, err := io.WriteString(w, grants)
				return err
			})
		},
	}
	flags.Add(cmd)
	cmd.Flags().BoolVar(&sql, "sql", false, "The roles of informctl publish --sql.")
	return cmd
}

// scope is a scope in JSON. Its JSON names are stable.
type scope struct {
	ID        int64      `json:"id"`
	Cluster   string     `json:"cluster"`
	Resource  string     `json:"resource"`
	Namespace string     `json:"namespace,omitempty"`
	Labels    string     `json:"labelSelector,omitempty"`
	Fields    string     `json:"fieldSelector,omitempty"`
	Version   string     `json:"apiVersion"`
	Group     string     `json:"group"`
	State     string     `json:"state"`
	RV        string     `json:"resourceVersion,omitempty"`
	Marked    *time.Time `json:"marked,omitempty"`
	Heard     *time.Time `json:"heard,omitempty"`
	Objects   int64      `json:"objects"`
	Rows      int64      `json:"logRows"`
	Bytes     int64      `json:"logBytes"`
	Since     *time.Time `json:"logSince,omitempty"`
	Problem   string     `json:"problem,omitempty"`
}

func newStatusCommand(e cmdutil.Env) *cobra.Command {
	var flags pgflags.Flags
	var table printer.TableFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print what is published in PostgreSQL",
		Long: cmdutil.Describe(`Print what is published in PostgreSQL, a line for each scope.

GROUP is that of the publisher, without the cluster; -o json has the selectors and the
version, too. STATE is published; listing until the first list is in; silent if nothing
has come from the API server into the database for minutes, so that followers are refused;
unheld if nobody publishes; and failed if PostgreSQL or the server refuses the scope, with
the reason below. HEARD is when the publisher renewed its lease last, a sign of life of
the publisher and not of the API server; LOG is how much followers may have missed, and
SINCE since when.`),
		Example: `  informctl postgres status
  informctl postgres status -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cmdutil.NoArguments(cmd, args); err != nil {
				return err
			}
			return table.Check(cmd)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return printStatus(ctx, e, cmd, &flags, table)
		},
	}
	flags.Add(cmd)
	table.Add(cmd)
	return cmd
}

func printStatus(ctx context.Context, e cmdutil.Env, cmd *cobra.Command, flags *pgflags.Flags, table printer.TableFlags) error {
	db, err := flags.Open(ctx, cmd)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	all, err := db.Status(ctx)
	if err != nil {
		return err
	}
	scopes := []scope{}
	var rows [][]any
	for _, s := range all {
		out := scope{
			ID: s.ID, Cluster: s.Scope.Cluster, Resource: s.Scope.Resource, Namespace: s.Scope.Namespace,
			Labels: s.Scope.LabelSelector, Fields: s.Scope.FieldSelector, Version: s.Scope.Kind.GroupVersion().String(), Group: s.Group, State: s.State(), RV: s.RV,
			Marked: momentOf(s.MarkTime), Heard: momentOf(s.Heard), Objects: s.Objects, Rows: s.Rows, Bytes: s.Bytes, Since: momentOf(s.First), Problem: s.Problem,
		}
		scopes = append(scopes, out)
		age := func(t time.Time) string {
			if t.IsZero() {
				return cmdutil.NoValue
			}
			return health.Ago(t, e.Now()) // by the database's clock, which may be ahead
		}
		rows = append(rows, []any{
			s.ID, s.Scope.Resource, cmdutil.OrDash(s.Scope.Namespace), s.Scope.Cluster, cmdutil.OrDash(pgflags.GroupName(s.Scope.Cluster, s.Group)), out.State, cmdutil.OrDash(s.RV), s.Objects,
			age(s.MarkTime), age(s.Heard), fmt.Sprintf("%d rows, %s", s.Rows, bytesOf(s.Bytes)), age(s.First),
		})
	}
	if len(all) == 0 {
		e.Note("nothing is published in the schema %s", flags.Options().Schema)
	}
	err = e.Output(func(w io.Writer) error {
		if len(all) == 0 && table.Format != "json" {
			return nil
		}
		return table.Print(w, scopes, []string{"Scope", "Resource", "Namespace", "Cluster", "Group", "State", "RV", "Objects", "Mark", "Heard", "Log", "Since"}, rows)
	})
	for _, s := range all {
		if s.Problem != "" {
			e.Note("scope %d, %s: %s", s.ID, s.Scope.Resource, s.Problem)
		}
	}
	return err
}

func bytesOf(n int64) string {
	switch {
	case n >= 10<<20:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	case n >= 10<<10:
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

func momentOf(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func newDropCommand(e cmdutil.Env) *cobra.Command {
	var flags pgflags.Flags
	cmd := &cobra.Command{
		Use:   "drop SCOPE",
		Short: "Remove a scope with all that followers read of it",
		Long: cmdutil.Describe(`Remove a scope with all that followers read of it.

SCOPE is its number, as informctl postgres status prints it. Followers get 503 until it is
published again. A publisher that still has the resource adds it again: end that first.
informctl publish --sql removes its objects from kube.object; what it was stays in
kube.history for its time.`),
		Example: `  informctl postgres drop 12
  informctl postgres drop 12 --postgres-dsn-file /etc/informctl/dsn`,
		Args: cmdutil.OneArgument("SCOPE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil {
				return cmdutil.Usagef(cmd, "%q is no number of a scope; informctl postgres status has them", args[0])
			}
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			db, err := flags.Open(ctx, cmd)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			if err := db.Drop(ctx, id); err != nil {
				return err
			}
			e.Note("scope %d is gone", id)
			return nil
		},
	}
	flags.Add(cmd)
	return cmd
}
