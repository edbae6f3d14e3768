package codec

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
)

// Zstd compresses encoded objects, with or without a dictionary. A dictionary
// holds what the objects of one resource repeat of each other: 10 KB pods take
// 1.9 KB with one that was made of 64 of them. Its methods are safe for concurrent
// use. It has no goroutines and need not be closed.
type Zstd struct {
	dictionary []byte
	enc        *zstd.Encoder
	dec        *zstd.Decoder
}

// MaxDecompressed bounds the object that damaged input may claim to be, in bytes: what is
// longer must not be compressed, since Decompress refuses it.
// An API server takes objects of 3 MiB at most (etcd's limit is 1.5 MiB).
const MaxDecompressed = 64 << 20

const (
	// encoders and decoders bound how many payloads are worked on at a time, and so
	// the memory of a Zstd, whatever the number of cores.
	encoders = 2
	decoders = 8
	// window is how far back repetition is found, in bytes.
	window = 128 << 10
)

// NewZstd returns a compressor. dictionary is what TrainDictionary or
// Zstd.Dictionary returned, and is not copied; nil is none.
func NewZstd(dictionary []byte) (*Zstd, error) {
	z := &Zstd{dictionary: dictionary}
	encoding := []zstd.EOption{
		zstd.WithEncoderLevel(zstd.SpeedFastest), // others take three times as long for a tenth less
		zstd.WithEncoderCRC(false),               // a record has its own
		// Each encoder holds a window and the dictionary's tables for good: 0.9 MB.
		zstd.WithEncoderConcurrency(min(encoders, runtime.GOMAXPROCS(0))),
		zstd.WithWindowSize(window),
		zstd.WithLowerEncoderMem(true),
	}
	decoding := []zstd.DOption{
		zstd.WithDecoderConcurrency(min(decoders, runtime.GOMAXPROCS(0))),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxDecompressed),
	}
	if dictionary != nil {
		encoding = append(encoding, zstd.WithEncoderDict(dictionary))
		decoding = append(decoding, zstd.WithDecoderDicts(dictionary))
	}
	var err error
	if z.enc, err = zstd.NewWriter(nil, encoding...); err != nil {
		return nil, fmt.Errorf("zstd dictionary: %w", err)
	}
	if z.dec, err = zstd.NewReader(nil, decoding...); err != nil {
		return nil, fmt.Errorf("zstd dictionary: %w", err)
	}
	return z, nil
}

// Dictionary returns what NewZstd was given; it must not be changed.
func (z *Zstd) Dictionary() []byte { return z.dictionary }

// Compress appends the compressed payload to dst.
func (z *Zstd) Compress(dst, payload []byte) []byte { return z.enc.EncodeAll(payload, dst) }

// Decompress appends the payload that Compress was given to dst. The error is that
// of damage, or of another dictionary.
func (z *Zstd) Decompress(dst, compressed []byte) ([]byte, error) {
	return z.dec.DecodeAll(compressed, dst)
}

// DecompressedSize returns the size, in bytes, that compressed says its payload
// has; 0 where it is damaged, or of a few bytes only.
func DecompressedSize(compressed []byte) int {
	var head zstd.Header
	if err := head.Decode(compressed); err != nil || !head.HasFCS || head.FrameContentSize > MaxDecompressed {
		return 0
	}
	return int(head.FrameContentSize)
}

const (
	// MinSamples is how many payloads a dictionary is made of at least.
	MinSamples = 64
	// maxSamples bounds the time that it takes: 0.2 s for 128 pods of 10 KB. Four
	// times as many make records smaller by a fiftieth.
	maxSamples = 128
	// maxSample is how much of a payload is looked at, in bytes: of 128 of 100 KB the
	// library makes a dictionary in 3 s, and a dictionary helps little with those.
	maxSample = 16 << 10
	// maxDictionary bounds a dictionary, in bytes.
	maxDictionary = 64 << 10
	// dictionaryID is inside every dictionary. Nothing looks it up.
	dictionaryID = 1
)

// errUntrainable indicates samples that have nothing in common.
var errUntrainable = errors.New("no dictionary can be made of these objects")

// TrainDictionary makes a dictionary of payloads, of which it uses an even
// choice. The error says why they are no use: then objects are compressed without.
func TrainDictionary(payloads [][]byte) (dictionary []byte, err error) {
	if len(payloads) < MinSamples {
		return nil, fmt.Errorf("%w: %d are too few", errUntrainable, len(payloads))
	}
	defer func() { // of what it is not made for the library panics
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
