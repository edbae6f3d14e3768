package bolt

import (
	"bytes"
	"crypto/sha256"
)

// An index bucket maps value, separator, key to nothing. A zero byte inside a
// value is written as 00 FF, and the value ends with 00 01, so that values sort
// as they compare and none is a prefix of another. bbolt's keys end at 32 KiB:
// a value over maxIndexValue is cut and ends with 00 02 and its SHA-256, and the
// entry then holds the value itself.
const maxIndexValue = 1 << 10

// indexPrefix returns what all entries of a value begin with.
func indexPrefix(value string) []byte {
	cut := value
	if len(value) > maxIndexValue {
		cut = value[:maxIndexValue]
	}
	b := make([]byte, 0, len(cut)+2)
	for i := range len(cut) {
		if b = append(b, cut[i]); cut[i] == 0 {
			b = append(b, 0xFF)
		}
	}
	if len(cut) == len(value) {
		return append(b, 0, 1)
	}
	sum := sha256.Sum256([]byte(value))
	return append(append(b, 0, 2), sum[:]...)
}

// indexEntry returns the key and value of one entry. The value is never nil:
// bbolt's Get could not tell a nil one from a missing entry.
func indexEntry(value, key string) (k, v []byte) {
	v = []byte{}
	if len(value) > maxIndexValue {
		v = []byte(value)
	}
	return append(indexPrefix(value), key...), v
}

// parseIndexEntry is the inverse of indexEntry; ok is false for bytes that it
// cannot have made.
func parseIndexEntry(k, v []byte) (value, key string, ok bool) {
	var b []byte
	for i := 0; i+1 < len(k); i++ {
		if k[i] != 0 {
			b = append(b, k[i])
			continue
		}
		rest := k[i+2:]
		switch k[i+1] {
		case 0xFF:
			b = append(b, 0)
			i++
		case 1:
			return string(b), string(rest), true
		case 2:
			prefix := indexPrefix(string(v))
			return string(v), string(bytes.TrimPrefix(k, prefix)), bytes.HasPrefix(k, prefix)
		default:
			return "", "", false
		}
	}
	return "", "", false
}
