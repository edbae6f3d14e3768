// Package pack compresses what a scope writes, with dictionaries of the scope's own
// objects, and encrypts it.
package pack

import (
	"sync/atomic"
	"time"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/parallel"
	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/overlay"
	"github.com/informctl/informctl/store/bolt/internal/record"
	"github.com/informctl/informctl/store/bolt/internal/seal"
)

// GrownScope is the number of objects at which a dictionary is trained for a scope whose
// first list was too short for one.
const GrownScope = 4 * codec.MinSamples

// maxDictionaries bounds the dictionaries of a scope in the file.
const maxDictionaries = 8

// Options say how a scope is written.
type Options struct {
	// Trains says that dictionaries are trained. It is not set for an encrypted scope: a
	// dictionary is content.
	Trains bool
	// Plain is the dictionary id of new records while there is no dictionary.
	Plain uint64
	// Seal encrypts; nil if the scope is not encrypted.
	Seal *seal.Seal
	// Codec is the id of the codec of payloads.
	Codec byte
	// Samples returns encoded objects of a scope that has grown to GrownScope without a
	// list, else nil.
	Samples func() [][]byte
	// Spent is called when one object was compressed, with the time at which that began.
	Spent func(began time.Time)
}

// Packer packs the records of one content of a scope. After a loss another one takes its
// place: what was learned from lost content is not written beside other content. It is
// safe for concurrent use.
type Packer struct {
	opts         Options
	dictionaries atomic.Pointer[dictionary.Set]
	trials       *dictionary.Trials
	sampled      atomic.Bool // Samples has returned some

	stored atomic.Int64 // dictionaries in the file
	untidy atomic.Bool  // there may be some that nothing uses
}

// New returns a Packer that knows no dictionary.
func New(o Options) (*Packer, error) {
	p := &Packer{opts: o, trials: dictionary.NewTrials()}
	d, err := dictionary.NewSet(o.Plain, nil)
	p.dictionaries.Store(d)
	return p, err
}

// Renew returns the Packer of the content that follows a loss. It can still decompress
// what was read before.
func (p *Packer) Renew() *Packer {
	next := &Packer{opts: p.opts, trials: p.trials.Renew()}
	next.stored.Store(p.stored.Load())
	next.dictionaries.Store(p.dictionaries.Load().WithCurrent(p.opts.Plain))
	return next
}

// Decompress appends to buf the payload that was compressed with a dictionary. A payload
// that is not compressed is returned as it is.
func (p *Packer) Decompress(id uint64, payload, buf []byte) ([]byte, error) {
	return p.dictionaries.Load().Decompress(id, payload, buf)
}

// Current returns the dictionary of new records; exists is false if there is none.
func (p *Packer) Current() (d []byte, exists bool) {
	set := p.dictionaries.Load()
	return set.Dictionary(set.Current())
}

// Dictionary returns the dictionary with an id; exists is false if there is none.
func (p *Packer) Dictionary(id uint64) (d []byte, exists bool) {
	return p.dictionaries.Load().Dictionary(id)
}

// SetTrials sets the number of payload bytes until another dictionary is tried.
func (p *Packer) SetTrials(bytes int) { p.trials.SetEvery(bytes) }

// Pack compresses the payloads of entries, and trains a dictionary on them if there is
// none. If the scope is encrypted, it then seals the payloads for a place. The result is
// in the order of entries. Pack works in parallel and leaves half of the cores to other
// goroutines, because a commit must not delay events.
func (p *Packer) Pack(place seal.Place, entries []*overlay.Entry) ([]record.Packed, error) {
	return p.pack(parallel.DoBeside, p.trained(entries, dictionary.Train), place, entries)
}

// PackList is like Pack for a part of a first list. It works on all cores, because
// nothing can be read before the list is whole. If the list is small, it trains only what
// takes no time, beside which such a list would take little.
func (p *Packer) PackList(entries []*overlay.Entry, isSmall bool) ([]record.Packed, error) {
	train := dictionary.Train
	if isSmall {
		train = dictionary.TrainFast
	}
	return p.pack(parallel.Do, p.trained(entries, train), seal.InScope, entries)
}

func (p *Packer) pack(do parallel.Loop, d *dictionary.Set, place seal.Place, entries []*overlay.Entry) ([]record.Packed, error) {
	out := make([]record.Packed, len(entries))
	_ = do(len(entries), func(i int) error {
		defer p.opts.Spent(time.Now())
		out[i] = compress(entries[i].Payload, d)
		return nil
	})
	if p.opts.Seal == nil {
		return out, nil
	}
	sealer := p.opts.Seal.Begin(2 * len(entries))
	return out, parallel.DoBeside(len(entries), func(i int) (err error) {
		e := entries[i]
		if e.Head == nil {
			return nil
		}
		r := sealer.Record(place, e.Key, out[i].Record(p.opts.Codec))
		out[i].DataKey, out[i].Bytes = r.DataKey, r.Payload
		out[i].Head, err = sealer.Header(place, e.Key, e.Head)
		return err
	})
}

// Final packs the final state of an entry that departs.
func (p *Packer) Final(e *overlay.Entry) record.Packed {
	out := compress(e.Last, p.dictionaries.Load())
	if p.opts.Seal != nil {
		r := p.opts.Seal.Begin(1).Record(seal.InDeparted, e.Key, out.Record(p.opts.Codec))
		out = record.Packed{Dictionary: r.Dictionary, DataKey: r.DataKey, Bytes: r.Payload}
	}
	return out
}

// compress returns p compressed, if it is not compressed yet and that makes it smaller.
func compress(p record.Packed, d *dictionary.Set) record.Packed {
	if p.Dictionary != dictionary.None {
		return p
	}
	id, b := d.Compress(p.Bytes)
	return record.Packed{Dictionary: id, Bytes: b}
}

// CanTrain reports whether the first dictionary is still to be trained.
func (p *Packer) CanTrain() bool {
	return p.opts.Trains && p.dictionaries.Load().Current() == dictionary.None
}

// trained returns the compressors. If there is no dictionary and there are enough
// entries, it trains one first; it also trains a better one if a trial finds one. A
// dictionary is written together with the first records that use it: see Persist.
func (p *Packer) trained(entries []*overlay.Entry, train func([][]byte) codec.Compressor) *dictionary.Set {
	d := p.dictionaries.Load()
	if !p.opts.Trains {
		return d
	}
	var payloads [][]byte
	for _, e := range entries {
		if e.Payload.Dictionary == dictionary.None && len(e.Payload.Bytes) >= dictionary.MinBytes {
			payloads = append(payloads, e.Payload.Bytes)
		}
	}
	if d.Current() != dictionary.None {
		if samples := p.trials.Next(payloads); samples != nil && p.stored.Load() < maxDictionaries {
			return p.use(d, d.Retrain(samples))
		}
		return d
	}
	if len(payloads) < codec.MinSamples && !p.sampled.Load() {
		samples := p.opts.Samples()
		p.sampled.Store(samples != nil)
		payloads = append(payloads, samples...)
	}
	z := train(payloads)
	if z == nil {
		return d
	}
	return p.use(d, d.With(z))
}

// use replaces d by next, unless another writer has replaced it already. It returns the
// dictionaries in use.
func (p *Packer) use(d, next *dictionary.Set) *dictionary.Set {
	if !p.dictionaries.CompareAndSwap(d, next) {
		return p.dictionaries.Load()
	}
	return next
}
