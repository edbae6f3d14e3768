package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// batch is statements that are sent at once, without a prepared statement, which a pooler
// of transactions does not have. Its parameters are binary: pgx sends them as text in
// that case, bytes in hexadecimal.
type batch struct {
	types *pgtype.Map
	batch pgconn.Batch
	err   error // of a parameter
}

func newBatch(tx pgx.Tx) *batch { return &batch{types: tx.Conn().TypeMap()} }

// Queue adds a statement.
func (b *batch) Queue(sql string, args ...any) {
	values := make([][]byte, len(args))
	oids := make([]uint32, len(args))
	formats := make([]int16, len(args))
	for i, arg := range args {
		t, ok := b.types.TypeForValue(arg)
		if !ok {
			b.err = errors.Join(b.err, fmt.Errorf("a parameter is a %T, which has no type in PostgreSQL", arg))
			return
		}
		// Of a nil buffer, an empty text would be NULL.
		v, err := b.types.Encode(t.OID, pgtype.BinaryFormatCode, arg, []byte{})
		b.err = errors.Join(b.err, err)
		values[i], oids[i], formats[i] = v, t.OID, pgtype.BinaryFormatCode
	}
	b.batch.ExecParams(sql, values, oids, formats, nil)
}

// send sends the statements.
func (b *batch) send(ctx context.Context, tx pgx.Tx) (*results, error) {
	if b.err != nil {
		return nil, b.err
	}
	return &results{tx.Conn().PgConn().ExecBatch(ctx, &b.batch)}, nil
}

// results are read in the order of the statements.
type results struct{ reader *pgconn.MultiResultReader }

// next reads the first row of the next statement, nil if it has none. Its columns are
// text.
func (r *results) next() ([]string, error) {
	if !r.reader.NextResult() {
		if err := r.reader.Close(); err != nil {
			return nil, err
		}
		return nil, errors.New("the database has answered fewer statements than were sent")
	}
	result := r.reader.ResultReader()
	var row []string
	for result.NextRow() {
		if row != nil {
			continue
		}
		row = []string{}
		for _, column := range result.Values() {
			row = append(row, string(column))
		}
	}
	_, err := result.Close()
	return row, err
}

// close reads the rest. It returns the first error.
func (r *results) close() error { return r.reader.Close() }
