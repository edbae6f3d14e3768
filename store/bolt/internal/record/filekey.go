package record

import (
	"crypto/sha256"
	"fmt"
)

// MaxKey is the maximum length, in bytes, of an object key that the file contains
// unchanged. bbolt's keys end at 32 KiB, and Kubernetes has no such bound: a Role's name
// may be as long as a request. A key that bbolt rejects would fail the commits of all
// scopes.
const MaxKey = 1 << 10

// FileKey returns the key of an object in the file, in pending and in all maps in memory:
// the object's own key or, if that is longer than MaxKey, its beginning followed by the
// SHA-256 of the whole key. The header of such an object contains its own key. Both cases
// cannot collide, because a hashed key is longer than MaxKey.
func FileKey(key string) string {
	if len(key) <= MaxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:MaxKey] + string(sum[:])
}

// IsHashed reports whether a file key is not the object's own key.
func IsHashed(key string) bool { return len(key) > MaxKey }

// HeaderName returns the object's own key of the header that is stored under a file key.
func HeaderName(key string, header []byte) (string, error) {
	if !IsHashed(key) {
		return key, nil
	}
	h, err := DecodeHeader(key, header)
	if err == nil && FileKey(h.Name) != key {
		err = fmt.Errorf("header of another key")
	}
	if err != nil {
		return "", err
	}
	return h.Name, nil
}
