package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
)

// A dictionary is made of a scope's first objects. Those of later may repeat each
// other in another way: a rollout changes what pods have in common, and the first
// namespaces of a list need not be like the others. So now and then, by what was
// written and not by the clock, another one is made of what is written then and
// tried beside the old one; and Retrain does it for a whole file.

const (
	// retrainBytes of payloads are compressed between two trials, which take 0.3 s of
	// one core.
	retrainBytes = 128 << 20
	// trialSamples are half for the new dictionary and half to try it on.
	trialSamples = 2 * codec.MinSamples
	// maxDictionaries bounds a scope's: each takes memory for good, and only Retrain
	// removes any.
	maxDictionaries = 8
	// retrainTx is how many bytes of records Retrain rewrites in one transaction.
	retrainTx = 8 << 20
)

// trials decides when a scope tries another dictionary.
type trials struct {
	mu      sync.Mutex // protects the fields below
	every   int        // bytes between two trials
	bytes   int        // compressed since the last
	samples [][]byte   // what was written since the next was due
}

// next returns samples once enough was written.
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

// try makes a dictionary of half of the samples and returns it, nil where they are no
// use, with the size of the other half by it and by old.
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

// compressorOf returns one with a dictionary of payloads; nil where they are no use.
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

// with returns dictionaries of which z is the current one.
func (d *dictionaries) with(z *codec.Zstd) *dictionaries {
	next := &dictionaries{current: plainZstd + 1, byID: maps.Clone(d.byID)}
	for id := range next.byID {
		next.current = max(next.current, id+1)
	}
	next.byID[next.current] = z
	return next
}

// retrain returns dictionaries with a better one, where samples show that there is
// one: it saves a fifth.
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

// Retrain makes each scope's dictionary anew, of objects from all of it, and writes
// its records with that, where it makes them smaller by a twentieth at least. A scope
// without one is left so: that may have been asked for, and is by encryption. It
// reports whether any was written. The file grows by what is written; a copy by
// bbolt's Compact gives that back. progress is told after every transaction how many
// records have been written.
//
// Each transaction leaves a valid file, and none is begun after ctx has ended, which
// is an error. Nobody else may have the file open: store.ErrLocked otherwise. Other
// errors are those of OpenReadOnly.
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

// betterDictionary returns the scope's dictionaries with a new one, or nil where that
// would save too little.
func (s *Store) betterDictionary() (better *dictionaries, err error) {
	where := "records of " + s.scope.String()
	var samples [][]byte
	stored := map[*byte]int{} // by payload, how many bytes it takes now
	err = s.db.view(where, func(tx *bbolt.Tx) error {
		b := s.bucket(tx)
		m, err := readManifest(s.id, b)
		if err != nil {
			return s.db.corrupt("scope "+s.scope.String(), err)
		}
		if m.Keys != "" {
			return nil // a dictionary would be content: see Options.EncryptAll
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
			if rec.dictionary == notCompressed {
				payload = append([]byte(nil), payload...)
			}
			samples = append(samples, payload)
			stored[&payload[0]] = len(rec.payload)
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

// unpackRecord returns a stored record and what it was before it was compressed, which
// is part of b if it was not.
func (s *Store) unpackRecord(d *dictionaries, key string, b []byte) (rec record, payload []byte, err error) {
	if rec, err = decodeRecord(key, b); err == nil {
		payload, err = d.unpack(packed{dictionary: rec.dictionary, bytes: rec.payload}, nil)
	}
	if err != nil {
		return rec, nil, s.db.corrupt("object "+key, err)
	}
	return rec, payload, nil
}

// repack writes the records behind a key with the current dictionary, retrainTx bytes
// of them, and drops the other dictionaries when it has come to the end.
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
		w.m.Objects.remove(recordSum(v))
		w.m.Bytes -= int64(len(v))
		rec.dictionary, rec.payload = p.dictionary, p.bytes
		value := rec.encode(string(last))
		w.m.Objects.add(recordSum(value))
		w.m.Bytes += int64(len(value))
		puts = append(puts, written{last, value})
		size += len(v) + len(value)
	}
	more = k != nil
	for _, put := range puts { // a cursor does not go on behind a change
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
	return len(puts), last, more, w.m.write(w.scope)
}

// dropDictionariesBut drops those that no record has any more.
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
			w.m.Dictionaries.remove(recordSum(v))
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
