package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
)

// Compression says how records are written. Each is read in the way in which it
// was written, whatever the option says.
type Compression int

const (
	// Dictionary compresses by zstd with a dictionary of the scope's own objects,
	// encrypted scopes as Zstd does. It
	// is made when codec.MinSamples of them are first written in one transaction, as
	// the first list does, or when the scope has grown to four times as many; objects
	// that are written before, and those of fewer than 128 bytes, are stored as they
	// are.
	Dictionary Compression = iota
	// Zstd compresses without a dictionary.
	Zstd
	// Uncompressed stores objects as they are encoded.
	Uncompressed
)

var bucketDictionaries = []byte("dictionaries")

// The dictionary ids of records. Others are keys of bucketDictionaries.
const (
	notCompressed = 0
	plainZstd     = 1
)

// grownScope is the number of objects at which a scope whose list was too short for
// a dictionary gets one.
const grownScope = 4 * codec.MinSamples

// minCompressed is the size, in bytes, below which compression saves nothing.
const minCompressed = 128

// dictionaries are the compressors of one scope, by dictionary id. It is replaced,
// never changed.
type dictionaries struct {
	current uint64 // what is written
	byID    map[uint64]*codec.Zstd
}

// packed is an encoded object, compressed or not.
type packed struct {
	dictionary uint64
	bytes      []byte // nil: there is no object

	// Of what is written of an encrypted scope: its bytes are sealed, as its header is.
	dataKey uint64
	head    *header
}

// pack compresses the payloads of entries and makes the scope's dictionary of them
// if it has none; then it seals them for a place, if the scope is encrypted. Its
// result has their order. It works in parallel, and leaves half of the cores to
// others: a commit must not hold up events.
func (s *Store) pack(entries []*entry, place byte) ([]packed, error) {
	d := s.trained(entries)
	out := make([]packed, len(entries))
	_ = parallel.DoBeside(len(entries), func(i int) error {
		defer s.encodes.add(0, time.Now()) // counted when it was encoded
		out[i] = d.pack(entries[i].payload)
		return nil
	})
	return out, s.seal.lock(place, s.codecID(), entries, out)
}

func (s *Store) codecID() byte {
	if s.opts.Codec == nil {
		return 0 // nothing but deletions can be written
	}
	return s.opts.Codec.ID()
}

// pack compresses what is not.
func (d *dictionaries) pack(p packed) packed {
	if p.dictionary == notCompressed && d.current != notCompressed && len(p.bytes) >= minCompressed && len(p.bytes) <= codec.MaxDecompressed {
		if z := d.byID[d.current].Compress(nil, p.bytes); len(z) < len(p.bytes) {
			return packed{dictionary: d.current, bytes: z}
		}
	}
	return p
}

// unpack returns the payload of a record, in buf where it was compressed.
func (d *dictionaries) unpack(p packed, buf []byte) ([]byte, error) {
	if p.dictionary == notCompressed {
		return p.bytes, nil
	}
	z := d.byID[p.dictionary]
	if z == nil {
		return nil, fmt.Errorf("dictionary %d is missing", p.dictionary)
	}
	return z.Decompress(buf, p.bytes)
}

// trained returns the scope's compressors, after making a dictionary of entries
// where there is none and enough of them, or a better one. The writer writes it with
// the first records that need it.
func (s *Store) trained(entries []*entry) *dictionaries {
	d := s.dictionaries.Load()
	if s.db.opts.Compression != Dictionary || s.seal != nil { // a dictionary is content
		return d
	}
	if d.current != notCompressed {
		if samples := s.trials.next(entries); samples != nil {
			return s.useDictionaries(d, d.retrain(samples))
		}
		return d
	}
	var payloads [][]byte
	for _, e := range entries {
		if e.payload.dictionary == notCompressed && len(e.payload.bytes) >= minCompressed {
			payloads = append(payloads, e.payload.bytes)
		}
	}
	if len(payloads) < codec.MinSamples {
		payloads = append(payloads, s.samples()...)
	}
	z := compressorOf(payloads)
	if z == nil {
		return d
	}
	return s.useDictionaries(d, d.with(z))
}

// useDictionaries replaces d, unless another writer was first, and returns what is
// used.
func (s *Store) useDictionaries(d, next *dictionaries) *dictionaries {
	if !s.dictionaries.CompareAndSwap(d, next) {
		return s.dictionaries.Load()
	}
	return next
}

// samples returns encoded objects of a scope that has grown one by one, once.
func (s *Store) samples() (payloads [][]byte) {
	s.mu.Lock()
	grown := s.length >= grownScope && !s.sampled && !s.loading
	s.sampled = s.sampled || grown
	s.mu.Unlock()
	if !grown {
		return nil
	}
	entries, err := s.Scan("", grownScope)
	if err != nil {
		return nil // whoever reads it next says so
	}
	for _, e := range entries {
		if _, p, err := parseRaw(e.Raw); err == nil && p.dictionary == notCompressed && len(p.bytes) >= minCompressed {
			payloads = append(payloads, p.bytes)
		}
	}
	return payloads
}

