package bolt

import (
	"crypto/sha256"
	"fmt"
)

// maxKey is the maximum length, in bytes, of an object key that the file contains
// unchanged. bbolt's keys end at 32 KiB, and Kubernetes has no such bound: a Role's name
// may be as long as a request. A key that bbolt rejects would fail the commits of all
// scopes.
const maxKey = 1 << 10

// fileKey returns the key of an object in the file, in pending and in all maps in memory:
// the object's own key or, if that is longer than maxKey, its beginning followed by the
// SHA-256 of the whole key. The header of such an object contains its own key. Both cases
// cannot collide, because a hashed key is longer than maxKey.
func fileKey(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxKey] + string(sum[:])
}

// isHashed reports whether a file key is not the object's own key.
func isHashed(key string) bool { return len(key) > maxKey }

// headerName returns the object's own key of the header that is stored under a file key.
func headerName(key string, header []byte) (string, error) {
	if !isHashed(key) {
		return key, nil
	}
	h, err := decodeHeader(key, header)
	if err == nil && fileKey(h.Name) != key {
		err = fmt.Errorf("header of another key")
	}
	if err != nil {
		return "", err
	}
	return h.Name, nil
}

// name returns the own key of the object with a file key.
func (sn *snapshot) name(key string) (string, error) {
	if !isHashed(key) {
		return key, nil
	}
	if e, ok := sn.pending.Get(key); ok {
		return e.name, nil
	}
	if sn.headers == nil {
		return "", fmt.Errorf("header is missing")
	}
	return headerName(key, sn.headers.Get([]byte(key)))
}
