package record

import (
	"bytes"
	"crypto/sha256"
)

// The keys of an index bucket are value, separator, object key; their values are empty. A
// zero byte inside a value is written as 00 FF, and the value ends with 00 01, so that
// values sort as they compare and no value is a prefix of another. bbolt's keys end at 32
// KiB: therefore a value of more than MaxIndexValue bytes is truncated, ends with 00 02
// and its SHA-256, and is the value of the entry.

// MaxIndexValue is the number of bytes of an index value that its key contains.
const MaxIndexValue = 1 << 10

// IndexPrefix returns the prefix of all entries of a value.
func IndexPrefix(value string) []byte {
	return AppendIndexPrefix(make([]byte, 0, min(len(value), MaxIndexValue)+2), []byte(value))
}

// AppendIndexPrefix appends the prefix of all entries of a value to b.
func AppendIndexPrefix(b, value []byte) []byte {
	cut := value[:min(len(value), MaxIndexValue)]
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

// IndexEntry returns the key and the value of one entry. The value is never nil, because
// bbolt's Get returns nil for a missing entry.
func IndexEntry(value, key string) (k, v []byte) {
	v = []byte{}
	if len(value) > MaxIndexValue {
		v = []byte(value)
	}
	return append(IndexPrefix(value), key...), v
}

// ParseIndexEntry is the inverse of IndexEntry. ok is false for bytes that IndexEntry
// cannot have returned. If the value contains no zero byte, the results are parts of k or
// v.
func ParseIndexEntry(k, v []byte) (value, key []byte, ok bool) {
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
			prefix := AppendIndexPrefix(nil, v)
			return v, bytes.TrimPrefix(k, prefix), bytes.HasPrefix(k, prefix)
		default:
			return nil, nil, false
		}
	}
}
