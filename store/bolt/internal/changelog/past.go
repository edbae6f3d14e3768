package changelog

import (
	"fmt"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Before returns the state of each key before its first change from an item of the log
// on, which the log must have. What it returns is part of the file's memory.
func (r *Reader) Before(from uint64) (over overlay.View, err error) {
	full, err := r.Full()
	if err != nil {
		return over, err
	}
	if from <= full {
		return over, store.ErrTrimmed
	}
	over = overlay.NewView()
	expect, gap := from, false
	var bad error
	err = r.EachHead(from, func(b *record.Block) bool {
		if b.Last() < from {
			return true
		}
		if gap = b.First() > expect; gap {
			return false
		}
		expect = b.Last() + 1
		for i := range b.Entries {
			e := &b.Entries[i]
			if e.Number < from || over.Has(e.Key) {
				continue
			}
			if err := r.Check(b); err != nil {
				bad = Cut(err)
				return false
			}
			was, err := r.stateBefore(e)
			if err != nil {
				bad = err
				return false
			}
			over.Put(was)
		}
		return true
	})
	switch {
	case bad != nil:
		return over, bad
	case err != nil:
		return over, Cut(err)
	case gap, expect <= r.Log.Last:
		return over, store.ErrTrimmed
	}
	return over, nil
}

// stateBefore returns the state before an entry of the log in the form of a pending one.
func (r *Reader) stateBefore(e *record.LogEntry) (*overlay.Entry, error) {
	was := &overlay.Entry{Key: e.Key, Name: e.OwnKey()}
	switch {
	case e.Kind&record.KindUnknown != 0:
		return nil, fmt.Errorf("%w: the state of %q is not known", store.ErrTrimmed, e.OwnKey())
	case e.Header == nil, e.Kind&record.KindShort != 0:
		return was, nil
	}
	head, err := r.Seal.Header(seal.InScope, e.Key, e.Header)
	if err != nil {
		return nil, r.Unreadable("header "+e.Key, err)
	}
	rec, err := record.Decode(e.Key, e.Record)
	if err != nil {
		return nil, r.Unreadable("object "+e.Key, err)
	}
	payload := rec.Payload
	if rec.DataKey != 0 {
		if payload, err = r.Seal.AppendPayload(nil, seal.InScope, e.Key, rec); err != nil {
			return nil, r.Unreadable("object "+e.Key, err)
		}
	}
	was.Head, was.Payload, was.Codec = head, record.Packed{Dictionary: rec.Dictionary, Bytes: payload}, rec.Codec
	return was, nil
}
