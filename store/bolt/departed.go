package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
	bbolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// The departed bucket contains, by number, the last stored state of deleted objects, for
// handlers that have not received the deletion. An object is added to it in the
// transaction of the deletion, so that no crash can separate the two. The bucket is
// bounded. Numbers ascend in the order in which the deletions were applied and are never
// reused.
//
// Objects that every handler has received stay until the scope is opened again, for
// handlers that are added later in this process. The first commit after that drops them.

var bucketDeparted = []byte("departed")

// departedBytes bounds the encoded departed objects of one scope, in bytes.
const departedBytes = 64 << 20

// departures is the state of the departed objects of an open scope. scopeStore.mu
// protects its fields.
type departures struct {
	last         uint64 // the highest assigned number
	settled      uint64 // objects up to this number were delivered by an earlier process
	told         uint64 // objects up to this number were delivered
	kept         int    // objects in the file as of the last commit
	dropped      int    // objects that were not kept since the scope was opened
	dropFromFile uint64 // the next commit drops objects up to this number; 0: none
}

// departedValue is one departed object in the file; a CRC-32C precedes it.
type departedValue struct {
	Key    string `msgpack:"k"`           // the file key
	Name   string `msgpack:"n,omitempty"` // the object's own key, if it differs
	Record []byte `msgpack:"r"`           // the record of the objects bucket
	Last   []byte `msgpack:"l,omitempty"` // a record of the final state
}

// encodeLast encodes a final state. A state that cannot be encoded counts as unknown.
func (s *scopeStore) encodeLast(last runtime.Object) packed {
	if last == nil || s.opts.Codec == nil {
		return packed{}
	}
	payload, err := s.encode(last)
	if err != nil {
		return packed{}
	}
	return packed{bytes: payload}
}

// departing contains the records that an entry departs with and that the file does not
// have.
type departing struct{ before, last packed }

// sealDeparting packs the records that entries depart with, in the order of entries. It
// returns nil if no entry departs.
func (s *scopeStore) sealDeparting(entries []*entry) (out []departing) {
	for i, e := range entries {
		if e.departs == 0 {
			continue
		}
		if out == nil {
			out = make([]departing, len(entries))
		}
		out[i] = departing{s.packDeparted(seal.InScope, e.key, e.before), s.packDeparted(seal.InDeparted, e.key, e.last)}
	}
	return out
}

func (s *scopeStore) packDeparted(place seal.Place, key string, p packed) packed {
	if p.bytes == nil {
		return p
	}
	if p = p.compress(s.dictionaries.Load()); s.seal != nil {
		r := s.seal.Begin(1).Record(place, key, p.record(s.codecID()))
		p = packed{dictionary: r.Dictionary, dataKey: r.DataKey, bytes: r.Payload}
	}
	return p
}

// departLocked assigns a number to an entry that departs. An entry that replaces a
// departing entry that has not been written yet departs in its place, because the stored
// state of the key is the same.
func (s *scopeStore) departLocked(e *entry) {
	old, waits := s.pending.Get(e.key)
	switch {
	case e.departing:
		s.departed.last++
		e.departs, e.departing = s.departed.last, false
		if waits {
			e.before = old.payload
		}
	case waits && old.departs != 0:
		e.departs, e.before, e.last = old.departs, old.before, old.last
	}
}

func departedKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// depart keeps the stored state of a key before the state is changed.
func (w *writer) depart(e *entry, with departing) error {
	d := &w.m.Departed
	d.Last = max(d.Last, e.departs)
	v := departedValue{Key: e.key, Record: w.objects.Get([]byte(e.key))}
	for _, state := range []struct {
		p  packed
		to *[]byte
	}{{with.before, &v.Record}, {with.last, &v.Last}} {
		if state.p.bytes == nil {
			continue
		}
		if err := w.dictionary(state.p.dictionary); err != nil {
			return err
		}
		*state.to = state.p.record(w.s.codecID()).Encode(e.key)
	}
	// Nothing was stored, or a failed attempt has kept it already.
	if v.Record == nil {
		return nil
	}
	if e.name != e.key {
		v.Name = e.name
	}
	value, err := record.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode a departed object: %w", err)
	}
	b, err := w.scope.CreateBucketIfNotExists(bucketDeparted)
	if err != nil {
		return err
	}
	key := departedKey(e.departs)
	if b.Get(key) != nil { // an attempt of unknown outcome has written it
		return nil
	}
	if d.Bytes+int64(len(value)) > w.s.db.departedBytes {
		if w.dropped++; w.dropped == 1 {
			w.s.db.opts.Logger.Info("More objects were deleted than are kept for handlers that have not been told",
				"scope", w.s.scope.String(), "keptBytes", d.Bytes)
		}
		return nil
	}
	d.Tally.Add(record.Sum(value))
	d.Bytes += int64(len(value))
	return b.Put(key, value)
}

