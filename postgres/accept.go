package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/informctl/informctl/postgres/internal/raw"
)

// accepted calls write with the rows whose objects jsonb takes, and with why others are
// skipped. It tries all that can be decoded first, and looks for what jsonb refuses, as a
// number that is too large, only if the database refuses something.
func (p *projector) accepted(ctx context.Context, d *decoder, rows []projectedRow, write func(fine []projectedRow, skipped []string) error) error {
	var decoded []projectedRow
	var skipped []string
	skip := func(r projectedRow, err error) {
		skipped = append(skipped, fmt.Sprintf("%s/%s: %v", r.namespace, r.name, err))
	}
	for _, r := range rows {
		var err error
		if r.json, err = jsonOf(d, r); err != nil {
			skip(r, err)
			continue
		}
		decoded = append(decoded, r)
	}
	err := write(decoded, skipped)
	if !isRefused(err) {
		return err
	}
	var fine []projectedRow
	for _, r := range decoded {
		switch _, err := p.db.pool.Exec(ctx, "SELECT $1::jsonb", r.json); {
		case isRefused(err):
			skip(r, err)
		case err != nil:
			return err
		default:
			fine = append(fine, r)
		}
	}
	return write(fine, skipped)
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
