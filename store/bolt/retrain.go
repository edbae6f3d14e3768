package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// A dictionary is trained on the first objects of a scope. Later objects may repeat each
// other in other ways: a rollout changes what pods have in common, and the first
// namespaces of a list need not resemble the others. Therefore, after every retrainBytes
// of payloads, a new dictionary is trained on recently written objects and compared with
// the current one. Retrain does the same for a whole file.

const (
	// retrainBytes is the number of payload bytes that are compressed between two trials.
	// A trial takes 0.3 s of one core.
	retrainBytes = 128 << 20
	// trialSamples is the number of samples of a trial: one half trains the new
	// dictionary, the other half tests it.
	trialSamples = 2 * codec.MinSamples
	// maxDictionaries bounds the dictionaries of a scope, because each takes memory and
	// only Retrain removes any.
	maxDictionaries = 8
	// retrainTx is how many bytes of records Retrain rewrites in one transaction.
	retrainTx = 8 << 20
)

// trials decides when a scope tries another dictionary.
type trials struct {
	mu      sync.Mutex // protects the fields below
	every   int        // bytes between two trials
	bytes   int        // compressed since the last trial
	samples [][]byte   // payloads that were written since the next trial is due
}

// next counts the payloads of entries. It returns samples when the next trial is due and
// enough samples were written, else nil.
func (t *trials) next(entries []*entry) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range entries {
		if e.payload.dictionary != notCompressed || len(e.payload.bytes) < minCompressed {
			continue
		}
		if t.bytes += len(e.payload.bytes); t.bytes >= t.every {
			t.samples = append(t.samples, e.payload.bytes)
		}
	}
	if len(t.samples) < trialSamples {
		return nil
	}
	samples := t.samples
	t.bytes, t.samples = 0, nil
	return samples
}

// try trains a dictionary on half of the samples. It returns the compressor, or nil if
// the samples are not suitable, and the size of the other half compressed with the new
// dictionary and as old computes it.
func try(samples [][]byte, old func([]byte) int) (z *codec.Zstd, is, was int) {
	var half, other [][]byte
	for i, sample := range samples {
		if i%2 == 0 {
			half = append(half, sample)
		} else {
			other = append(other, sample)
		}
	}
	z = compressorOf(half)
	if z == nil {
		return nil, 0, 0
	}
	for _, payload := range other {
		is += len(z.Compress(nil, payload))
		was += old(payload)
	}
	return z, is, was
}

// compressorOf returns a compressor with a dictionary that is trained on payloads, or nil
// if the payloads are not suitable.
func compressorOf(payloads [][]byte) *codec.Zstd {
	dictionary, err := codec.TrainDictionary(payloads)
	if err != nil {
		return nil // the objects are small, few, or random
	}
	z, err := codec.NewZstd(dictionary)
	if err != nil {
		return nil
	}
	return z
}

// with returns a copy of d in which z is the current dictionary.
func (d *dictionaries) with(z *codec.Zstd) *dictionaries {
	next := &dictionaries{current: plainZstd + 1, byID: maps.Clone(d.byID)}
	for id := range next.byID {
		next.current = max(next.current, id+1)
	}
	next.byID[next.current] = z
	return next
}

// retrain returns dictionaries with a new current one, if the samples show that it saves
// a fifth; else it returns d.
func (d *dictionaries) retrain(samples [][]byte) *dictionaries {
	if len(d.byID) > maxDictionaries {
		return d
	}
	old := d.byID[d.current]
	z, is, was := try(samples, func(payload []byte) int { return len(old.Compress(nil, payload)) })
	if z == nil || 5*is > 4*was {
		return d
	}
	return d.with(z)
}

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
		s := &Store{db: d, id: info.ID, scope: info.Scope}
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
func (s *Store) betterDictionary() (better *dictionaries, err error) {
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
		every := max(1, int(m.Objects.Count)/(2*trialSamples))
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
			if len(payload) < minCompressed {
				continue
			}
			if rec.Dictionary == notCompressed {
				payload = append([]byte(nil), payload...)
			}
			samples = append(samples, payload)
			stored[&payload[0]] = len(rec.Payload)
		}
		return nil
	})
	if err != nil || len(samples) < trialSamples {
		return nil, err
	}
	z, is, was := try(samples, func(payload []byte) int { return stored[&payload[0]] })
	if z == nil || 20*is > 19*was {
		return nil, nil
	}
	if all := compressorOf(samples); all != nil {
		z = all
	}
	return s.dictionaries.Load().with(z), nil
}

// unpackRecord returns a stored record and its uncompressed payload. If the record is not
// compressed, the payload is part of b.
func (s *Store) unpackRecord(d *dictionaries, key string, b []byte) (rec record.Record, payload []byte, err error) {
	if rec, err = record.Decode(key, b); err == nil {
		payload, err = d.unpack(packed{dictionary: rec.Dictionary, bytes: rec.Payload}, nil)
	}
	if err != nil {
		return rec, nil, s.db.corrupt("object "+key, err)
	}
	return rec, payload, nil
}

// repack rewrites the records after a key with the current dictionary, up to retrainTx
// bytes of them. After the last record it drops the other dictionaries.
func (s *Store) repack(tx *bbolt.Tx, d *dictionaries, after []byte) (n int, last []byte, more bool, err error) {
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
		p := d.pack(packed{bytes: payload})
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
	if err := w.dictionary(d.current); err != nil {
		return 0, nil, false, err
	}
	if !more {
		if err := w.dropDictionariesBut(d.current); err != nil {
			return 0, nil, false, err
		}
	}
	return len(puts), last, more, writeManifest(w.scope, w.m)
}

// dropDictionariesBut drops the dictionaries that no record uses any more.
func (w *writer) dropDictionariesBut(id uint64) error {
	b := w.scope.Bucket(bucketDictionaries)
	used, err := departedDictionaries(w.scope)
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
