package postgres

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/postgres/internal/raw"
)

// token is the continue token of a list.
type token struct {
	Seq, RV, Tx int64
	Key         []byte
}

// ListWithContext implements cache.ListerWithContext. The objects are those of the
// resource version, of one moment.
func (l *ListerWatcher) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if direct, _ := l.source(); direct {
		list, err := cache.ToListerWithContext(l.opts.Upstream).ListWithContext(ctx, opts)
		if err == nil && opts.Limit != 1 { // as in list
			if m, err := meta.ListAccessor(list); err == nil {
				l.reached(m.GetResourceVersion())
			}
		}
		return list, err
	}
	if opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return nil, apierrors.NewBadRequest("a list of an exact resource version is not served from PostgreSQL")
	}
	if err := checkSelectors(opts); err != nil {
		return nil, err
	}
	s, err := l.read(ctx, 0, anchor{})
	if err != nil {
		return nil, err
	}
	from := token{Seq: s.last.seq, RV: s.last.rv, Tx: s.last.tx}
	if opts.Continue != "" {
		if from, err = parseToken(opts.Continue); err != nil {
			return nil, err
		}
		if from.Seq != s.last.seq || from.Tx != s.last.tx {
			return nil, apierrors.NewResourceExpired("something has changed since the first page: the list must begin again")
		}
	} else if min, ok := parseMin(opts.ResourceVersion); !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("resource version %q is no number", opts.ResourceVersion))
	} else if min > s.last.rv {
		return nil, tooLarge(min, s.last.rv)
	}
	return l.list(ctx, s, from, opts)
}

// checkSelectors refuses what is not selected here: a scope is published whole.
func checkSelectors(opts metav1.ListOptions) error {
	if opts.LabelSelector != "" || opts.FieldSelector != "" {
		return apierrors.NewBadRequest("a published collection is listed and watched whole, without selectors")
	}
	return nil
}

func parseMin(rv string) (int64, bool) {
	if rv == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(rv, 10, 64)
	return n, err == nil && n >= 0
}

func parseToken(text string) (t token, err error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err != nil {
		return t, apierrors.NewBadRequest("the continue token is not one of this list")
	}
	return t, nil
}

// list is one statement, so that its objects and its resource version are of one moment.
func (l *ListerWatcher) list(ctx context.Context, s state, from token, opts metav1.ListOptions) (runtime.Object, error) {
	limit, text := int64(-1), "ALL"
	if opts.Limit > 0 {
		limit = opts.Limit
		text = strconv.FormatInt(limit+1, 10)
	}
	rows, err := l.db.pool.Query(ctx, l.db.sql(`SELECT l.seq, l.rv, l.tx, o.key, o.form, o.data
		FROM (SELECT seq, rv, tx FROM informctl.change WHERE scope = $1 ORDER BY seq DESC LIMIT 1) l
		LEFT JOIN LATERAL (SELECT key, form, data FROM informctl.object WHERE scope = $1 AND key > $2 ORDER BY key LIMIT `+text+`) o ON true`), s.id, append([]byte{}, from.Key...))
	if err != nil {
		return nil, l.unavailable(ctx, "list", err)
	}
	var at anchor
	var key, data []byte
	var form *int16
	items := []runtime.Object{}
	more := false
	_, err = pgx.ForEachRow(rows, []any{&at.seq, &at.rv, &at.tx, &key, &form, &data}, func() error {
		if form == nil { // no object
			return nil
		}
		if limit >= 0 && int64(len(items)) == limit {
			more = true
			return nil
		}
		obj, err := l.decoder.decode(raw.Form(*form), data)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		items, from.Key = append(items, obj), append([]byte(nil), key...)
		return nil
	})
	switch {
	case apierrors.IsInternalError(err):
		return nil, err
	case err != nil:
		return nil, l.unavailable(ctx, "list", err)
	case at.seq < from.Seq || at.rv < from.RV:
		return nil, errGone // a failover, or the scope was dropped
	case opts.Continue != "" && (at.seq != from.Seq || at.tx != from.Tx):
		return nil, apierrors.NewResourceExpired("something has changed since the first page: the list must begin again")
	}
	out := &metainternalversion.List{Items: items}
	out.ResourceVersion = strconv.FormatInt(at.rv, 10)
	if more {
		from.Seq, from.RV, from.Tx = at.seq, at.rv, at.tx
		b, err := json.Marshal(from)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		out.Continue = base64.RawURLEncoding.EncodeToString(b)
	}
	// One object tells a caller where the database is, and is no state that it has.
	r := receipt{anchor: at, since: s.since}
	if at == s.last {
		r.newest = &s.newest
	}
	switch {
	case limit == 1:
	case more:
		l.delivered(r)
	default:
		l.listed(r)
	}
	return out, nil
}
