package codec

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
)

// Zstd compresses encoded objects, with or without a dictionary. A dictionary contains
// data that many objects of one resource have in common: 10 KB pods take 1.9 KB with a
// dictionary made from 64 of them. The methods of Zstd are safe for concurrent use. A
// Zstd has no goroutines and need not be closed.
type Zstd struct {
	dictionary []byte
	enc        atomic.Pointer[zstd.Encoder] // nil if it is not kept: see kept
	dec        *zstd.Decoder
}

// kept are the Zstds of this process that have an encoder. A process with hundreds of
// scopes has hundreds of Zstds, and an encoder holds 0.5 to 2 MB, which it takes 0.3 ms
// to make.
var kept struct {
	mu  sync.Mutex // protects all
	all [keptEncoders]weak.Pointer[Zstd]
}

// keptEncoders is the maximal number of Zstds that have an encoder. Which one loses it to
// another is left to chance: the oldest would be the next to be used where all take
// turns.
const keptEncoders = 32

// MaxDecompressed limits the decompressed size, in bytes, so that damaged input cannot
// claim a huge object. A longer payload must not be compressed, because Decompress
// refuses it. An API server accepts objects of at most 3 MiB (etcd's limit is 1.5 MiB).
const MaxDecompressed = 64 << 20

const (
	// encoders and decoders limit the number of payloads that are processed concurrently,
	// and thus the memory of a Zstd, regardless of the number of cores.
	encoders = 2
	decoders = 8
	// window is the distance, in bytes, within which repetitions are found.
	window = 128 << 10
)

// NewZstd returns a compressor. dictionary is the result of TrainDictionary or
// Zstd.Dictionary and is not copied; nil means no dictionary.
func NewZstd(dictionary []byte) (*Zstd, error) {
	z := &Zstd{dictionary: dictionary}
	if _, err := z.newEncoder(); err != nil { // it costs little until it is used
		return nil, err
	}
	decoding := []zstd.DOption{
		zstd.WithDecoderConcurrency(min(decoders, runtime.GOMAXPROCS(0))),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxDecompressed),
	}
	if dictionary != nil {
		decoding = append(decoding, zstd.WithDecoderDicts(dictionary))
	}
	var err error
	if z.dec, err = zstd.NewReader(nil, decoding...); err != nil {
		return nil, fmt.Errorf("zstd dictionary: %w", err)
	}
	return z, nil
}

func (z *Zstd) newEncoder() (*zstd.Encoder, error) {
	encoding := []zstd.EOption{
		// Other levels take three times as long and save a tenth.
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderCRC(false), // a record has its own CRC
		// Each encoder holds a window and the dictionary's tables.
		zstd.WithEncoderConcurrency(min(encoders, runtime.GOMAXPROCS(0))),
		zstd.WithWindowSize(window),
		zstd.WithLowerEncoderMem(true),
	}
	if z.dictionary != nil {
		encoding = append(encoding, zstd.WithEncoderDict(z.dictionary))
	}
	enc, err := zstd.NewWriter(nil, encoding...)
	if err != nil {
		return nil, fmt.Errorf("zstd dictionary: %w", err)
	}
	return enc, nil
}

// encoder returns the encoder, and makes one if it is not kept.
func (z *Zstd) encoder() *zstd.Encoder {
	if enc := z.enc.Load(); enc != nil {
		return enc
	}
	enc, err := z.newEncoder()
	if err != nil {
		panic(err) // NewZstd has made one
	}
	if !z.enc.CompareAndSwap(nil, enc) {
		return enc // another goroutine has made one meanwhile
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	place := &kept.all[rand.IntN(keptEncoders)]
	for i := range kept.all {
		if kept.all[i].Value() == nil {
			place = &kept.all[i]
			break
		}
	}
	if other := place.Value(); other != nil && other != z {
		other.enc.Store(nil)
	}
	*place = weak.Make(z)
	return enc
}

// Dictionary returns the argument of NewZstd. It must not be changed.
func (z *Zstd) Dictionary() []byte { return z.dictionary }

// Compress appends the compressed payload to dst.
func (z *Zstd) Compress(dst, payload []byte) []byte { return z.encoder().EncodeAll(payload, dst) }

// Decompress appends the decompressed payload to dst. It returns an error if the input is
// damaged or was compressed with another dictionary.
func (z *Zstd) Decompress(dst, compressed []byte) ([]byte, error) {
	return z.dec.DecodeAll(compressed, dst)
}

// DecompressedSize returns the payload size, in bytes, that compressed declares. It
// returns 0 if the input is damaged, or if the payload is so small that no size is
// declared.
func DecompressedSize(compressed []byte) int {
	var head zstd.Header
	if err := head.Decode(compressed); err != nil || !head.HasFCS || head.FrameContentSize > MaxDecompressed {
		return 0
	}
	return int(head.FrameContentSize)
}

const (
	// MinSamples is the minimum number of payloads for a dictionary.
	MinSamples = 64
	// maxSamples limits the training time: 50 ms for 64 pods of 10 KB. Twice as many
	// samples make records less than 1 % smaller.
	maxSamples = 64
	// maxSample is the number of bytes used of each payload. The library takes seconds
	// for payloads of 100 KB, and a dictionary helps little with payloads of that size.
	maxSample = 16 << 10
	// maxDictionary limits the size of a dictionary, in bytes.
	maxDictionary = 64 << 10
	// dictionaryID is the ID in every dictionary. Nothing looks it up.
	dictionaryID = 1
)

// errUntrainable indicates samples that have nothing in common.
var errUntrainable = errors.New("no dictionary can be made of these objects")

// TrainDictionary makes a dictionary from an even selection of the payloads. The error
// explains why they are not usable; objects are then compressed without a dictionary.
func TrainDictionary(payloads [][]byte) (dictionary []byte, err error) {
	if len(payloads) < MinSamples {
		return nil, fmt.Errorf("%w: %d are too few", errUntrainable, len(payloads))
	}
	defer func() { // the library panics on input that it does not expect
		if r := recover(); r != nil {
			dictionary, err = nil, fmt.Errorf("%w: %v", errUntrainable, r)
		}
	}()
	samples := make([][]byte, 0, maxSamples)
	n := min(maxSamples, len(payloads))
	for i := range n {
		sample := payloads[i*len(payloads)/n]
		samples = append(samples, sample[:min(maxSample, len(sample))])
	}
	dictionary, err = dict.BuildZstdDict(samples, dict.Options{
		MaxDictSize: maxDictionary, HashBytes: 6, ZstdDictID: dictionaryID, ZstdLevel: zstd.SpeedFastest,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUntrainable, err)
	}
	return dictionary, nil
}