// compression is how objects are written while there is no dictionary.
func (s *Store) compression() uint64 {
	if s.db.opts.Compression == Zstd || s.db.opts.Compression == Dictionary && s.seal != nil {
		return plainZstd // a dictionary is content
	}
	return notCompressed
}

// retireDictionaries has none written any more: they are made of what was dropped. What
// waits for handlers is still read with them.
func (s *Store) retireDictionaries() {
	if d := s.dictionaries.Load(); d != nil { // else the scope is being opened
		s.dictionaries.Store(&dictionaries{current: s.compression(), byID: d.byID})
	}
}

// loadDictionaries reads those of the file. scope may be nil.
func (s *Store) loadDictionaries(scope *bbolt.Bucket) error {
	plain, err := codec.NewZstd(nil)
	if err != nil {
		return err
	}
	d := &dictionaries{current: s.compression(), byID: map[uint64]*codec.Zstd{plainZstd: plain}}
	err = eachDictionary(scope, func(id uint64, dictionary, _ []byte) (err error) {
		if s.db.opts.Compression == Dictionary && s.seal == nil {
			d.current = max(d.current, id)
		}
		d.byID[id], err = codec.NewZstd(dictionary)
		return err
	})
	if err != nil {
		return s.db.corrupt("dictionaries of "+s.scope.String(), err)
	}
	s.dictionaries.Store(d)
	return nil
}

// eachDictionary calls fn with those of the file, and with what the file has of each.
// scope may be nil.
func eachDictionary(scope *bbolt.Bucket, fn func(id uint64, dictionary, stored []byte) error) error {
	if scope == nil || scope.Bucket(bucketDictionaries) == nil {
		return nil
	}
	return scope.Bucket(bucketDictionaries).ForEach(func(k, v []byte) error {
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
		return 0, nil, errors.New("a key that is none")
	}
	if err := unseal(v, &dictionary); err != nil {
		return 0, nil, err
	}
	return binary.BigEndian.Uint64(k), dictionary, nil
}

// dictionary writes the dictionary that a record needs, if the file lacks it.
func (w *writer) dictionary(id uint64) error {
	if id == notCompressed || id == plainZstd || id == w.lastDictionary {
		return nil
	}
	b, err := w.scope.CreateBucketIfNotExists(bucketDictionaries)
	if err != nil {
		return err
	}
	if b.Get(dictionaryKey(id)) == nil {
		value, err := sealed(w.s.dictionaries.Load().byID[id].Dictionary())
		if err != nil {
			return err
		}
		if err := b.Put(dictionaryKey(id), value); err != nil {
			return err
		}
		w.m.Dictionaries.add(recordSum(value))
	}
	w.lastDictionary = id
	return nil
}

// verifyDictionaries returns the ids that records may have.
func verifyDictionaries(m *manifest, scope *bbolt.Bucket) (map[uint64]bool, error) {
	ids := map[uint64]bool{notCompressed: true, plainZstd: true}
	var t tally
	err := eachDictionary(scope, func(id uint64, _, stored []byte) error {
		ids[id] = true
		t.add(recordSum(stored))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dictionary: %w", err)
	}
	if t != m.Dictionaries {
		return nil, fmt.Errorf("%d dictionaries do not add up to the manifest's %d", t.Count, m.Dictionaries.Count)
	}
	return ids, nil
}

// Entry.Raw is the codec's id, the dictionary's and the payload, so that an entry
// can be decoded without the store's file.
func rawForm(codecID byte, p packed) []byte {
	b := make([]byte, 0, 1+binary.MaxVarintLen64+len(p.bytes))
	return append(appendRawHead(b, codecID, p.dictionary), p.bytes...)
}

// appendRawHead appends what is before a payload.
func appendRawHead(b []byte, codecID byte, dictionary uint64) []byte {
	return binary.AppendUvarint(append(b, codecID), dictionary)
}

func parseRaw(raw []byte) (codecID byte, p packed, err error) {
	if len(raw) < 2 {
		return 0, packed{}, errShort
	}
	id, n := binary.Uvarint(raw[1:])
	if n <= 0 {
		return 0, packed{}, errShort
	}
	return raw[0], packed{dictionary: id, bytes: raw[1+n:]}, nil
}

// rawSize is how many bytes an entry's object was encoded in.
func rawSize(raw []byte) int {
	_, p, err := parseRaw(raw)
	if err != nil || p.dictionary == notCompressed {
		return len(p.bytes)
	}
	return codec.DecompressedSize(p.bytes)
}

// buffers are for what is decompressed: decoding copies out of it.
var buffers = sync.Pool{New: func() any { return new([]byte) }}
