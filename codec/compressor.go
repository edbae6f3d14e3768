package codec

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/s2"
)

// A Compressor compresses encoded objects. Its dictionary contains data that many objects
// of one resource have in common. It is safe for concurrent use, has no goroutines and
// need not be closed.
type Compressor interface {
	// Compress appends the compressed payload to dst.
	Compress(dst, payload []byte) []byte
	// Decompress appends the decompressed payload to dst. It returns an error if the
	// input is damaged. Input that was compressed with another dictionary may not be
	// noticed.
	Decompress(dst, compressed []byte) ([]byte, error)
	// Dictionary returns the dictionary. It must not be changed.
	Dictionary() []byte
}

// NewCompressor returns the Compressor of a dictionary that Train has made, which says
// which algorithm it is for and must not be changed. An empty one means zstd without a
// dictionary.
func NewCompressor(dictionary []byte) (Compressor, error) {
	switch {
	case len(dictionary) == 0:
		return NewZstd(nil)
	case bytes.HasPrefix(dictionary, zstdDictionary):
		return NewZstd(dictionary)
	default:
		return newS2(dictionary)
	}
}

// zstdDictionary begins every dictionary of zstd, see RFC 8878, section 5. The first byte
// of one for S2 is 0.
var zstdDictionary = []byte{0x37, 0xA4, 0x30, 0xEC}

// zstdFrame begins what zstd has compressed, see RFC 8878, section 3.1.1. What S2 has
// compressed begins with the length of the payload, which would be 40 bytes here.
var zstdFrame = []byte{0x28, 0xB5, 0x2F, 0xFD}

const (
	// MinSamples is the minimum number of payloads for a dictionary.
	MinSamples = 64
	// maxSamples limits the training time.
	maxSamples = 64
	// maxSample is the number of bytes used of each payload.
	maxSample = 16 << 10
)

var (
	errTooFew    = errors.New("too few objects for a dictionary")
	errNeedsZstd = errors.New("S2 does not make the objects small enough")
)

// Train makes a dictionary from an even selection of the payloads and returns its
// Compressor. The error explains why they are not usable; objects are then compressed
// without a dictionary.
//
// S2 takes a sixth of zstd's time for pods of 10 KB, and a tenth to decompress. Its
// dictionary is a part of the objects, so that nothing has to be trained. Where objects
// have much in common its records are smaller, too: pods take 1.1 KB instead of 1.8. zstd
// compresses what S2 leaves larger than s2Share.
//
// The dictionary of S2 has at most size bytes; see DictionarySize.
func Train(payloads [][]byte, size int) (Compressor, error) {
	z, err := TrainFast(payloads, size)
	if !errors.Is(err, errNeedsZstd) {
		return z, err
	}
	dictionary, err := trainZstd(samplesOf(payloads))
	if err != nil {
		return nil, err
	}
	return NewZstd(dictionary)
}

// TrainFast is Train for those who cannot wait for zstd: in 0.3 ms it returns the
// Compressor of S2, or an error.
func TrainFast(payloads [][]byte, size int) (Compressor, error) {
	if len(payloads) < MinSamples {
		return nil, fmt.Errorf("%w: %d", errTooFew, len(payloads))
	}
	if z := trainS2(samplesOf(payloads), size); z != nil {
		return z, nil
	}
	return nil, errNeedsZstd
}

// DictionarySize returns the size of the dictionary, in bytes, for a collection that has
// these payloads, and no others yet.
func DictionarySize(payloads [][]byte) int {
	total := 0
	for _, payload := range payloads {
		total += len(payload)
	}
	return min(max(total/payloadsOfS2Dictionary, minS2Dictionary), MaxS2Dictionary)
}

func samplesOf(payloads [][]byte) [][]byte {
	samples := make([][]byte, min(maxSamples, len(payloads)))
	for i := range samples {
		sample := payloads[i*len(payloads)/len(samples)]
		samples[i] = sample[:min(maxSample, len(sample))]
	}
	return samples
}

