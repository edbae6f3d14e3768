package bolt

import (
	"bytes"
	"crypto/sha256"
)

// The keys of an index bucket are value, separator, object key; their values are empty. A
// zero byte inside a value is written as 00 FF, and the value ends with 00 01, so that
// values sort as they compare and no value is a prefix of another. bbolt's keys end at 32
// KiB: therefore a value of more than maxIndexValue bytes is truncated, ends with 00 02
// and its SHA-256, and is the value of the entry.
const maxIndexValue = 1 << 10

// indexPrefix returns the prefix of all entries of a value.
func indexPrefix(value string) []byte {
	return appendIndexPrefix(make([]byte, 0, min(len(value), maxIndexValue)+2), []byte(value))
}

func appendIndexPrefix(b, value []byte) []byte {
	cut := value[:min(len(value), maxIndexValue)]
	for _, c := range cut {
		if b = append(b, c); c == 0 {
			b = append(b, 0xFF)
		}
	}
	if len(cut) == len(value) {
		return append(b, 0, 1)
	}
	sum := sha256.Sum256(value)
	return append(append(b, 0, 2), sum[:]...)
}

// indexEntry returns the key and the value of one entry. The value is never nil, because
// bbolt's Get returns nil for a missing entry.
func indexEntry(value, key string) (k, v []byte) {
	v = []byte{}
	if len(value) > maxIndexValue {
		v = []byte(value)
	}
	return append(indexPrefix(value), key...), v
}

// parseIndexEntry is the inverse of indexEntry. ok is false for bytes that indexEntry
// cannot have returned. If the value contains no zero byte, the results are parts of k or
// v.
func parseIndexEntry(k, v []byte) (value, key []byte, ok bool) {
	for from := 0; ; {
		zero := bytes.IndexByte(k[from:], 0)
		if zero < 0 || from+zero+1 == len(k) {
			return nil, nil, false
		}
		piece, rest := k[from:from+zero:from+zero], k[from+zero+2:]
		switch k[from+zero+1] {
		case 0xFF:
			value = append(append(value, piece...), 0)
			from += zero + 2
		case 1:
			if value == nil {
				return piece, rest, true
			}
			return append(value, piece...), rest, true
		case 2:
			prefix := appendIndexPrefix(nil, v)
			return v, bytes.TrimPrefix(k, prefix), bytes.HasPrefix(k, prefix)
		default:
			return nil, nil, false
		}
	}
}
