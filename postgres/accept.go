package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"k8s.io/klog/v2"

	"github.com/informctl/informctl/postgres/internal/raw"
)

// writeBytes bounds the JSON that Project writes at once.
var writeBytes = 32 << 20

// decoded decodes the first rows, n of them, whose JSON is written at once. It returns
// those with an object, and why others are skipped.
func decoded(d *decoder, rows []projectedRow) (n int, objects []projectedRow, skipped []string) {
	for size := 0; n < len(rows) && size < writeBytes; n++ {
		r := rows[n]
		if r.kind == mark {
			continue
		}
		var err error
		if r.json, err = jsonOf(d, r); err != nil {
			skipped = append(skipped, because(r, err))
			continue
		}
		size += len(r.json)
		objects = append(objects, r)
	}
	return n, objects, skipped
}

func because(r projectedRow, err error) string {
	return fmt.Sprintf("%s/%s: %v", r.namespace, r.name, err)
}

// accepted calls write with the objects that the database takes, and with why others are
// skipped, to which it adds those that are refused: by jsonb, as a number that is too
// large, or by an index that the tables were given, as a value that is too long for it.
// It looks for these only if the database refuses something. It returns all that is
// skipped.
func (p *projector) accepted(ctx context.Context, s projected, objects []projectedRow, skipped []string, write func(fine []projectedRow, skipped []string) error) ([]string, error) {
	err := write(objects, skipped)
	if !isOfData(err) {
		return skipped, err
	}
	var fine []projectedRow
	for _, r := range objects {
		switch err := p.try(ctx, s, r); {
		case isOfData(err):
			skipped = append(skipped, because(r, err))
		case err != nil:
			return nil, err
		default:
			fine = append(fine, r)
		}
	}
	return skipped, write(fine, skipped)
}

// try writes one object, and takes that back.
func (p *projector) try(ctx context.Context, s projected, r projectedRow) error {
	tx, err := p.db.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	b := &pgx.Batch{}
	if r.kind != deleted && r.kind != gone {
		var one sqlObjects
		one.add(r)
		one.queue(b, s)
	}
	b.Queue(`INSERT INTO kube.history (scope, cluster, resource, seq, change, at, namespace, name, uid, rv, object)
		VALUES ($1, $2, $3, $4, 'updated', clock_timestamp(), $5, $6, $7, $8, $9::text::jsonb)`,
		s.id, s.cluster, s.resource, r.seq, r.namespace, r.name, r.uid, r.rv, r.json)
	return tx.SendBatch(ctx, b).Close()
}

// logSkipped says that objects were skipped, and why the first one was.
func logSkipped(ctx context.Context, s projected, skipped []string) {
	if len(skipped) > 0 {
		klog.FromContext(ctx).Info("Objects are left out of SQL", "resource", s.resource, "cluster", s.cluster, "because", skipped[0], "count", len(skipped))
	}
}

func jsonOf(d *decoder, r projectedRow) (string, error) {
	if r.form == nil {
		return "", errors.New("it has no content")
	}
	obj, err := d.decode(raw.Form(*r.form), r.data)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(obj)
	if err != nil {
		return "", err
	}
	return string(withoutNUL(b)), nil
}

// withoutNUL replaces U+0000, which a string of Kubernetes may have and jsonb has not, by
// U+FFFD.
func withoutNUL(b []byte) []byte {
	nul := []byte(`\u0000`)
	for from := 0; ; {
		i := bytes.Index(b[from:], nul)
		if i < 0 {
			return b
		}
		i += from
		backslashes := 0
		for j := i - 1; j >= 0 && b[j] == '\\'; j-- {
			backslashes++
		}
		if backslashes%2 == 0 { // else the backslash is itself escaped
			copy(b[i:], `\ufffd`)
		}
		from = i + 1
	}
}
