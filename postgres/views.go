package postgres

import (
	"context"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"
)

// resourceName is what a view is called after.
var resourceName = regexp.MustCompile(`^[a-z0-9.-]{1,63}$`)

func canBeView(resource string) bool {
	isTable := slices.Contains([]string{"version", "lease", "place", "object", "history"}, resource)
	return resourceName.MatchString(resource) && !isTable
}

// makeViews makes the views that are missing, and grants those that are older than the
// role of readers. A view that is there stays as it is: who reads it would hold up all.
func (p *projector) makeViews(ctx context.Context) {
	rows, err := p.db.pool.Query(ctx, `SELECT DISTINCT p.resource FROM kube.place p
		LEFT JOIN pg_class c ON c.oid = to_regclass('kube.' || quote_ident(p.resource))
		WHERE c.oid IS NULL OR EXISTS (SELECT FROM pg_roles r WHERE r.rolname = 'kube_reader' AND NOT has_table_privilege(r.oid, c.oid, 'SELECT'))`)
	if err != nil {
		return // step says so
	}
	resources, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, resource := range resources {
		if canBeView(resource) {
			p.makeView(ctx, resource)
		}
	}
}

// makeView makes the view of a resource, as kube."deployments.apps", whose columns are
// those that are asked for most. Without it there is kube.object.
func (p *projector) makeView(ctx context.Context, resource string) {
	// A view is read with the rights of its reader, so that policies of rows apply.
	// PostgreSQL 14 cannot do that.
	var major int
	var isThere bool
	err := p.db.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int / 10000, to_regclass('kube.' || quote_ident($1)) IS NOT NULL", resource).Scan(&major, &isThere)
	options := "security_barrier = true"
	if major >= 15 {
		options += ", security_invoker = true"
	}
	if err == nil {
		err = pgx.BeginFunc(ctx, p.db.pool, func(tx pgx.Tx) error {
			name := "kube." + pgx.Identifier{resource}.Sanitize()
			if !isThere {
				if _, err := tx.Exec(ctx, `CREATE VIEW `+name+` WITH (`+options+`) AS
					SELECT o.cluster, o.namespace, o.name, o.uid, o.rv, (o.object #>> '{metadata,creationTimestamp}')::timestamptz AS created,
						o.object #> '{metadata,labels}' AS labels, o.object, p.as_of
					FROM kube.object o JOIN kube.place p ON p.scope = o.scope WHERE o.resource = '`+resource+`'`); err != nil {
					return err
				}
			}
			// The roles of GrantsSQL may have been made before the view, or not at all.
			var hasReader bool
			err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'kube_reader')").Scan(&hasReader)
			if err == nil && hasReader {
				_, err = tx.Exec(ctx, "GRANT SELECT ON "+name+" TO kube_reader")
			}
			return err
		})
	}
	if err != nil {
		klog.FromContext(ctx).Info("A resource has no view", "resource", resource, "err", err.Error())
	}
}
