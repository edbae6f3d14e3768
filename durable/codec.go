package durable

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Codec turns the keys of a queue into bytes and back. Equal keys have equal bytes, which
// are not empty. Its methods may be called by several goroutines.
type Codec[T comparable] interface {
	Encode(T) ([]byte, error)
	Decode([]byte) (T, error)
}

// ObjectNames is the Codec of names of objects, as cache.ObjectToName has them.
var ObjectNames Codec[cache.ObjectName] = objectNames{}

type objectNames struct{}

func (objectNames) Encode(n cache.ObjectName) ([]byte, error) { return []byte(n.String()), nil }

func (objectNames) Decode(b []byte) (cache.ObjectName, error) {
	n, err := cache.ParseObjectName(string(b))
	if err != nil {
		return n, fmt.Errorf("%q is not the name of an object: %w", b, err)
	}
	return n, nil
}
