// Package pgflags has the flags of the commands that use PostgreSQL.
package pgflags

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/postgres"
)

// Variable is the environment variable with the data source name.
const Variable = "INFORMCTL_POSTGRES"

// Flags say which database is meant. The data source name may have a password, so it is
// no argument, which every user of the host could read.
type Flags struct {
	file    string
	options postgres.Options
}

const (
	fileFlag       = "postgres-dsn-file"
	schemaFlag     = "postgres-schema"
	unverifiedFlag = "postgres-allow-unverified-tls"
)

// Add adds the flags.
func (f *Flags) Add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.file, fileFlag, "", "A file with the data source name of PostgreSQL; by default "+Variable+" is it.")
	cmdutil.RefuseEmpty(flags, fileFlag, "it names no file")
	flags.StringVar(&f.options.Schema, schemaFlag, postgres.DefaultSchema, "The schema of the tables.")
	cmdutil.RefuseEmpty(flags, schemaFlag, "it names no schema")
	flags.BoolVar(&f.options.AllowUnverifiedTLS, unverifiedFlag, false, "Allow a connection over the network without sslmode=verify-full.")
}

// Given returns the name of a flag that the command line has, "" if it has none.
func (f *Flags) Given(cmd *cobra.Command) string {
	for _, name := range []string{fileFlag, schemaFlag, unverifiedFlag} {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// Listening makes the database tell at once what is new, instead of a second later.
func (f *Flags) Listening() { f.options.Listen = true }

// Options returns the options of the database.
func (f *Flags) Options() postgres.Options { return f.options }

// DSN returns the data source name.
func (f *Flags) DSN(cmd *cobra.Command) (string, error) {
	if f.file == "" {
		dsn := os.Getenv(Variable)
		if dsn == "" {
			return "", cmdutil.Usagef(cmd, "no database: set %s, as to postgres://USER@HOST/NAME?sslmode=verify-full, or give --postgres-dsn-file", Variable)
		}
		return dsn, nil
	}
	b, err := os.ReadFile(f.file)
	if err != nil {
		return "", fmt.Errorf("--postgres-dsn-file: %w", err)
	}
	if dsn := strings.TrimSpace(string(b)); dsn != "" {
		return dsn, nil
	}
	return "", fmt.Errorf("--postgres-dsn-file: %s is empty", f.file)
}

// Open opens the database.
func (f *Flags) Open(ctx context.Context, cmd *cobra.Command) (*postgres.DB, error) {
	dsn, err := f.DSN(cmd)
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, dsn, f.options)
}

// Await opens the database and tries again while it cannot be reached, which it logs
// once.
func (f *Flags) Await(ctx context.Context, cmd *cobra.Command) (*postgres.DB, error) {
	dsn, err := f.DSN(cmd)
	if err != nil {
		return nil, err
	}
	return cmdutil.Persist(ctx, eachSecond, func() (*postgres.DB, error) { return postgres.Open(ctx, dsn, f.options) },
		postgres.IsUnreachable, func(err error) {
			cmdutil.Warnings(klog.FromContext(ctx)).Info("PostgreSQL cannot be reached, trying again", "because", cmdutil.OneLine(err))
		})
}

func eachSecond() time.Duration { return time.Second }

// Group returns the group of a publisher of a cluster by its name in --group: one name is
// a group for each of the clusters in a database. "" is the cluster's own.
func Group(cluster, name string) string {
	if name == "" {
		return cluster
	}
	return cluster + "/" + name
}

// GroupName returns the name that Group was given.
func GroupName(cluster, group string) string {
	return strings.TrimPrefix(strings.TrimPrefix(group, cluster), "/")
}
