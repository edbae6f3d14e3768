package postgres

// objectRows are the columns of rows of the table object.
type objectRows struct {
	keys, datas       [][]byte
	namespaces, names []string
	uids              []string
	rvs, hashes       []int64
	forms             []int16
}

func (o *objectRows) add(r *row) {
	o.keys, o.datas = append(o.keys, r.key), append(o.datas, r.data)
	o.namespaces, o.names, o.uids = append(o.namespaces, r.namespace), append(o.names, r.name), append(o.uids, r.uid)
	o.rvs, o.hashes, o.forms = append(o.rvs, r.rv), append(o.hashes, r.hash), append(o.forms, int16(r.form))
}

const unnested = "unnest($2::bytea[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::smallint[], $9::bytea[])"

// queue inserts or replaces the rows.
func (o *objectRows) queue(b *batch, db *DB, scope int64) {
	if len(o.keys) == 0 {
		return
	}
	b.Queue(db.sql(`INSERT INTO informctl.object (scope, key, namespace, name, uid, rv, hash, form, data)
		SELECT $1, t.* FROM `+unnested+` AS t
		ON CONFLICT (scope, key) DO UPDATE SET uid = excluded.uid, rv = excluded.rv, hash = excluded.hash, form = excluded.form, data = excluded.data`),
		scope, o.keys, o.namespaces, o.names, o.uids, o.rvs, o.hashes, o.forms, o.datas)
}

// stage inserts or replaces the rows in the table staging.
func (o *objectRows) stage(b *batch, db *DB, scope, list int64) {
	b.Queue(db.sql(`INSERT INTO informctl.staging (scope, list, key, namespace, name, uid, rv, hash, form, data)
		SELECT $1, $10, t.* FROM `+unnested+` AS t
		ON CONFLICT (scope, list, key) DO UPDATE SET uid = excluded.uid, rv = excluded.rv, hash = excluded.hash, form = excluded.form, data = excluded.data`),
		scope, o.keys, o.namespaces, o.names, o.uids, o.rvs, o.hashes, o.forms, o.datas, list)
}

// logRows are the columns of rows of the table change.
type logRows struct {
	seq, bytes              int64 // of the last row
	seqs, rvs, sums         []int64
	kinds                   []string
	caughts                 []bool
	keys, datas             [][]byte
	namespaces, names, uids []*string
	forms                   []*int16
}

// newLogRows returns no rows, after the row with the number seq.
func newLogRows(seq, bytes int64) *logRows { return &logRows{seq: seq, bytes: bytes} }

func (l *logRows) head(k kind, rv int64, caught bool, size int) {
	l.seq++
	l.bytes += int64(size)
	l.seqs, l.rvs, l.sums = append(l.seqs, l.seq), append(l.rvs, rv), append(l.sums, l.bytes)
	l.kinds, l.caughts = append(l.kinds, string(k)), append(l.caughts, caught)
}

func (l *logRows) add(r *row, caught bool) {
	l.head(r.kind, r.rv, caught, len(r.data))
	form := int16(r.form)
	l.keys, l.datas, l.forms = append(l.keys, r.key), append(l.datas, r.data), append(l.forms, &form)
	l.namespaces, l.names, l.uids = append(l.namespaces, &r.namespace), append(l.names, &r.name), append(l.uids, &r.uid)
}

// mark adds a row without an object.
func (l *logRows) mark(rv int64, caught bool) { l.bare(mark, rv, caught) }

func (l *logRows) bare(k kind, rv int64, caught bool) {
	l.head(k, rv, caught, 0)
	l.keys, l.datas, l.forms = append(l.keys, nil), append(l.datas, nil), append(l.forms, nil)
	l.namespaces, l.names, l.uids = append(l.namespaces, nil), append(l.names, nil), append(l.uids, nil)
}

// queue inserts the rows. If it is called again, because the commit is tried again, they
// do not say that the publisher has caught up: that may have been known too long ago.
func (l *logRows) queue(b *batch, db *DB, scope, tx int64) {
	b.Queue(db.sql(`INSERT INTO informctl.change (scope, tx, seq, kind, rv, caught, bytes, key, namespace, name, uid, form, data)
		SELECT $1, $2, t.* FROM unnest($3::bigint[], $4::text[], $5::bigint[], $6::boolean[], $7::bigint[], $8::bytea[], $9::text[], $10::text[], $11::text[], $12::smallint[], $13::bytea[]) AS t`),
		scope, tx, l.seqs, l.kinds, l.rvs, l.caughts, l.sums, l.keys, l.namespaces, l.names, l.uids, l.forms, l.datas)
	clear(l.caughts)
}
