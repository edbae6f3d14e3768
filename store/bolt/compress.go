package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/layout"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// Compression specifies how records are written. Existing records are read as they were
// written, independent of this option.
type Compression int

const (
	// Dictionary compresses with zstd and a dictionary of the scope's own objects; for
	// encrypted scopes it is the same as Zstd. The dictionary is trained when
	// codec.MinSamples objects are first written in one transaction, as by the first
	// list, or when the scope has grown to four times as many objects. Objects that are
	// written before that, and objects of fewer than 128 bytes, are not compressed.
	Dictionary Compression = iota
	// Zstd compresses with zstd without a dictionary.
	Zstd
	// Uncompressed does not compress.
	Uncompressed
)

// grownScope is the number of objects at which a dictionary is trained for a scope whose
// first list was too short for one.
const grownScope = 4 * codec.MinSamples

// compress returns p compressed, if it is not compressed yet and that makes it smaller.
func compress(p record.Packed, d *dictionary.Set) record.Packed {
	if p.Dictionary != dictionary.None {
		return p
	}
	id, b := d.Compress(p.Bytes)
	return record.Packed{Dictionary: id, Bytes: b}
}

// pack compresses the payloads of entries, and trains the scope's dictionary on them if
// the scope has none. If the scope is encrypted, it then seals the payloads for a place.
// The result is in the order of entries. pack works in parallel and leaves half of the
// cores to other goroutines, because a commit must not delay events.
func (s *scopeStore) pack(losses uint64, entries []*overlay.Entry, place seal.Place) ([]record.Packed, error) {
	return s.packOn(parallel.DoBeside, s.trained(losses, entries), entries, place)
}

// packOn is like pack, on the cores that do uses and with these dictionaries.
func (s *scopeStore) packOn(do parallel.Loop, d *dictionary.Set, entries []*overlay.Entry, place seal.Place) ([]record.Packed, error) {
	out := make([]record.Packed, len(entries))
	_ = do(len(entries), func(i int) error {
		defer s.encodes.add(0, time.Now()) // the object was counted when it was encoded
		out[i] = compress(entries[i].Payload, d)
		return nil
	})
	return out, s.sealPacked(place, entries, out)
}

func (s *scopeStore) codecID() byte {
	if s.opts.Codec == nil {
		return 0 // only deletions can be written
	}
	return s.opts.Codec.ID()
}

// trained returns the scope's compressors. If the scope has no dictionary and there are
// enough entries, it trains one first; it also trains a better one if a trial finds one.
// The writer writes a dictionary together with the first records that use it. Entries of
// content that was lost since, of which there were so many losses, teach nothing to what
// is written afterwards.
func (s *scopeStore) trained(losses uint64, entries []*overlay.Entry) *dictionary.Set {
	d := s.dictionaries.Load()
	if s.db.opts.Compression != Dictionary || s.seal != nil { // as Zstd
		return d
	}
	if s.countLosses() != losses {
		return d
	}
	var payloads [][]byte
	for _, e := range entries {
		if e.Payload.Dictionary == dictionary.None && len(e.Payload.Bytes) >= dictionary.MinBytes {
			payloads = append(payloads, e.Payload.Bytes)
		}
	}
	if d.Current() != dictionary.None {
		if samples := s.trials.Next(losses, payloads); samples != nil {
			return s.useDictionaries(d, d.Retrain(samples))
		}
		return d
	}
	if len(payloads) < codec.MinSamples {
		payloads = append(payloads, s.samples()...)
	}
	z := dictionary.Train(payloads)
	if z == nil {
		return d
	}
	return s.useDictionaries(d, d.With(z))
}

// isTrainable reports whether trained would train a first dictionary on enough entries.
func (s *scopeStore) isTrainable(d *dictionary.Set) bool {
	return s.db.opts.Compression == Dictionary && s.seal == nil && d.Current() == dictionary.None
}

// useDictionaries replaces d by next, unless another writer or a loss has replaced it
// already. It returns the dictionaries in use.
func (s *scopeStore) useDictionaries(d, next *dictionary.Set) *dictionary.Set {
	if !s.dictionaries.CompareAndSwap(d, next) {
		return s.dictionaries.Load()
	}
	return next
}

