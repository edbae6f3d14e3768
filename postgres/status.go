package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/store"
)

// ScopeStatus is what the database has of one scope.
type ScopeStatus struct {
	ID       int64
	Scope    store.Scope // its Form is not set
	Group    string
	Holder   string    // who has published last; a random text
	IsHeld   bool      // the lease of the group has not expired
	Heard    time.Time // when the publisher of the group renewed its lease last
	IsSilent bool      // the API server has told nothing of this scope for minutes
	Complete bool      // the first list has been published
	RV       string    // the objects are complete up to it; "" if not Complete
	MarkTime time.Time
	Objects  int64     // counted by Status only
	Rows     int64     // of the log
	Bytes    int64     // of data in the log
	First    time.Time // time of the log's first row: a follower may have been away since
	Problem  string    // why the scope is not published; "" if it is
}

// State says in one word how the scope is: "failed" with a Problem, "unheld" if nobody
// publishes it, "listing" before the first list is published, "silent" if the API server
// tells nothing of it, and else "published".
func (s *ScopeStatus) State() string {
	switch {
	case s.Problem != "":
		return "failed"
	case !s.IsHeld:
		return "unheld"
	case !s.Complete:
		return "listing"
	case s.IsSilent:
		return "silent"
	}
	return "published"
}

// Status returns the scopes in the database, in the order of cluster and resource. It
// counts their objects, which takes long for many.
func (db *DB) Status(ctx context.Context) ([]ScopeStatus, error) {
	return db.scopes(ctx, "(SELECT count(*) FROM informctl.object o WHERE o.scope = s.id)")
}

// Scopes is Status without the numbers of objects.
func (db *DB) Scopes(ctx context.Context) ([]ScopeStatus, error) { return db.scopes(ctx, "0") }

func (db *DB) scopes(ctx context.Context, objects string) ([]ScopeStatus, error) {
	rows, err := db.pool.Query(ctx, db.sql(`SELECT s.id, s.cluster, s.resource, s.api_version, s.kind, s.namespace, s.label_selector, s.field_selector,
			s.grp, s.holder, coalesce(le.expires > clock_timestamp() AND le.holder = s.holder, false), nullif(le.heard, '-infinity'), coalesce(s.id = ANY (le.silent), false), s.complete,
			coalesce(l.rv, 0), l.at, `+objects+`::bigint,
			coalesce(l.seq - f.seq + 1, 0), coalesce(l.bytes - f.bytes, 0), f.at, s.problem
		FROM informctl.scope s LEFT JOIN informctl.lease le ON le.grp = s.grp
		LEFT JOIN LATERAL (SELECT seq, rv, at, bytes FROM informctl.change WHERE scope = s.id ORDER BY seq DESC LIMIT 1) l ON true
		LEFT JOIN LATERAL (SELECT seq, at, bytes FROM informctl.change WHERE scope = s.id ORDER BY seq LIMIT 1) f ON true
		ORDER BY s.cluster, s.resource, s.namespace, s.id`))
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (ScopeStatus, error) {
		var s ScopeStatus
		var apiVersion, kind string
		var heard, at, first *time.Time
		var rv int64
		err := row.Scan(&s.ID, &s.Scope.Cluster, &s.Scope.Resource, &apiVersion, &kind, &s.Scope.Namespace, &s.Scope.LabelSelector, &s.Scope.FieldSelector,
			&s.Group, &s.Holder, &s.IsHeld, &heard, &s.IsSilent, &s.Complete, &rv, &at, &s.Objects, &s.Rows, &s.Bytes, &first, &s.Problem)
		s.Scope.Kind = schema.FromAPIVersionAndKind(apiVersion, kind)
		if s.Complete {
			s.RV = fmt.Sprint(rv)
		}
		for to, from := range map[*time.Time]*time.Time{&s.Heard: heard, &s.MarkTime: at, &s.First: first} {
			if from != nil {
				*to = *from
			}
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the status: %w", err)
	}
	return out, nil
}

// Projection is how far Project has written one scope.
type Projection struct {
	ID                int64 // of the scope
	Cluster, Resource string
	AsOf              time.Time // kube.object has the state of then; zero: nothing yet
	Skipped           int64     // states that the database has refused so far
}

// Projections returns how far Project has written each scope that has been published
// whole, in the order of cluster and resource, and whether a projector is at work. The
// error is ErrSchema if the tables of Project are missing.
func (db *DB) Projections(ctx context.Context) (all []Projection, isHeld bool, err error) {
	err = db.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM kube.lease WHERE grp = $1 AND expires > clock_timestamp())", SQLSchema).Scan(&isHeld)
	if err == nil {
		var rows pgx.Rows
		rows, err = db.pool.Query(ctx, db.sql(`SELECT s.id, s.cluster, s.resource, pl.as_of, coalesce(pl.skipped, 0)
			FROM informctl.scope s LEFT JOIN kube.place pl ON (pl.scope, pl.cluster, pl.resource) = (s.id, s.cluster, s.resource)
			WHERE s.complete AND NOT `+superseded+` ORDER BY s.cluster, s.resource, s.id`))
		if err == nil {
			all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (p Projection, err error) {
				var asOf *time.Time
				if err = row.Scan(&p.ID, &p.Cluster, &p.Resource, &asOf, &p.Skipped); asOf != nil {
					p.AsOf = *asOf
				}
				return p, err
			})
		}
	}
	switch {
	case codeOf(err) == undefinedTable:
		return nil, false, errNoSQL
	case err != nil:
		return nil, false, fmt.Errorf("read how far SQL is written: %w", err)
	}
	return all, isHeld, nil
}

