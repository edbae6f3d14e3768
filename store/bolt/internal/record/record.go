package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// castagnoli is the polynomial of every checksum in the file, because CPUs have an
// instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C of b.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// A Record is one object in the objects bucket:
//
//	CRC-32C of the rest, 4 bytes little endian
//	codec, 1 byte
//	dictionary id, uvarint; 0 means not compressed
//	data key id, uvarint; 0 means not encrypted
//	key, uvarint length and bytes
//	payload
//
// The record contains the key, so that an intact page in the wrong place or a flipped bit
// in a bucket key is noticed.
type Record struct {
	Codec      byte
	Dictionary uint64
	DataKey    uint64
	Payload    []byte
}

// ErrShort indicates stored bytes whose end is missing.
var ErrShort = errors.New("cut short")

// Encode returns the record for the bucket entry with that key.
func (r Record) Encode(key string) []byte {
	b := make([]byte, 4, 4+1+3*binary.MaxVarintLen64+len(key)+len(r.Payload))
	b = append(b, r.Codec)
	b = binary.AppendUvarint(b, r.Dictionary)
	b = binary.AppendUvarint(b, r.DataKey)
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = append(b, r.Payload...)
	binary.LittleEndian.PutUint32(b, Checksum(b[4:]))
	return b
}

// Decode checks the record that is stored under key. The payload is part of b: a
// caller that keeps it beyond the transaction must copy it.
func Decode(key string, b []byte) (Record, error) {
	if len(b) < 5 {
		return Record{}, ErrShort
	}
	if got, want := Checksum(b[4:]), Sum(b); got != want {
		return Record{}, fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	r, rest := Record{Codec: b[4]}, b[5:]
	var keyLen uint64
	for _, field := range []*uint64{&r.Dictionary, &r.DataKey, &keyLen} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return Record{}, ErrShort
		}
		*field, rest = v, rest[n:]
	}
	if keyLen > uint64(len(rest)) {
		return Record{}, ErrShort
	}
	if string(rest[:keyLen]) != key {
		return Record{}, errors.New("record of another key")
	}
	r.Payload = rest[keyLen:]
	return r, nil
}

// dictionaryOf returns the dictionary id of an intact record.
func dictionaryOf(b []byte) uint64 {
	id, _ := binary.Uvarint(b[min(5, len(b)):])
	return id
}

// Sum returns the checksum at the beginning of a record or header.
func Sum(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}
