package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/changelog"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// badBlock is the cause of the error of eachBlock for a damaged block.
type badBlock struct {
	number uint64
	error
}

// Unwrap returns the result of the failed check.
func (b *badBlock) Unwrap() error { return b.error }

// eachBlock calls fn with the blocks of the log that may contain items from a number on,
// until fn returns false. What fn gets is valid until the snapshot's transaction ends.
func (s *scopeStore) eachBlock(sn *snapshot, from uint64, fn func(*record.Block) bool) error {
	b := sn.logBucket()
	if b == nil {
		return nil
	}
	start := changelog.Key(from)
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
	return s.walkLog(b, start, fn)
}

// logScope returns the bucket of the scope with its log, nil if there is none.
func (sn *snapshot) logScope() *bbolt.Bucket {
	if sn.scope == nil {
		return sn.left
	}
	return sn.scope
}

func (sn *snapshot) logBucket() *bbolt.Bucket {
	if b := sn.logScope(); b != nil {
		return b.Bucket(layout.Log)
	}
	return nil
}

// walkLog calls fn with the blocks whose keys are not below start.
func (s *scopeStore) walkLog(b *bbolt.Bucket, start []byte, fn func(*record.Block) bool) error {
	c := b.Cursor()
	for k, v := c.Seek(start); k != nil; k, v = c.Next() {
		if len(k) != 8 {
			return s.db.corrupt("log of "+s.scope.String(), changelog.ErrKey)
		}
		number := binary.BigEndian.Uint64(k)
		block, err := record.DecodeBlock(number, v)
		if err != nil {
			return s.db.corrupt(fmt.Sprintf("log of %s at %d", s.scope, number), &badBlock{number, err})
		}
		if !fn(block) {
			return nil
		}
	}
	return nil
}

// beginOfLog returns the time of the oldest block of a scope's log, or of the first one
// that is not of a clock that was ahead; zero if there is none.
func beginOfLog(scope *bbolt.Bucket) (begin time.Time) {
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

// eachReadable calls fn with the blocks of the log from a number on, but those that are
// damaged, until fn returns false.
func (s *scopeStore) eachReadable(sn *snapshot, start uint64, fn func(*record.Block) bool) error {
	b := sn.logBucket()
	if b == nil {
		return nil
	}
	for {
		err := s.walkLog(b, changelog.Key(start), fn)
		var bad *badBlock
		if !errors.As(err, &bad) {
			return err
		}
		s.db.opts.Logger.Error(err, "A damaged part of the log is passed over")
		start = bad.number + 1
	}
}