// Grants returns the statements that make the roles of a schema, for psql: the owner runs
// them once. "" means DefaultSchema.
//
//	SCHEMA_publisher  publishes; treat it as cluster-admin
//	SCHEMA_follower   reads all that is published in the schema
func Grants(name string) string {
	if name == "" {
		name = DefaultSchema
	}
	s := pgx.Identifier{name}.Sanitize()
	publisher, follower := pgx.Identifier{name + "_publisher"}.Sanitize(), pgx.Identifier{name + "_follower"}.Sanitize()
	return strings.NewReplacer("$schema", s, "$publisher", publisher, "$follower", follower).Replace(`CREATE ROLE $publisher NOLOGIN;
CREATE ROLE $follower NOLOGIN;
REVOKE ALL ON SCHEMA $schema FROM PUBLIC;
GRANT USAGE ON SCHEMA $schema TO $publisher, $follower;
GRANT SELECT ON ALL TABLES IN SCHEMA $schema TO $publisher, $follower;
REVOKE ALL ON $schema.staging FROM $follower;
GRANT INSERT, UPDATE, DELETE ON $schema.lease, $schema.scope, $schema.object, $schema.change, $schema.staging TO $publisher;
`)
}

// GrantsSQL returns the statements that make the roles of the tables of Project, which
// follow a schema, for psql. As a comment, they have those that limit a role that is
// granted kube_reader: its name is the owner's to choose.
//
//	kube_projector  writes them, and makes their views
//	kube_reader     asks in SQL; reads all objects
func GrantsSQL(name string) string {
	if name == "" {
		name = DefaultSchema
	}
	return strings.ReplaceAll(`CREATE ROLE kube_projector NOLOGIN;
CREATE ROLE kube_reader NOLOGIN;
REVOKE ALL ON SCHEMA kube FROM PUBLIC;
GRANT USAGE ON SCHEMA $schema TO kube_projector;
GRANT SELECT ON $schema.version, $schema.lease, $schema.scope, $schema.object, $schema.change TO kube_projector;
GRANT USAGE, CREATE ON SCHEMA kube TO kube_projector;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kube TO kube_projector;
GRANT USAGE ON SCHEMA kube TO kube_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA kube TO kube_reader;
REVOKE SELECT ON kube.version, kube.lease FROM kube_reader;
-- The settings of a role apply when that role logs in, and not to its members. Repeat
-- these for each role that logs in to read, with its name instead of alice:
-- GRANT kube_reader TO alice;
-- ALTER ROLE alice SET search_path = pg_catalog;
-- ALTER ROLE alice SET statement_timeout = '1min';
-- ALTER ROLE alice SET idle_in_transaction_session_timeout = '1min';
`, "$schema", pgx.Identifier{name}.Sanitize())
}
