package changelog

import (
	"encoding/binary"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Verify checks the log: each block, each record in it, the numbers and the tally.
func Verify(m *record.Manifest, scope *bbolt.Bucket, dictionaries map[uint64]bool) error {
	b := scope.Bucket(layout.Log)
	if b == nil {
		if m.Log.Blocks.Count > 0 {
			return errors.New("the log is missing")
		}
		return nil
	}
	var t record.Tally
	next := uint64(0)
	err := b.ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			return fmt.Errorf("log: %w", ErrKey)
		}
		number := binary.BigEndian.Uint64(k)
		block, err := record.DecodeBlock(number, v)
		switch {
		case err != nil:
		case number < next || block.First() < number || block.Last() > m.Log.Last:
			err = errors.New("its numbers are those of other blocks")
		case number > m.Log.Full && next > m.Log.Full && next != number:
			err = fmt.Errorf("it does not follow %d", next-1)
		default:
			next = block.Last() + 1
			err = verifyBlock(block, dictionaries)
		}
		if err != nil {
			return fmt.Errorf("log at %d: %w", number, err)
		}
		t.Add(record.Sum(v))
		return nil
	})
	if err != nil {
		return err
	}
	return addsUp(m, t)
}

// VerifyTally checks that the log has all its blocks and no others, without reading them.
// Who reads one checks it.
func VerifyTally(m *record.Manifest, scope *bbolt.Bucket) error {
	var t record.Tally
	if b := scope.Bucket(layout.Log); b != nil {
		c := b.Cursor()
		for k, v := c.First(); k != nil; k, v = c.Next() {
			t.Add(record.Sum(v))
		}
	}
	return addsUp(m, t)
}

func addsUp(m *record.Manifest, t record.Tally) error {
	if t != m.Log.Blocks {
		return fmt.Errorf("the checksums of %d blocks of the log do not add up to the manifest's, of %d", t.Count, m.Log.Blocks.Count)
	}
	return nil
}

func verifyBlock(block *record.Block, dictionaries map[uint64]bool) error {
	for _, e := range block.Entries {
		var err error
		if e.Header != nil {
			_, err = record.DecodeHeader(e.Key, e.Header)
			if err == nil {
				err = verifyState(e.Key, e.Record, dictionaries)
			}
		}
		if err == nil && e.Final != nil {
			err = verifyState(e.Key, e.Final, dictionaries)
		}
		if err != nil {
			return fmt.Errorf("before %d: %w", e.Number, err)
		}
	}
	return nil
}

func verifyState(key string, state []byte, dictionaries map[uint64]bool) error {
	r, err := record.Decode(key, state)
	if err == nil && !dictionaries[r.Dictionary] {
		err = fmt.Errorf("dictionary %d is missing", r.Dictionary)
	}
	return err
}
