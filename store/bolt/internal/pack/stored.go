package pack

import (
	"encoding/binary"
	"errors"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/pagefile"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Load reads the dictionaries in the file. The scope's bucket may be nil.
func (p *Packer) Load(scope *bbolt.Bucket) error {
	current, stored := p.opts.Plain, map[uint64][]byte{}
	err := Each(scope, func(id uint64, b, _ []byte) error {
		if p.opts.Trains {
			current = max(current, id)
		}
		stored[id] = b
		return nil
	})
	if err != nil {
		return err
	}
	d, err := dictionary.NewSet(current, stored)
	if err == nil {
		p.dictionaries.Store(d)
		p.stored.Store(int64(len(stored)))
		p.untidy.Store(len(stored) > 1)
	}
	return err
}

// IsUntidy reports whether the file may have dictionaries that nothing uses: the caller
// has to call DropUnused.
func (p *Packer) IsUntidy() bool { return p.untidy.Load() }

// Tidied notes that a transaction was committed that has called DropUnused, and how many
// dictionaries the file has.
func (p *Packer) Tidied(stored uint64) {
	p.stored.Store(int64(stored))
	p.untidy.Store(false)
}

// Persist writes a dictionary, if it is one and the file does not contain it. It reports
// whether it has.
func (p *Packer) Persist(scope *bbolt.Bucket, m *record.Manifest, id uint64) (written bool, err error) {
	if id == dictionary.None || id == dictionary.Plain {
		return false, nil
	}
	b, err := scope.CreateBucketIfNotExists(layout.Dictionaries)
	if err != nil || b.Get(key(id)) != nil {
		return false, err
	}
	content, isKnown := p.Dictionary(id)
	if !isKnown {
		return false, fmt.Errorf("dictionary %d is not known", id)
	}
	value, err := record.Marshal(content)
	if err != nil {
		return false, err
	}
	m.Dictionaries.Add(record.Sum(value))
	return true, b.Put(key(id), value)
}

// DropUnused drops the dictionaries that neither the content, nor the former content, nor
// the log uses. A Packer keeps them, because readers may have records that are compressed
// with them. The errors are those of damage: nothing is dropped then.
func DropUnused(scope *bbolt.Bucket, m *record.Manifest) error {
	unused := map[uint64]uint32{} // id -> checksum
	err := pagefile.Guard(scope.Tx().DB().Path(), "dictionaries", func() error { return findUnused(scope, m, unused) })
	if err != nil {
		return err
	}
	for id, sum := range unused {
		if err := scope.Bucket(layout.Dictionaries).Delete(key(id)); err != nil {
			return err
		}
		m.Dictionaries.Remove(sum)
	}
	return nil
}

// findUnused adds the dictionaries that nothing uses, with their checksums.
func findUnused(scope *bbolt.Bucket, m *record.Manifest, unused map[uint64]uint32) error {
	used, err := usedByLog(scope)
	if err != nil {
		return err
	}
	contents := []record.Uses{m.Uses}
	if former := scope.Bucket(layout.Former); former != nil {
		m, err := layout.ReadManifest(m.Scope().ID(), former)
		if err != nil {
			return fmt.Errorf("former objects: %w", err)
		}
		contents = append(contents, m.Uses)
	}
	for _, uses := range contents {
		for id := range uses {
			used[id] = true
		}
	}
	return Each(scope, func(id uint64, _, stored []byte) error {
		if !used[id] {
			unused[id] = record.Sum(stored)
		}
		return nil
	})
}

// usedByLog returns the ids of the dictionaries that the log uses.
func usedByLog(scope *bbolt.Bucket) (map[uint64]bool, error) {
	used := map[uint64]bool{}
	b := scope.Bucket(layout.Log)
	if b == nil {
		return used, nil
	}
	return used, b.ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			return nil // nothing reads it
		}
		block, err := record.DecodeBlock(binary.BigEndian.Uint64(k), v)
		if err != nil {
			return nil // nothing reads it
		}
		for _, e := range block.Entries {
			for _, rec := range [][]byte{e.Record, e.Final} {
				if r, err := record.Decode(e.Key, rec); rec != nil && err == nil {
					used[r.Dictionary] = true
				}
			}
		}
		return nil
	})
}

// Each calls fn with each dictionary in the file, and with its stored form. The scope's
// bucket may be nil.
func Each(scope *bbolt.Bucket, fn func(id uint64, dictionary, stored []byte) error) error {
	if scope == nil || scope.Bucket(layout.Dictionaries) == nil {
		return nil
	}
	return scope.Bucket(layout.Dictionaries).ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			return errors.New("the key is not an id")
		}
		var dictionary []byte
		if err := record.Unmarshal(v, &dictionary); err != nil {
			return err
		}
		return fn(binary.BigEndian.Uint64(k), dictionary, v)
	})
}

func key(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

// Verify returns the dictionary ids that records may use.
func Verify(m *record.Manifest, scope *bbolt.Bucket) (map[uint64]bool, error) {
	ids := map[uint64]bool{dictionary.None: true, dictionary.Plain: true}
	var t record.Tally
	err := Each(scope, func(id uint64, _, stored []byte) error {
		ids[id] = true
		t.Add(record.Sum(stored))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dictionary: %w", err)
	}
	if t != m.Dictionaries {
		return nil, fmt.Errorf("the checksums of %d dictionaries do not add up to the manifest's, of %d", t.Count, m.Dictionaries.Count)
	}
	return ids, nil
}