// samples returns encoded objects of a scope that has grown without a list. It returns
// them only once.
func (s *scopeStore) samples() (payloads [][]byte) {
	s.mu.Lock()
	grown := s.length >= grownScope && !s.sampled && s.phase == phaseReady
	s.sampled = s.sampled || grown
	s.mu.Unlock()
	if !grown {
		return nil
	}
	entries, err := s.scanAs(false, "", grownScope)
	if err != nil {
		return nil // the next reader returns the error
	}
	for _, e := range entries {
		if _, id, payload, err := record.ParseRaw(e.Raw); err == nil && id == dictionary.None && len(payload) >= dictionary.MinBytes {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}

// packing is how the records of a scope are compressed.
type packing struct {
	dictionaries atomic.Pointer[dictionary.Set]
	plain        uint64 // for new records while there is no dictionary
	trials       *dictionary.Trials
	sampled      bool   // samples was called for a scope that had grown
	losses       uint64 // of the content
}

// Lost forgets what was learned from the content.
func (p *packing) Lost(error) {
	p.retireDictionaries()
	p.losses++
	p.trials.Forget(p.losses)
	p.sampled = false
}

// retireDictionaries stops the use of the current dictionary for new records, because it
// was trained on dropped content. Departed objects can still be read with it.
func (p *packing) retireDictionaries() {
	if d := p.dictionaries.Load(); d != nil { // nil while the scope is being opened
		p.dictionaries.Store(d.WithCurrent(p.plain))
	}
}

// withoutDictionary returns the dictionary id for new records while there is no
// dictionary.
func withoutDictionary(c Compression, sealed bool) uint64 {
	if c == Zstd || c == Dictionary && sealed {
		return dictionary.Plain // a dictionary is content
	}
	return dictionary.None
}

// loadDictionaries reads the dictionaries in the file. scope may be nil.
func (s *scopeStore) loadDictionaries(scope *bbolt.Bucket) error {
	current, stored := s.plain, map[uint64][]byte{}
	err := eachDictionary(scope, func(id uint64, b, _ []byte) error {
		if s.db.opts.Compression == Dictionary && s.seal == nil {
			current = max(current, id)
		}
		stored[id] = b
		return nil
	})
	var d *dictionary.Set
	if err == nil {
		d, err = dictionary.NewSet(current, stored)
	}
	if err != nil {
		return s.db.corrupt("dictionaries of "+s.scope.String(), err)
	}
	s.dictionaries.Store(d)
	return nil
}

// eachDictionary calls fn with each dictionary in the file, and with its stored form.
// scope may be nil.
func eachDictionary(scope *bbolt.Bucket, fn func(id uint64, dictionary, stored []byte) error) error {
	if scope == nil || scope.Bucket(layout.Dictionaries) == nil {
		return nil
	}
	return scope.Bucket(layout.Dictionaries).ForEach(func(k, v []byte) error {
		id, dictionary, err := parseDictionary(k, v)
		if err != nil {
			return err
		}
		return fn(id, dictionary, v)
	})
}

func dictionaryKey(id uint64) []byte { return binary.BigEndian.AppendUint64(nil, id) }

func parseDictionary(k, v []byte) (id uint64, dictionary []byte, err error) {
	if len(k) != 8 {
		return 0, nil, errors.New("the key is not an id")
	}
	if err := record.Unmarshal(v, &dictionary); err != nil {
		return 0, nil, err
	}
	return binary.BigEndian.Uint64(k), dictionary, nil
}

// dictionary writes the dictionary of a record, if the file does not contain it.
func (w *writer) dictionary(id uint64) error {
	if id == dictionary.None || id == dictionary.Plain || id == w.lastDictionary {
		return nil
	}
	b, err := w.scope.CreateBucketIfNotExists(layout.Dictionaries)
	if err != nil {
		return err
	}
	if b.Get(dictionaryKey(id)) == nil {
		content, _ := w.s.dictionaries.Load().Dictionary(id)
		value, err := record.Marshal(content)
		if err != nil {
			return err
		}
		if err := b.Put(dictionaryKey(id), value); err != nil {
			return err
		}
		w.m.Dictionaries.Add(record.Sum(value))
		w.hasNew = true
	}
	w.lastDictionary = id
	return nil
}

// dropDictionaries drops the dictionaries that neither the content, nor the former
// content, nor the log uses. The scope keeps them until it is closed, because readers may
// have records that are compressed with them.
func (w *writer) dropDictionaries() error {
	used, err := logDictionaries(w.scope)
	if err != nil {
		return err
	}
	contents := []record.Uses{w.m.Uses}
	if former := w.scope.Bucket(layout.Former); former != nil {
		m, err := layout.ReadManifest(w.s.id, former)
		if err != nil {
			return w.s.db.corrupt("former objects of "+w.s.scope.String(), err)
		}
		contents = append(contents, m.Uses)
	}
	for _, uses := range contents {
		for id := range uses {
			used[id] = true
		}
	}
	unused := map[uint64]uint32{} // id -> checksum
	err = eachDictionary(w.scope, func(id uint64, _, stored []byte) error {
		if !used[id] {
			unused[id] = record.Sum(stored)
		}
		return nil
	})
	for id, sum := range unused {
		w.m.Dictionaries.Remove(sum)
		err = errors.Join(err, w.scope.Bucket(layout.Dictionaries).Delete(dictionaryKey(id)))
	}
	return err
}

// verifyDictionaries returns the dictionary ids that records may use.
func verifyDictionaries(m *record.Manifest, scope *bbolt.Bucket) (map[uint64]bool, error) {
	ids := map[uint64]bool{dictionary.None: true, dictionary.Plain: true}
	var t record.Tally
	err := eachDictionary(scope, func(id uint64, _, stored []byte) error {
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

// rawForm returns the raw form of a packed payload.
func rawForm(codecID byte, p record.Packed) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(p.Bytes))
	return record.AppendRaw(b, codecID, p.Dictionary, p.Bytes)
}
