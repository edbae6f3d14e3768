package changelog

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Reader reads the log of a scope inside a transaction, as of the last acknowledged
// commit. What it returns of the file's memory is valid until the transaction ends, but
// for events.
type Reader struct {
	Scope store.Scope
	// Bucket is that of the scope, Headers and Objects those of its content; nil if there
	// is none that may be read.
	Bucket, Headers, Objects *bbolt.Bucket
	Log                      record.LogState // as of the last acknowledged commit
	StoredRV                 string          // of the checkpoint then
	Seal                     *seal.Seal      // nil if the scope is not encrypted
	Logger                   logr.Logger
	// Corrupt returns the error of damage, Unreadable that of what may lack a key
	// instead.
	Corrupt, Unreadable func(where string, err error) error
}

func (r *Reader) bucket() *bbolt.Bucket {
	if r.Bucket == nil {
		return nil
	}
	return r.Bucket.Bucket(layout.Log)
}

// EachHead calls fn with the blocks of the log that may contain items from a number on,
// until fn returns false. What fn gets is valid until the transaction ends. The states of
// a block's entries are not checked: Check has to be called before they are used.
func (r *Reader) EachHead(from uint64, fn func(*record.Block) bool) error {
	b := r.bucket()
	if b == nil {
		return nil
	}
	start := Key(from)
	c := b.Cursor()
	// the block before may contain it
	if k, _ := c.Seek(start); string(k) != string(start) {
		if k == nil {
			k, _ = c.Last()
		} else {
			k, _ = c.Prev()
		}
		if k != nil {
			start = k
		}
	}
	return r.walk(b, start, record.DecodeHead, fn)
}

// Check checks the states of a block's entries.
func (r *Reader) Check(b *record.Block) error {
	if err := b.Check(); err != nil {
		return r.Corrupt(fmt.Sprintf("log of %s at %d", r.Scope, b.Key), err)
	}
	return nil
}

// walk calls fn with the blocks whose keys are not below start.
func (r *Reader) walk(b *bbolt.Bucket, start []byte, decode func(uint64, []byte) (*record.Block, error), fn func(*record.Block) bool) error {
	c := b.Cursor()
	for k, v := c.Seek(start); k != nil; k, v = c.Next() {
		block, err := blockOf(r.Scope, k, v, decode, r.Corrupt)
		if err != nil || !fn(block) {
			return err
		}
	}
	return nil
}

// blockOf decodes what an element of a scope's log has.
func blockOf(
	scope store.Scope, k, v []byte, decode func(uint64, []byte) (*record.Block, error), corrupt func(where string, err error) error,
) (*record.Block, error) {
	where := "log of " + scope.String()
	if len(k) != 8 {
		return nil, corrupt(where, ErrKey)
	}
	number := binary.BigEndian.Uint64(k)
	block, err := decode(number, v)
	if err != nil {
		return nil, corrupt(fmt.Sprintf("%s at %d", where, number), err)
	}
	return block, nil
}

// Begin returns the time of the oldest block of a scope's log, or of the first one
// that is not of a clock that was ahead; zero if there is none.
func Begin(scope *bbolt.Bucket) (begin time.Time) {
	b := scope.Bucket(layout.Log)
	if b == nil {
		return begin
	}
	now := time.Now()
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if at := record.BlockTime(v); !at.After(now) {
			return at
		}
		begin = now
	}
	return begin
}

// EachReadable calls fn with the blocks of the log, but those that are damaged, until fn
// returns false.
func (r *Reader) EachReadable(fn func(*record.Block) bool) {
	b := r.bucket()
	if b == nil {
		return
	}
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		block, err := blockOf(r.Scope, k, v, record.DecodeBlock, r.Corrupt)
		if err != nil {
			r.Logger.Error(err, "A damaged part of the log is passed over")
		} else if !fn(block) {
			return
		}
	}
}
