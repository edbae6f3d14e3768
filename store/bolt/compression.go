package bolt

import (
	"sync/atomic"
	"time"

	"github.com/informctl/informctl/store/bolt/internal/dictionary"
	"github.com/informctl/informctl/store/bolt/internal/pack"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Compression specifies how records are written. Existing records are read as they were
// written, independent of this option.
type Compression int

const (
	// Dictionary compresses with a dictionary of the scope's own objects, with S2 or,
	// where that is much smaller, with zstd; for encrypted scopes it is the same as Zstd.
	// The dictionary is made when codec.MinSamples objects are first written in one
	// transaction, as by the first list, or when the scope has grown to four times as
	// many objects. Objects that are written before that, and objects of fewer than 128
	// bytes, are not compressed.
	Dictionary Compression = iota
	// Zstd compresses with zstd without a dictionary.
	Zstd
	// Uncompressed does not compress.
	Uncompressed
)

// packing has the Packer of the scope's content. It is written under scopeStore.mu.
type packing struct{ packer atomic.Pointer[pack.Packer] }

// Lost forgets what was learned from the content.
func (p *packing) Lost(error) { p.packer.Store(p.packer.Load().Renew()) }

// newPacker returns the Packer of a scope that is opened.
func (s *scopeStore) newPacker() (*pack.Packer, error) {
	o := pack.Options{
		Trains: s.db.opts.Compression == Dictionary && s.seal == nil, // else as Zstd
		Plain:  dictionary.None, Seal: s.seal, Codec: s.codec.ID(), Samples: s.samples,
		// The object was counted when it was encoded.
		Spent: func(began time.Time) { s.codec.Encodes.Add(0, began) },
	}
	if c := s.db.opts.Compression; c == Zstd || c == Dictionary && s.seal != nil {
		o.Plain = dictionary.Plain
	}
	return pack.New(o)
}

// samples returns encoded objects of a scope that has grown without a list.
func (s *scopeStore) samples() (payloads [][]byte) {
	s.mu.Lock()
	grown := s.length >= pack.GrownScope && s.phase == phaseReady
	s.mu.Unlock()
	if !grown {
		return nil
	}
	entries, err := s.scanAs(false, "", pack.GrownScope)
	if err != nil {
		return nil // the next reader returns the error
	}
	payloads = [][]byte{}
	for _, e := range entries {
		_, id, payload, err := record.ParseRaw(e.Raw)
		if err == nil {
			payload, err = s.packer.Load().Decompress(id, payload, nil)
		}
		if err == nil && len(payload) >= dictionary.MinBytes {
			payloads = append(payloads, payload)
		}
	}
	return payloads
}
