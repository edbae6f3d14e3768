package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/klog/v2"
)

// compare makes kube.object equal to the published objects where the log does not tell:
// at first, after a break of history, and if the log was trimmed past the place. What
// differs becomes history whose moment is known to be after the last place only. A change
// that is in the log after the end that was read is none of it: write makes it history.
func (p *projector) compare(ctx context.Context, s projected) error {
	d, err := newDecoder(&unstructured.Unstructured{}, s.kind)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Comparing the objects", "resource", s.resource, "cluster", s.cluster)
	isFirst := s.place == nil
	key := []byte{}
	var skipped []string
	for {
		part, err := p.published(ctx, s, key)
		if err != nil {
			return err
		}
		if len(part) == 0 {
			break
		}
		key = part[len(part)-1].key
		for len(part) > 0 {
			n, objects, refused := decoded(d, part)
			part = part[n:]
			tries := 0
			if refused, err = p.accepted(ctx, s, objects, refused, func(fine []projectedRow, _ []string) error {
				err := p.writeObjects(ctx, s, fine, isFirst)
				if tries++; tries > 1 && isOfData(err) { // of an object that was replaced
					logLeftOut(ctx, s, err)
					err = p.writeObjects(ctx, s, fine, true)
				}
				return err
			}); err != nil {
				return err
			}
			logSkipped(ctx, s, refused)
			skipped = append(skipped, refused...)
		}
	}
	err = p.endCompare(ctx, s, skipped, true)
	if isOfData(err) {
		logLeftOut(ctx, s, err)
		err = p.endCompare(ctx, s, skipped, false)
	}
	return err
}

// logLeftOut says that the database refuses the history of what a comparison has found,
// as an index does to which the last state of a deleted object is too long.
func logLeftOut(ctx context.Context, s projected, err error) {
	klog.FromContext(ctx).Info("History is left out of SQL", "resource", s.resource, "cluster", s.cluster, "because", err.Error())
}

// endCompare removes the objects that are not published any more, and writes the place.
// The history has them unless it is to be left out.
func (p *projector) endCompare(ctx context.Context, s projected, skipped []string, withHistory bool) error {
	return pgx.BeginFunc(ctx, p.db.pool, func(tx pgx.Tx) error {
		if err := p.fence(ctx, tx, s); err != nil {
			return err
		}
		// Drop deletes the scope before its objects: as long as the statement sees the
		// scope it sees all of them, and what is missing was deleted, no later than the
		// last mark was written unless the log says when.
		if _, err := tx.Exec(ctx, p.db.sql(`WITH gone AS (
				DELETE FROM kube.object k WHERE k.scope = $1 AND EXISTS (SELECT FROM informctl.scope s WHERE s.id = k.scope)
					AND NOT EXISTS (SELECT FROM informctl.object o WHERE o.scope = k.scope AND o.key = k.key) RETURNING *)
			INSERT INTO kube.history (scope, cluster, resource, seq, change, at, after, namespace, name, uid, rv, object)
			SELECT g.scope, g.cluster, g.resource, -g.rv, 'deleted', $3, (SELECT as_of FROM kube.place WHERE scope = $1), g.namespace, g.name, g.uid, g.rv, g.object FROM gone g
			WHERE $4 AND NOT EXISTS (SELECT FROM informctl.change c WHERE c.scope = $1 AND c.seq > $2 AND c.key = g.key AND c.uid = g.uid)
			ON CONFLICT DO NOTHING`), s.id, s.last.seq, s.lastAt, withHistory); err != nil {
			return err
		}
		// The place is where the log ended before the objects were compared: what has
		// changed meanwhile is read from there, and again.
		b := &pgx.Batch{}
		queuePlace(b, s, s.last, s.lastAt, skipped)
		return tx.SendBatch(ctx, b).Close()
	})
}

// published returns a part of the published objects, in the order of keys.
func (p *projector) published(ctx context.Context, s projected, after []byte) ([]projectedRow, error) {
	rows, err := p.db.pool.Query(ctx, p.db.sql(`SELECT key, namespace, name, uid, rv, form, data FROM (
			SELECT *, sum(octet_length(data)) OVER (ORDER BY key) - octet_length(data) AS before
			FROM (SELECT key, namespace, name, uid, rv, form, data FROM informctl.object WHERE scope = $1 AND key > $2 ORDER BY key LIMIT $3) o
		) t WHERE before < $4 ORDER BY key`), s.id, after, projectRows, projectBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r projectedRow, err error) {
		err = row.Scan(&r.key, &r.namespace, &r.name, &r.uid, &r.rv, &r.form, &r.data)
		return r, err
	})
}

// writeObjects writes the objects that differ and what has changed. Of a scope's first
// objects nothing is known to have. An object that was replaced by another of its name
// was deleted, no later than the last mark was written. One that is new was created
// before the log tells how it has changed, and its first state is not known: it is that
// of now. The content is compared, too: another version of a custom resource may have
// changed it at the same resource version.
func (p *projector) writeObjects(ctx context.Context, s projected, rows []projectedRow, isFirst bool) error {
	if len(rows) == 0 {
		return nil
	}
	var objects sqlObjects
	for _, r := range rows {
		objects.add(r)
	}
	return pgx.BeginFunc(ctx, p.db.pool, func(tx pgx.Tx) error {
		if err := p.fence(ctx, tx, s); err != nil {
			return err
		}
		b := &pgx.Batch{}
		if !isFirst {
			b.Queue(p.db.sql(`INSERT INTO kube.history (scope, cluster, resource, seq, change, at, after, namespace, name, uid, rv, object)
				SELECT $1, $2, $3, -k.rv, 'deleted', $11, (SELECT as_of FROM kube.place WHERE scope = $1),
					k.namespace, k.name, k.uid, k.rv, k.object
				FROM `+ofSQL+` JOIN kube.object k ON k.scope = $1 AND k.key = t.key
				WHERE k.uid <> t.uid
					AND NOT EXISTS (SELECT FROM informctl.change c WHERE c.scope = $1 AND c.seq > $10 AND c.key = k.key AND c.uid = k.uid)
				ON CONFLICT DO NOTHING`), append(objects.args(s), s.last.seq, s.lastAt)...)
			b.Queue(p.db.sql(`INSERT INTO kube.history (scope, cluster, resource, seq, change, at, after, namespace, name, uid, rv, object)
				SELECT $1, $2, $3, -t.rv, CASE WHEN k.uid = t.uid THEN 'updated' ELSE 'created' END, coalesce(l.at - interval '1 microsecond', clock_timestamp()),
					(SELECT as_of FROM kube.place WHERE scope = $1), t.namespace, t.name, t.uid, t.rv, t.object::jsonb
				FROM `+ofSQL+` LEFT JOIN kube.object k ON k.scope = $1 AND k.key = t.key
				LEFT JOIN (SELECT key, min(at) AS at FROM informctl.change WHERE scope = $1 AND seq > $10 GROUP BY key) l ON l.key = t.key
				WHERE (k.key IS NULL OR k.rv <> t.rv OR k.uid <> t.uid OR k.object <> t.object::jsonb)
					AND NOT EXISTS (SELECT FROM informctl.change c WHERE c.scope = $1 AND c.seq > $10 AND c.key = t.key AND c.rv <= t.rv
						AND (k.uid = t.uid OR c.kind IN ('A', 'a')))
				ON CONFLICT DO NOTHING`), append(objects.args(s), s.last.seq)...)
		}
		objects.queue(b, s)
		return tx.SendBatch(ctx, b).Close()
	})
}
