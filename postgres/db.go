package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/klog/v2"
)

// DefaultSchema is the schema of the tables. Whoever can read a schema reads all scopes
// in it: use one for each group of readers.
const DefaultSchema = "informctl"

// Options configure a DB. The zero value is usable.
type Options struct {
	// Schema is the schema of the tables, any but SQLSchema. "" means DefaultSchema.
	Schema string
	// Poll is how often the process asks what is new, in one query for all of its
	// watches. It is the delay of a change where Listen is not set or does not work. 0
	// means 1 s.
	Poll time.Duration
	// Listen makes the database tell the process at once what is new. It takes one
	// connection, and does not work through a pooler of transactions, which Open finds
	// out. Above some 50 processes, polls are cheaper for the database.
	Listen bool
	// AllowUnverifiedTLS allows connections over TCP that are not encrypted or whose
	// server is not verified (sslmode=verify-full). Those to this host always are.
	AllowUnverifiedTLS bool
	// MaxConns limits the connections of the pool. 0 means 4.
	MaxConns int32
}

// DB is a database with the tables of this package. Create one with Open.
type DB struct {
	pool *pgxpool.Pool
	opts Options
	hub  *hub
	// publishing and projecting are how many calls of Publish and Project hold their
	// lease.
	publishing, projecting atomic.Int32
	// skewed is whether the clock of the database is far from this machine's.
	skewed atomic.Bool
}

// IsPublishing reports whether a call of Publish holds its lease; others wait for it.
func (db *DB) IsPublishing() bool { return db.publishing.Load() > 0 }

// IsProjecting reports whether a call of Project holds its lease; others wait for it.
func (db *DB) IsProjecting() bool { return db.projecting.Load() > 0 }

// Open connects to the database and checks its tables. The error is ErrSchema if these
// are missing or of another version; Open does not create them. Its error never contains
// the password. The context is for Open alone.
func Open(ctx context.Context, dsn string, opts Options) (*DB, error) {
	if opts.Schema == "" {
		opts.Schema = DefaultSchema
	}
	if opts.Poll <= 0 {
		opts.Poll = time.Second
	}
	if opts.MaxConns <= 0 {
		opts.MaxConns = 4
	}
	pool, err := newPool(ctx, dsn, opts)
	if err != nil {
		return nil, err
	}
	db := &DB{pool: pool, opts: opts}
	if err := db.checkVersion(ctx); err != nil {
		pool.Close()
		return nil, err
	}
	db.hub = newHub(db)
	if opts.Listen {
		db.hub.tryListening(ctx)
	}
	return db, nil
}

// Close ends all watches of the database and closes all connections. It returns when
// their goroutines have ended. A watch that is opened meanwhile, or later, fails or ends
// at once. Publish and Project end with their contexts, which should be before.
func (db *DB) Close() error {
	db.hub.close()
	db.pool.Close()
	return nil
}

func newPool(ctx context.Context, dsn string, opts Options) (*pgxpool.Pool, error) {
	cfg, err := parse(dsn, opts)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return pool, nil
}

func parse(dsn string, opts Options) (*pgxpool.Config, error) {
	if opts.Schema == SQLSchema {
		return nil, fmt.Errorf("schema %s is that of SQL, what is published needs another schema", SQLSchema)
	}
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// pgx leaves out the password.
		return nil, fmt.Errorf("data source name of PostgreSQL: %w", err)
	}
	if err := checkTLS(&cfg.ConnConfig.Config); err != nil && !opts.AllowUnverifiedTLS {
		return nil, err
	}
	cfg.MaxConns = opts.MaxConns
	cfg.PingTimeout = deadline
	cfg.ConnConfig.DialFunc = (&net.Dialer{Control: boundSilence}).DialContext
	// Prepared statements belong to a session, and a pooler of transactions has none.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 10 * time.Second
	}
	return cfg, nil
}

// deadline is how long a statement takes at most that does not depend on the size of a
// collection. A server that vanishes without a reset is found out so, and by
// boundSilence.
var deadline = 15 * time.Second

// checkTLS returns an error if somebody on the network could be the server.
func checkTLS(cfg *pgconn.Config) error {
	check := func(host string, verified bool) error {
		ip := net.ParseIP(host)
		if strings.HasPrefix(host, "/") || host == "localhost" || ip != nil && ip.IsLoopback() || verified {
			return nil
		}
		return fmt.Errorf("connection to PostgreSQL on %s does not verify the server: sslmode=verify-full is needed", host)
	}
	if err := check(cfg.Host, cfg.TLSConfig != nil && !cfg.TLSConfig.InsecureSkipVerify); err != nil {
		return err
	}
	for _, f := range cfg.Fallbacks {
		if err := check(f.Host, f.TLSConfig != nil && !f.TLSConfig.InsecureSkipVerify); err != nil {
			return err
		}
	}
	return nil
}

// sql returns a statement, which names the tables of DefaultSchema, for the schema of the
// DB.
func (db *DB) sql(statement string) string { return inSchema(statement, db.opts.Schema) }

func inSchema(statement, schema string) string {
	if schema == DefaultSchema {
		return statement
	}
	return strings.ReplaceAll(statement, "informctl.", pgx.Identifier{schema}.Sanitize()+".")
}

// failed drops the connections of the pool if the error says that the server behind them
// is not the primary any more.
func (db *DB) failed(ctx context.Context, err error) {
	if isOfServer(err) {
		klog.FromContext(ctx).V(2).Info("Connections are made anew", "err", err)
		db.pool.Reset()
	}
}

// ErrSchema is returned if the tables are missing or of another version than this
// program's.
var ErrSchema = errors.New("the tables in PostgreSQL are not those of this program")