const (
	// s2Share is the share of the payloads, in per cent, that S2 may leave.
	s2Share = 42
	// MaxS2Dictionary limits the size of a dictionary of S2, in bytes: twice as many save
	// 3 %.
	MaxS2Dictionary = 32 << 10
	// payloadsOfS2Dictionary is how much larger the payloads are than their dictionary. A
	// hundred objects of 2 KB would take less memory than a dictionary of 32 KB, and
	// there may be hundreds of such scopes.
	payloadsOfS2Dictionary = 16
	// minS2Dictionary is large enough for one object of 10 KB: ConfigMaps take 0.36 of
	// their size with it, and 0.34 with the largest one.
	minS2Dictionary = 12 << 10
)

// trainS2 makes a dictionary of every other sample, of at most size bytes. It returns nil
// if S2 leaves too much of the rest.
func trainS2(samples [][]byte, size int) Compressor {
	dictionary := []byte{0} // where the first repetition is expected
	var rest [][]byte
	for i, sample := range samples {
		if room := 1 + size - len(dictionary); i%2 == 0 && room > 0 {
			dictionary = append(dictionary, sample[:min(room, len(sample))]...)
		} else {
			rest = append(rest, sample)
		}
	}
	z, err := newS2(dictionary)
	if err != nil {
		return nil
	}
	is, was := 0, 0
	for _, sample := range rest {
		is, was = is+len(z.Compress(nil, sample)), was+len(sample)
	}
	if 100*is > s2Share*was {
		return nil
	}
	return z
}

// s2Compressor compresses with S2, see github.com/klauspost/compress/s2.
type s2Compressor struct {
	dictionary []byte
	dict       *s2.Dict
}

// roomOfS2 is how many bytes of room s2.NewDict wants behind a dictionary. It copies one
// that has less, and there would be two of each scope.
const roomOfS2 = 16

func newS2(dictionary []byte) (Compressor, error) {
	dictionary = append(make([]byte, 0, len(dictionary)+roomOfS2), dictionary...)
	d := s2.NewDict(dictionary)
	if d == nil {
		return nil, fmt.Errorf("%d bytes are no dictionary", len(dictionary))
	}
	return &s2Compressor{dictionary: dictionary, dict: d}, nil
}

// Dictionary implements Compressor.
func (z *s2Compressor) Dictionary() []byte { return z.dictionary }

// Compress implements Compressor.
func (z *s2Compressor) Compress(dst, payload []byte) []byte {
	return appendCompressed(dst, func(buf []byte) []byte {
		if n := s2.MaxEncodedLen(len(payload)); cap(buf) < n {
			buf = make([]byte, n)
		}
		return z.dict.Encode(buf[:cap(buf)], payload)
	})
}

// Decompress implements Compressor.
func (z *s2Compressor) Decompress(dst, compressed []byte) ([]byte, error) {
	n, err := s2.DecodedLen(compressed)
	if err == nil && n > MaxDecompressed {
		err = s2.ErrTooLarge
	}
	if err != nil {
		return dst, err
	}
	all := slices.Grow(dst, n)[:len(dst)+n]
	if _, err := z.dict.Decode(all[len(dst):], compressed); err != nil {
		return dst, err
	}
	return all, nil
}

// compressing are buffers for what is compressed: it is smaller than it may get, and is
// kept until a transaction ends.
var compressing = sync.Pool{New: func() any { return new([]byte) }}

// maxKeptBuffer is the size, in bytes, above which a buffer is not used again.
const maxKeptBuffer = 1 << 20

// appendCompressed appends to dst what compress puts into a buffer.
func appendCompressed(dst []byte, compress func(buf []byte) []byte) []byte {
	buf := compressing.Get().(*[]byte)
	out := compress((*buf)[:0])
	dst = append(dst, out...)
	if cap(out) <= maxKeptBuffer {
		*buf = out
		compressing.Put(buf)
	}
	return dst
}
