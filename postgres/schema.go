package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed schema.sql
var schemaSQL string

// version is the version of the tables.
const version = 1

// Migrate creates the tables, or brings them to the version of this program. It needs the
// right to create the schema, or tables in it if it is there. Nothing happens if they are
// there.
func Migrate(ctx context.Context, dsn string, opts Options) error {
	if opts.Schema == "" {
		opts.Schema = DefaultSchema
	}
	return migrate(ctx, dsn, opts, opts.Schema, inSchema(schemaSQL, opts.Schema))
}

// migrate runs statements if a schema has no table version yet.
func migrate(ctx context.Context, dsn string, opts Options, schema, statements string) error {
	cfg, err := parse(dsn, opts)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	// Before anything that such a server does not know.
	var engine string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&engine); err != nil {
		return fmt.Errorf("ask for the version of the server: %w", err)
	}
	if err := checkEngine(engine); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Two at once: the second one finds the tables of the first.
		if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', '2s', true), pg_advisory_xact_lock(hashtext('informctl/migrate'))"); err != nil {
			return fmt.Errorf("wait for another migration: %w", err)
		}
		table := pgx.Identifier{schema, "version"}.Sanitize()
		var there, hasSchema bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL, to_regnamespace(quote_ident($2)) IS NOT NULL", table, schema).Scan(&there, &hasSchema); err != nil {
			return fmt.Errorf("look for the tables: %w", err)
		}
		if !there {
			// CREATE SCHEMA IF NOT EXISTS needs the right also if the schema exists.
			if !hasSchema {
				statements = "CREATE SCHEMA " + pgx.Identifier{schema}.Sanitize() + ";" + statements
			}
			if _, err := tx.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("create the tables: %w", err)
			}
			return nil
		}
		var v int
		if err := tx.QueryRow(ctx, "SELECT version FROM "+table).Scan(&v); err != nil {
			return fmt.Errorf("read the version of the tables: %w", err)
		}
		if v != version {
			return fmt.Errorf("%w: they have version %d, this program knows %d", ErrSchema, v, version)
		}
		return nil
	})
}

// checkEngine returns an error if the version of a server, as it tells it, is that of a
// database which speaks PostgreSQL's protocol and does not keep its promises: the fence
// of a commit needs FOR SHARE to lock, and statements that see what was committed.
func checkEngine(version string) error {
	for mark, name := range map[string]string{"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"} {
		if strings.Contains(version, mark) {
			return fmt.Errorf("the server is %s, which is not supported: use PostgreSQL 14 or newer", name)
		}
	}
	return nil
}

func (db *DB) checkVersion(ctx context.Context) error {
	var v int
	err := db.pool.QueryRow(ctx, db.sql("SELECT version FROM informctl.version")).Scan(&v)
	switch code := codeOf(err); {
	case code == undefinedTable || code == invalidSchema:
		return fmt.Errorf("%w: there are none in schema %s; run: informctl postgres migrate", ErrSchema, db.opts.Schema)
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%w: schema %s has no version", ErrSchema, db.opts.Schema)
	case err != nil:
		return fmt.Errorf("read the version of the tables: %w", err)
	case v != version:
		return fmt.Errorf("%w: they have version %d, this program knows %d", ErrSchema, v, version)
	}
	return nil
}
