package bolt

import (
	"cmp"
	"encoding/binary"
	"errors"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/boltfile"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Stage implements listing.Content. The first call of a relist drops what an earlier
// relist may have left in the staging bucket.
func (r *relist) Stage(entries []*overlay.Entry, first bool) error {
	s := r.s
	if s.noBucket.Load() {
		return errors.New("nothing of the scope is in the file yet")
	}
	r.wrote = true
	packed, err := r.packer.Pack(seal.InStaging, entries)
	if err != nil {
		return err
	}
	return s.db.update("staging of "+s.scope.String(), func(tx *bbolt.Tx) (err error) {
		if r.Lost() != nil {
			return nil // else it would be in a file that was wiped
		}
		scope := s.bucket(tx)
		if scope == nil {
			return s.db.corrupt("scope "+s.scope.String(), errors.New("missing"))
		}
		if err := s.seal.Persist(tx); err != nil {
			return err
		}
		if first && scope.Bucket(layout.Staging) != nil {
			if err := scope.DeleteBucket(layout.Staging); err != nil {
				return err
			}
		}
		b, err := scope.CreateBucketIfNotExists(layout.Staging)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if e.Head == nil {
				if err := b.Delete([]byte(e.Key)); err != nil {
					return err
				}
				continue
			}
			if err := b.Put([]byte(e.Key), encodeStaged(e, s.codec.ID(), packed[i])); err != nil {
				return err
			}
		}
		return nil
	})
}

// A staged entry is the length of its header, its header and its record. Its dictionary
// and its data key may be missing in the file, because only this process reads it.
func encodeStaged(e *overlay.Entry, codecID byte, p record.Packed) []byte {
	head := e.Stored(p).Encode(e.Key)
	b := binary.AppendUvarint(nil, uint64(len(head)))
	b = append(b, head...)
	return append(b, p.Record(codecID).Encode(e.Key)...)
}

func (r *relist) decodeStaged(key string, b []byte) (*overlay.Entry, error) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n > uint64(len(b)-w) {
		return nil, record.ErrShort
	}
	b = b[w:]
	head, err := r.s.seal.Header(seal.InStaging, key, b[:n])
	if err != nil {
		return nil, err
	}
	rec, err := record.Decode(key, b[n:])
	if err != nil {
		return nil, err
	}
	payload, err := r.s.seal.AppendPayload(nil, seal.InStaging, key, rec)
	if err != nil {
		return nil, err
	}
	return &overlay.Entry{
		Key: key, Name: cmp.Or(head.Name, key), Head: head, Payload: record.Packed{Dictionary: rec.Dictionary, Bytes: payload},
	}, nil
}

// Staged implements listing.Content.
func (r *relist) Staged(after string, bytes int) (entries []*overlay.Entry, err error) {
	err = r.s.db.view("staging", func(tx *bbolt.Tx) error {
		scope := r.s.bucket(tx)
		if scope == nil || scope.Bucket(layout.Staging) == nil {
			return r.s.db.corrupt("staging of "+r.s.scope.String(), errors.New("missing"))
		}
		c := scope.Bucket(layout.Staging).Cursor()
		k, v := c.Seek([]byte(after))
		for n := 0; k != nil && n < bytes; k, v = c.Next() {
			if string(k) == after {
				continue
			}
			e, err := r.decodeStaged(string(k), v)
			if err != nil {
				return r.s.db.corrupt("staged "+string(k), err)
			}
			entries = append(entries, e)
			n += len(v)
		}
		return nil
	})
	if errors.Is(err, boltfile.ErrNoHandle) {
		return entries, r.giveUp(err)
	}
	// The next list writes the staging anew: damage in it costs only this one.
	return entries, err
}

// dropStaging drops the staging bucket of a relist that did not end.
func (s *scopeStore) dropStaging() error {
	if s.noBucket.Load() {
		return nil
	}
	left := false
	where := "staging of " + s.scope.String()
	err := s.db.view(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		left = b != nil && b.Bucket(layout.Staging) != nil
		return nil
	})
	if err != nil || !left {
		return err
	}
	return s.db.update(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		if b == nil || b.Bucket(layout.Staging) == nil {
			return nil // lost with the file meanwhile
		}
		return b.DeleteBucket(layout.Staging)
	})
}
