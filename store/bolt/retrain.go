package bolt

import (
	"context"
	"encoding/binary"
	"fmt"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// retrainTx is how many bytes of records Retrain rewrites in one transaction.
const retrainTx = 8 << 20

// Retrain trains a new dictionary for each scope on objects of the whole scope, and
// rewrites the scope's records with it if that makes them smaller by at least a
// twentieth. It does not change a scope without a dictionary: Options.Compression or
// encryption may be the reason. It reports whether it has rewritten any scope. The file
// grows by what is written; bbolt's Compact writes a copy without the free space. After
// every transaction Retrain calls progress with the number of records written so far.
//
// Each transaction leaves a valid file. Retrain begins no transaction after ctx has ended
// and then returns the error of ctx. It returns store.ErrLocked if another process has
// the file open. Other errors are those of OpenReadOnly.
func Retrain(ctx context.Context, path string, progress func(records int)) (retrained bool, err error) {
	opts := Options{}
	opts.applyDefaults()
	d, err := newDB(path, opts, false)
	if err != nil {
		return false, err
	}
	if err := d.openFile(reopening); err != nil {
		return false, fmt.Errorf("open cache: %w", err)
	}
	defer func() {
		if closeErr := d.closeHandle(d.handle); err == nil {
			err = closeErr
		}
	}()
	infos, err := d.Scopes()
	if err != nil {
		return false, err
	}
	records := 0
	for _, info := range infos {
		s := &scopeStore{db: d, id: info.ID, scope: info.Scope}
		better, err := s.betterDictionary()
		if err != nil {
			return retrained, err
		}
		if better == nil {
			continue
		}
		s.dictionaries.Store(better)
		retrained = true
		for after, more := []byte(nil), true; more; {
			if err := ctx.Err(); err != nil {
				return retrained, err
			}
			n := 0
			where := "records of " + s.scope.String()
			if err := d.tryUpdate(where, func(tx *bbolt.Tx) (err error) {
				n, after, more, err = s.repack(tx, better, after)
				return err
			}); err != nil {
				return retrained, err
			}
			records += n
			progress(records)
		}
	}
	return retrained, nil
}

// betterDictionary returns the scope's dictionaries with a new current one, or nil if
// that would save too little.
func (s *scopeStore) betterDictionary() (better *dictionary.Set, err error) {
	where := "records of " + s.scope.String()
	var samples [][]byte
	stored := map[*byte]int{} // the compressed size by payload
	err = s.db.view(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		m, err := readManifest(s.id, b)
		if err != nil {
			return s.db.corrupt("scope "+s.scope.String(), err)
		}
		if m.Keys != "" {
			return nil // a dictionary contains content: see Options.EncryptAll
		}
		if err := s.loadDictionaries(b); err != nil || m.Dictionaries.Count == 0 {
			return err
		}
		every := max(1, int(m.Objects.Count)/(2*dictionary.TrialSamples))
		c := b.Bucket(bucketObjects).Cursor()
		i := 0
		for k, v := c.First(); k != nil; k, v = c.Next() {
			if i++; i%every != 0 {
				continue
			}
			rec, payload, err := s.unpackRecord(s.dictionaries.Load(), string(k), v)
			if err != nil {
				return err
			}
			if len(payload) < dictionary.MinBytes {
				continue
			}
			if rec.Dictionary == dictionary.None {
				payload = append([]byte(nil), payload...)
			}
			samples = append(samples, payload)
			stored[&payload[0]] = len(rec.Payload)
		}
		return nil
	})
	if err != nil || len(samples) < dictionary.TrialSamples {
		return nil, err
	}
	z, is, was := dictionary.Try(samples, func(payload []byte) int { return stored[&payload[0]] })
	if z == nil || 20*is > 19*was {
		return nil, nil
	}
	if all := dictionary.Train(samples); all != nil {
		z = all
	}
	return s.dictionaries.Load().With(z), nil
}

// unpackRecord returns a stored record and its uncompressed payload. If the record is not
// compressed, the payload is part of b.
func (s *scopeStore) unpackRecord(d *dictionary.Set, key string, b []byte) (rec record.Record, payload []byte, err error) {
	if rec, err = record.Decode(key, b); err == nil {
		payload, err = d.Decompress(rec.Dictionary, rec.Payload, nil)
	}
	if err != nil {
		return rec, nil, s.db.corrupt("object "+key, err)
	}
	return rec, payload, nil
}

