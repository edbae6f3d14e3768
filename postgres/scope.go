package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/informctl/informctl/store"
)

// ErrSecrets is returned for Secrets: whoever reads the tables would read them.
var ErrSecrets = errors.New("Secrets are not published to PostgreSQL") //nolint:staticcheck // the name of a kind

// identity returns the key of a scope. Typed, unstructured and metadata-only objects are
// made from the same bytes, so the form is no part of it.
func identity(s store.Scope) (store.Scope, error) {
	s.Form = store.Typed
	s, err := s.Canonical()
	if err != nil {
		return s, err
	}
	if s.IsSecret() {
		return s, ErrSecrets
	}
	return s, nil
}

// register returns the number of a scope, which it adds if it is new.
func (db *DB) register(ctx context.Context, group string, s store.Scope) (id int64, err error) {
	// INSERT alone would take a number each time.
	for {
		err = db.pool.QueryRow(ctx, db.sql("SELECT id FROM informctl.scope WHERE uid = $1"), s.ID()).Scan(&id)
		if err == nil || !errors.Is(err, pgx.ErrNoRows) {
			return id, err
		}
		_, err = db.pool.Exec(ctx, db.sql(`INSERT INTO informctl.scope (uid, grp, cluster, resource, api_version, kind, namespace, label_selector, field_selector)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (uid) DO NOTHING`),
			s.ID(), group, s.Cluster, s.Resource, s.Kind.GroupVersion().String(), s.Kind.Kind, s.Namespace, s.LabelSelector, s.FieldSelector)
		if err != nil {
			return 0, err
		}
	}
}

// Drop removes a scope with all that was published of it. Followers are told that it is
// not published. A publisher that still has the scope adds it again.
func (db *DB) Drop(ctx context.Context, id int64) error {
	// The scope first, which fences its publisher: the rest takes long and needs no lock.
	// The log before the objects: a list that has read the scope finds its last row gone,
	// and not a collection without objects. It can be repeated if it is interrupted.
	var dropped int64
	for _, statement := range []string{
		"DELETE FROM informctl.scope WHERE id = $1", "DELETE FROM informctl.change WHERE scope = $1",
		"DELETE FROM informctl.object WHERE scope = $1", "DELETE FROM informctl.staging WHERE scope = $1",
	} {
		tag, err := db.pool.Exec(ctx, db.sql(statement), id)
		if err != nil {
			return fmt.Errorf("drop scope %d: %w", id, err)
		}
		dropped += tag.RowsAffected()
	}
	if dropped == 0 {
		return fmt.Errorf("there is no scope %d", id)
	}
	return nil
}
