package record

import (
	"encoding/binary"

	"github.com/informctl/informctl/codec"
)

// The raw form of an encoded object is the value of store.Entry.Raw:
//
//	codec, 1 byte
//	dictionary id, uvarint; 0 means not compressed
//	payload
//
// With these an object can be decoded without the file.

// AppendRaw appends the raw form of a payload.
func AppendRaw(b []byte, codecID byte, dictionary uint64, payload []byte) []byte {
	return append(AppendRawHead(b, codecID, dictionary), payload...)
}

// AppendRawHead appends the part of the raw form that precedes the payload.
func AppendRawHead(b []byte, codecID byte, dictionary uint64) []byte {
	return binary.AppendUvarint(append(b, codecID), dictionary)
}

// ParseRaw returns the parts of a raw form. The payload is part of raw.
func ParseRaw(raw []byte) (codecID byte, dictionary uint64, payload []byte, err error) {
	if len(raw) < 2 {
		return 0, 0, nil, ErrShort
	}
	id, n := binary.Uvarint(raw[1:])
	if n <= 0 {
		return 0, 0, nil, ErrShort
	}
	return raw[0], id, raw[1+n:], nil
}

// RawSize returns the number of bytes of an encoded object before compression.
func RawSize(raw []byte) int {
	_, dictionary, payload, err := ParseRaw(raw)
	if err != nil || dictionary == 0 {
		return len(payload)
	}
	return codec.DecompressedSize(payload)
}