// repack rewrites the records after a key with the current dictionary, up to retrainTx
// bytes of them. After the last record it drops the other dictionaries.
func (s *scopeStore) repack(tx *bbolt.Tx, d *dictionary.Set, after []byte) (n int, last []byte, more bool, err error) {
	w, err := s.writer(tx)
	if err != nil {
		return 0, nil, false, err
	}
	type written struct{ key, value []byte }
	var puts []written
	c := w.objects.Cursor()
	k, v := c.Seek(after)
	if k != nil && string(k) == string(after) {
		k, v = c.Next()
	}
	for size := 0; k != nil && size < retrainTx; k, v = c.Next() {
		last = append([]byte(nil), k...)
		rec, payload, err := s.unpackRecord(d, string(k), v)
		if err != nil {
			return 0, nil, false, err
		}
		p := packed{bytes: payload}.compress(d)
		w.m.Objects.Remove(record.Sum(v))
		w.m.Bytes -= int64(len(v))
		rec.Dictionary, rec.Payload = p.dictionary, p.bytes
		value := rec.Encode(string(last))
		w.m.Objects.Add(record.Sum(value))
		w.m.Bytes += int64(len(value))
		puts = append(puts, written{last, value})
		size += len(v) + len(value)
	}
	more = k != nil
	for _, put := range puts { // a cursor is not valid after a change
		if err := w.objects.Put(put.key, put.value); err != nil {
			return 0, nil, false, err
		}
	}
	if err := w.dictionary(d.Current()); err != nil {
		return 0, nil, false, err
	}
	if !more {
		if err := w.repackLog(d); err != nil {
			return 0, nil, false, err
		}
		if err := w.dropDictionariesBut(d.Current()); err != nil {
			return 0, nil, false, err
		}
	}
	return len(puts), last, more, writeManifest(w.scope, w.m)
}

// repackLog writes the records of the log anew with the current dictionary. The log is
// bounded, so that one transaction is enough.
func (w *writer) repackLog(d *dictionary.Set) error {
	b := w.scope.Bucket(bucketLog)
	if b == nil {
		return nil
	}
	blocks := map[uint64][]byte{}
	err := b.ForEach(func(k, v []byte) error {
		if len(k) != 8 {
			return errLogKey
		}
		number := binary.BigEndian.Uint64(k)
		block, err := record.DecodeBlock(number, v)
		if err != nil {
			return nil // what is damaged stays as it is
		}
		for i := range block.Entries {
			e := &block.Entries[i]
			for _, state := range []*[]byte{&e.Record, &e.Final} {
				if *state == nil {
					continue
				}
				rec, payload, err := w.s.unpackRecord(d, e.Key, *state)
				if err != nil {
					return err
				}
				p := packed{bytes: payload}.compress(d)
				rec.Dictionary, rec.Payload = p.dictionary, p.bytes
				*state = rec.Encode(e.Key)
			}
		}
		blocks[number] = block.Encode(number)
		return nil
	})
	if err != nil {
		return err
	}
	l := &w.m.Log
	for number, v := range blocks {
		old := b.Get(logKey(number))
		l.Blocks.Remove(record.Sum(old))
		l.Blocks.Add(record.Sum(v))
		l.Bytes += int64(len(v) - len(old))
		if number <= l.Full {
			l.Thinned += int64(len(v) - len(old))
		}
		if err := b.Put(logKey(number), v); err != nil {
			return err
		}
	}
	return nil
}

// dropDictionariesBut drops the dictionaries that no record uses any more.
func (w *writer) dropDictionariesBut(id uint64) error {
	b := w.scope.Bucket(bucketDictionaries)
	used, err := logDictionaries(w.scope)
	if err == nil {
		err = formerDictionaries(w.scope, used)
	}
	if err != nil {
		return err
	}
	used[id] = true
	var keys [][]byte
	if err := b.ForEach(func(k, v []byte) error {
		if !used[binary.BigEndian.Uint64(k)] {
			keys = append(keys, append([]byte(nil), k...))
			w.m.Dictionaries.Remove(record.Sum(v))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
