package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// Zstd is a Compressor that uses zstd, with or without a dictionary.
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

// NewZstd returns a Zstd. The dictionary is not copied; nil means no dictionary.
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

// Dictionary implements Compressor.
func (z *Zstd) Dictionary() []byte { return z.dictionary }

// Compress implements Compressor.
func (z *Zstd) Compress(dst, payload []byte) []byte {
	return appendCompressed(dst, func(buf []byte) []byte { return z.encoder().EncodeAll(payload, buf) })
}

// Decompress implements Compressor.
func (z *Zstd) Decompress(dst, compressed []byte) ([]byte, error) {
	return z.dec.DecodeAll(compressed, dst)
}

// DecompressedSize returns the size, in bytes, of a payload of at least 128 bytes that
// compressed declares. It returns 0 if the input is damaged, or if the payload is so
// small that no size is declared.
func DecompressedSize(compressed []byte) int {
	if !bytes.HasPrefix(compressed, zstdFrame) {
		n, err := s2.DecodedLen(compressed)
		if err != nil || n > MaxDecompressed {
			return 0
		}
		return n
	}
	var head zstd.Header
	if err := head.Decode(compressed); err != nil || !head.HasFCS || head.FrameContentSize > MaxDecompressed {
		return 0
	}
	return int(head.FrameContentSize)
}

const (
	// maxDictionary limits the size of a dictionary, in bytes.
	maxDictionary = 64 << 10
	// dictionaryID is the ID in every dictionary. Nothing looks it up.
	dictionaryID = 1
)

// errUntrainable indicates samples that have nothing in common.
var errUntrainable = errors.New("no dictionary can be made of these objects")

// trainZstd makes a dictionary of zstd from samples, in 50 ms for 64 pods of 10 KB.
func trainZstd(samples [][]byte) (dictionary []byte, err error) {
	defer func() { // the library panics on input that it does not expect
		if r := recover(); r != nil {
			dictionary, err = nil, fmt.Errorf("%w: %v", errUntrainable, r)
		}
	}()
	dictionary, err = dict.BuildZstdDict(samples, dict.Options{
		MaxDictSize: maxDictionary, HashBytes: 6, ZstdDictID: dictionaryID, ZstdLevel: zstd.SpeedFastest,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUntrainable, err)
	}
	return dictionary, nil
}
