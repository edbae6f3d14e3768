// Package dictionary compresses what a scope stores with dictionaries that are trained on
// the scope's own objects.
//
// A dictionary is trained on the first objects of a scope. Later objects may repeat each
// other in other ways: a rollout changes what pods have in common, and the first
// namespaces of a list need not resemble the others. Therefore, from time to time, a new
// dictionary is trained on recently written objects and compared with the current one:
// see Trials and Set.Retrain.
package dictionary

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/informctl/informctl/codec"
)

// The special ids of a record's dictionary. All other ids are those of dictionaries.
const (
	None  = 0 // not compressed
	Plain = 1 // zstd without a dictionary
)

const (
	// MinBytes is the size of a payload, in bytes, below which compression saves nothing.
	MinBytes = 128
	// RetrainBytes is the number of payload bytes that are compressed before the first
	// trial. Each following one waits for twice as many, up to maxRetrainBytes.
	RetrainBytes    = 128 << 20
	maxRetrainBytes = 1 << 30
	// TrialSamples is the number of samples of a trial: one half trains the new
	// dictionary, the other half tests it.
	TrialSamples = 2 * codec.MinSamples
	// maxInMemory bounds the dictionaries of an open scope, because each takes memory.
	// Those that the file has lost are gone when the scope is opened again.
	maxInMemory = 32
)

// Set contains the compressors of one scope, by dictionary id. It is immutable.
type Set struct {
	current uint64 // the id for new records
	byID    map[uint64]codec.Compressor
}

// NewSet returns the compressors of stored dictionaries, by id. current is the id for new
// records: None, Plain or one of the dictionaries.
func NewSet(current uint64, dictionaries map[uint64][]byte) (*Set, error) {
	d := &Set{current: current, byID: map[uint64]codec.Compressor{}}
	var err error
	if d.byID[Plain], err = codec.NewCompressor(nil); err != nil {
		return nil, err
	}
	for id, dictionary := range dictionaries {
		if d.byID[id], err = codec.NewCompressor(dictionary); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Current returns the dictionary id for new records.
func (d *Set) Current() uint64 { return d.current }

// Dictionary returns the dictionary with an id; exists is false if there is none. The
// dictionary of Plain is empty.
func (d *Set) Dictionary(id uint64) (dictionary []byte, exists bool) {
	z := d.byID[id]
	if z == nil {
		return nil, false
	}
	return z.Dictionary(), true
}

// WithCurrent returns a copy of d with another id for new records.
func (d *Set) WithCurrent(id uint64) *Set { return &Set{current: id, byID: d.byID} }

// With returns a copy of d in which z is the current dictionary. Its id is above the
// others, and that of no other dictionary: an object that was read before a scope was
// dropped must not be decompressed with a later dictionary, which zstd would not notice.
func (d *Set) With(z codec.Compressor) *Set {
	next := &Set{current: nextID(), byID: maps.Clone(d.byID)}
	for id := range next.byID {
		next.current = max(next.current, id+1)
	}
	next.byID[next.current] = z
	return next
}

// lastID is the last id that nextID has returned.
var lastID atomic.Uint64

// nextID returns an id that no dictionary of this process has, nor one that was trained
// more than a second ago by another process.
func nextID() uint64 {
	for {
		last := lastID.Load()
		id := max(last+1, uint64(time.Now().Unix()))
		if lastID.CompareAndSwap(last, id) {
			return id
		}
	}
}

// Compress compresses a payload if that makes it smaller. It returns the dictionary id
// and the result: None and the payload itself if it is not compressed.
func (d *Set) Compress(payload []byte) (id uint64, compressed []byte) {
	if d.current != None && len(payload) >= MinBytes && len(payload) <= codec.MaxDecompressed {
		if z := d.byID[d.current].Compress(nil, payload); len(z) < len(payload) {
			return d.current, z
		}
	}
	return None, payload
}

// Decompress appends to buf the payload that was compressed with a dictionary. A payload
// that is not compressed is returned as it is.
func (d *Set) Decompress(id uint64, compressed, buf []byte) ([]byte, error) {
	if id == None {
		return compressed, nil
	}
	z := d.byID[id]
	if z == nil {
		return nil, fmt.Errorf("dictionary %d is missing", id)
	}
	return z.Decompress(buf, compressed)
}

// Retrain returns a Set with a new current dictionary, if the samples show that it saves
// a fifth; else it returns d.
func (d *Set) Retrain(samples [][]byte) *Set {
	if len(d.byID) > maxInMemory {
		return d
	}
	old := d.byID[d.current]
	z, is, was := Try(samples, func(payload []byte) int { return len(old.Compress(nil, payload)) })
	if z == nil || 5*is > 4*was {
		return d
	}
	return d.With(z)
}

// Try trains a dictionary on half of the samples. It returns the compressor, or nil if
// the samples are not suitable, and the size of the other half compressed with the new
// dictionary and as old computes it.
func Try(samples [][]byte, old func([]byte) int) (z codec.Compressor, is, was int) {
	var half, other [][]byte
	for i, sample := range samples {
		if i%2 == 0 {
			half = append(half, sample)
		} else {
			other = append(other, sample)
		}
	}
	z = trained(codec.Train(half, codec.MaxS2Dictionary)) // of a large collection
	if z == nil {
		return nil, 0, 0
	}
	for _, payload := range other {
		is += len(z.Compress(nil, payload))
		was += old(payload)
	}
	return z, is, was
}

// Train returns a compressor with a dictionary that is trained on the payloads of a
// collection, or nil if they are not suitable.
func Train(payloads [][]byte) codec.Compressor {
	return trained(codec.Train(payloads, codec.DictionarySize(payloads)))
}

// TrainFast is Train for those who cannot wait: see codec.TrainFast.
func TrainFast(payloads [][]byte) codec.Compressor {
	return trained(codec.TrainFast(payloads, codec.DictionarySize(payloads)))
}

func trained(z codec.Compressor, err error) codec.Compressor {
	if err != nil {
		return nil // the objects are small, few, or random
	}
	return z
}

// Trials decides when a scope tries another dictionary. It is safe for concurrent use.
type Trials struct {
	mu      sync.Mutex // protects the fields below
	every   int        // bytes until the next trial, since the last one
	bytes   int        // compressed since the last trial
	samples [][]byte   // payloads that were written since the next trial is due
}

// NewTrials returns trials of which the first is due after RetrainBytes.
func NewTrials() *Trials { return &Trials{every: RetrainBytes} }

// SetEvery sets the number of payload bytes until the next trial.
func (t *Trials) SetEvery(bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.every = bytes
}

// Renew returns trials without samples, with the same number of bytes until the next one.
func (t *Trials) Renew() *Trials {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Trials{every: t.every}
}

// Next counts payloads of at least MinBytes that are about to be compressed. It returns
// samples when the next trial is due and enough samples were written, else nil.
func (t *Trials) Next(payloads [][]byte) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, payload := range payloads {
		if t.bytes += len(payload); t.bytes >= t.every {
			t.samples = append(t.samples, payload)
		}
	}
	if len(t.samples) < TrialSamples {
		return nil
	}
	samples := evenly(t.samples, TrialSamples)
	t.bytes, t.samples, t.every = 0, nil, min(2*t.every, maxRetrainBytes)
	return samples
}

// evenly returns n of the samples, at even distances.
func evenly(samples [][]byte, n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = samples[i*len(samples)/n]
	}
	return out
}
