package bolt

import (
	"crypto/sha256"
	"fmt"
)

// maxKey is the length, in bytes, of an object's key that the file has as it is. bbolt's
// keys end at 32 KiB, and Kubernetes has no such bound: a Role's name may be as long as a
// request. One that bbolt refuses would stop the commits of all scopes.
const maxKey = 1 << 10

// fileKey is the key under which the file, what is pending and all in memory have an
// object: its own, or of a longer one the beginning and a SHA-256 of all of it. Such an
// object's header has the key itself. No key that is its own file key is as long.
func fileKey(key string) string {
	if len(key) <= maxKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxKey] + string(sum[:])
}

// isHashed reports whether a file key is not the object's own key.
func isHashed(key string) bool { return len(key) > maxKey }

// headerName returns the object's own key of what is stored under a file key.
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

// name returns an object's own key.
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
