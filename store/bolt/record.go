package bolt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// castagnoli is the polynomial of every checksum in the file, because CPUs have an
// instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// A record is one object in the objects bucket:
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
type record struct {
	codec      byte
	dictionary uint64
	dataKey    uint64
	payload    []byte
}

// record returns the record of a packed payload.
func (p packed) record(codecID byte) record {
	return record{codec: codecID, dictionary: p.dictionary, dataKey: p.dataKey, payload: p.bytes}
}

var errShort = errors.New("cut short")

func (r record) encode(key string) []byte {
	b := make([]byte, 4, 4+1+3*binary.MaxVarintLen64+len(key)+len(r.payload))
	b = append(b, r.codec)
	b = binary.AppendUvarint(b, r.dictionary)
	b = binary.AppendUvarint(b, r.dataKey)
	b = binary.AppendUvarint(b, uint64(len(key)))
	b = append(b, key...)
	b = append(b, r.payload...)
	binary.LittleEndian.PutUint32(b, checksum(b[4:]))
	return b
}

// decodeRecord checks the record that is stored under key. The payload is part of b: a
// caller that keeps it beyond the transaction must copy it.
func decodeRecord(key string, b []byte) (record, error) {
	if len(b) < 5 {
		return record{}, errShort
	}
	if got, want := checksum(b[4:]), recordSum(b); got != want {
		return record{}, fmt.Errorf("checksum is %08x, not %08x", got, want)
	}
	r, rest := record{codec: b[4]}, b[5:]
	var keyLen uint64
	for _, field := range []*uint64{&r.dictionary, &r.dataKey, &keyLen} {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return record{}, errShort
		}
		*field, rest = v, rest[n:]
	}
	if keyLen > uint64(len(rest)) {
		return record{}, errShort
	}
	if string(rest[:keyLen]) != key {
		return record{}, errors.New("record of another key")
	}
	r.payload = rest[keyLen:]
	return r, nil
}

// recordSum returns the checksum at the beginning of a record or header.
func recordSum(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}
