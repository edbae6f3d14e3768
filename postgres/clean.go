package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"
)

// forget deletes the place and the objects of a scope whose number was another's: the
// feed was dropped and made anew. What that had is no past of this scope.
func (p *projector) forget(ctx context.Context, s projected) error {
	return pgx.BeginFunc(ctx, p.db.pool, func(tx pgx.Tx) error {
		if err := p.fence(ctx, tx, s); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue("DELETE FROM kube.object WHERE scope = $1", s.id)
		b.Queue("DELETE FROM kube.place WHERE scope = $1", s.id)
		return tx.SendBatch(ctx, b).Close()
	})
}

// superseded is whether nobody publishes scope s, and the same resource is published
// under another Kind instead, as that of another version. Two that are published have
// marks each minute, so that neither is superseded while a publisher follows another.
const superseded = `(NOT EXISTS (SELECT FROM informctl.lease le WHERE le.grp = s.grp AND le.holder = s.holder AND le.expires > clock_timestamp())
	AND EXISTS (SELECT FROM informctl.scope o WHERE o.id <> s.id AND o.complete AND o.cluster = s.cluster AND o.resource = s.resource
		AND o.namespace = s.namespace AND o.label_selector = s.label_selector AND o.field_selector = s.field_selector
		AND (SELECT at FROM informctl.change WHERE scope = o.id ORDER BY seq DESC LIMIT 1) - interval '3 minutes'
			> (SELECT at FROM informctl.change WHERE scope = s.id ORDER BY seq DESC LIMIT 1)))`

// clean deletes history that is older than Keep, and what is left of scopes that were
// dropped or superseded.
func (p *projector) clean(ctx context.Context) {
	known, err := p.db.knowsAges(ctx)
	if err == nil && known {
		_, err = p.db.pool.Exec(ctx, "DELETE FROM kube.history WHERE at < clock_timestamp() - $1 * interval '1 second'", int64(p.opts.Keep.Seconds()))
	}
	if err == nil {
		_, err = p.db.pool.Exec(ctx, p.db.sql("DELETE FROM kube.object k WHERE NOT EXISTS (SELECT FROM informctl.scope s WHERE s.id = k.scope AND NOT "+superseded+")"))
	}
	if err == nil {
		_, err = p.db.pool.Exec(ctx, p.db.sql("DELETE FROM kube.place k WHERE NOT EXISTS (SELECT FROM informctl.scope s WHERE s.id = k.scope AND NOT "+superseded+")"))
	}
	if err != nil && !isOver(ctx) {
		klog.FromContext(ctx).Info("History was not trimmed", "err", err.Error())
	}
}