// dropTold drops the departed objects that an earlier process has delivered.
func (w *writer) dropTold() error {
	w.s.mu.Lock()
	upTo := w.s.departed.dropFromFile
	w.s.mu.Unlock()
	b := w.scope.Bucket(bucketDeparted)
	if upTo == 0 || b == nil {
		return nil
	}
	var keys [][]byte
	d := &w.m.Departed
	c := b.Cursor()
	for k, v := c.First(); k != nil && binary.BigEndian.Uint64(k) <= upTo; k, v = c.Next() {
		keys = append(keys, slices.Clone(k))
		d.Tally.Remove(record.Sum(v))
		d.Bytes -= int64(len(v))
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// Departed implements store.Departer.
func (s *scopeStore) Departed(after uint64, limit int) (out []store.Departed, err error) {
	if s, err = s.reader(); err != nil {
		return nil, err
	}
	err = s.read("departed objects", func(sn *snapshot) error {
		out, err = s.departedIn(sn, max(after, sn.settled), limit)
		return err
	})
	return out, err
}

func (s *scopeStore) departedIn(sn *snapshot, after uint64, limit int) (out []store.Departed, err error) {
	last := after
	if sn.scope != nil && sn.scope.Bucket(bucketDeparted) != nil {
		c := sn.scope.Bucket(bucketDeparted).Cursor()
		for k, v := c.Seek(departedKey(after + 1)); k != nil && len(out) < limit; k, v = c.Next() {
			d, err := s.openDeparted(k, v)
			if err != nil {
				return nil, err
			}
			last = d.Number
			out = append(out, d)
		}
	}
	if len(out) == limit {
		return out, nil
	}
	// Objects that have not been written yet have higher numbers than those in the file.
	var waiting []*entry
	sn.pending.Scan(func(_ string, e *entry) bool {
		if e.departs > last {
			waiting = append(waiting, e)
		}
		return true
	})
	slices.SortFunc(waiting, func(a, b *entry) int {
		if a.departs < b.departs {
			return -1
		}
		return 1
	})
	for _, e := range waiting {
		if len(out) == limit {
			break
		}
		d := store.Departed{Number: e.departs, Before: store.Entry{Key: e.name}}
		if e.before.bytes != nil {
			d.Before.Raw = rawForm(s.codecID(), e.before)
		} else if record := sn.record(e.key); record == nil {
			continue
		} else if before, err := s.fileEntry(e.key, record); err == nil {
			d.Before.Raw = before.Raw
		}
		if e.last.bytes != nil {
			d.Last = store.Entry{Key: e.name, Raw: rawForm(s.codecID(), e.last)}
		}
		out = append(out, d)
	}
	return out, nil
}

// record returns an object's record in the file, or nil if there is none. It is valid
// until the snapshot's transaction ends.
func (sn *snapshot) record(key string) []byte {
	if sn.objects == nil {
		return nil
	}
	return sn.objects.Get([]byte(key))
}

// openDeparted returns one departed object of the file. It leaves out damaged content,
// because a relist cannot restore it.
func (s *scopeStore) openDeparted(k, b []byte) (d store.Departed, err error) {
	if len(k) != 8 {
		return d, s.db.corrupt("departed objects", errors.New("a key is not a number"))
	}
	d.Number = binary.BigEndian.Uint64(k)
	v, err := decodeDeparted(b)
	name := v.Key
	if v.Name != "" {
		name = v.Name
	}
	if err == nil {
		d.Before, err = s.fileEntry(v.Key, v.Record)
	}
	d.Before.Key = name
	if err != nil {
		s.db.opts.Logger.Error(s.db.unreadable(fmt.Sprintf("departed object %d", d.Number), err), "A deleted object cannot be read")
		d.Before = store.Entry{Key: name}
		return d, nil
	}
	if v.Last == nil {
		return d, nil
	}
	if r, err := record.Decode(v.Key, v.Last); err == nil {
		raw := appendRawHead(make([]byte, 0, len(v.Last)), r.Codec, r.Dictionary)
		if raw, err = s.seal.AppendPayload(raw, seal.InDeparted, v.Key, r); err == nil {
			d.Last = store.Entry{Key: name, Raw: raw}
		}
	}
	return d, nil
}

func decodeDeparted(b []byte) (v departedValue, err error) {
	if len(b) < 4 {
		return v, record.ErrShort
	}
	if got, want := record.Checksum(b[4:]), record.Sum(b); got != want {
		return v, fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	if _, err := record.Skip(b[4:]); err != nil {
		return v, err
	}
	return v, msgpack.Unmarshal(b[4:], &v)
}

// Settle implements store.Departer.
func (s *scopeStore) Settle() { s.settle(func(d departures) uint64 { return d.last }) }

// Unsettle implements store.Departer.
func (s *scopeStore) Unsettle() { s.settle(func(d departures) uint64 { return d.settled }) }

func (s *scopeStore) settle(upTo func(departures) uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := upTo(s.departed)
	if s.departed.told == told || s.role != roleWriter || s.cause != nil {
		return
	}
	s.departed.told = told
	s.changedLocked()
	s.db.tell(false)
}

// Departures implements store.Departer.
func (s *scopeStore) Departures() (kept, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.departed.kept, s.departed.dropped
}

var _ store.Departer = (*scopeStore)(nil)

// verifyDeparted checks the departed objects: each of them, its record and their tally.
func verifyDeparted(m *record.Manifest, scope *bbolt.Bucket, ids map[uint64]bool) error {
	b := scope.Bucket(bucketDeparted)
	if b == nil {
		if m.Departed.Tally.Count > 0 {
			return errors.New("departed objects are missing")
		}
		return nil
	}
	var t record.Tally
	err := b.ForEach(func(k, value []byte) error {
		v, err := decodeDeparted(value)
		if err == nil {
			var r record.Record
			if r, err = record.Decode(v.Key, v.Record); err == nil && !ids[r.Dictionary] {
				err = fmt.Errorf("dictionary %d is missing", r.Dictionary)
			}
		}
		if err != nil || len(k) != 8 {
			return fmt.Errorf("departed object %x: %w", k, errors.Join(err, keyLength(k)))
		}
		t.Add(record.Sum(value))
		return nil
	})
	if err == nil && t != m.Departed.Tally {
		err = fmt.Errorf("%d departed objects do not add up to the manifest's %d", t.Count, m.Departed.Tally.Count)
	}
	return err
}

func keyLength(k []byte) error {
	if len(k) != 8 {
		return errors.New("a key is not a number")
	}
	return nil
}

// departedDictionaries returns the ids of the dictionaries that departed objects use.
func departedDictionaries(scope *bbolt.Bucket) (map[uint64]bool, error) {
	used := map[uint64]bool{}
	b := scope.Bucket(bucketDeparted)
	if b == nil {
		return used, nil
	}
	return used, b.ForEach(func(_, value []byte) error {
		v, err := decodeDeparted(value)
		if err != nil {
			return err
		}
		for _, b := range [][]byte{v.Record, v.Last} {
			if b == nil {
				continue
			}
			r, err := record.Decode(v.Key, b)
			if err != nil {
				return err
			}
			used[r.Dictionary] = true
		}
		return nil
	})
}
