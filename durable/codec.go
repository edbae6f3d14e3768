package durable

import (
	"fmt"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// Codec turns the keys of a queue into bytes and back. Equal keys have equal bytes, which
// are not empty, and are stored without encryption. Its methods may be called by several
// goroutines.
type Codec[T comparable] interface {
	Encode(T) ([]byte, error)
	Decode([]byte) (T, error)
}

// ObjectNames is the Codec of names of objects, as cache.ObjectToName has them. The empty
// name is one, too. A namespace or a name with a slash, which no object has, is an error:
// a program with such keys needs a Codec of its own.
var ObjectNames Codec[cache.ObjectName] = objectNames{}

type objectNames struct{}

func (objectNames) Encode(n cache.ObjectName) ([]byte, error) {
	switch {
	case strings.Contains(n.Namespace, "/") || strings.Contains(n.Name, "/"):
		return nil, fmt.Errorf("the namespace %q or the name %q has a slash; want the name of an object, or another Codec", n.Namespace, n.Name)
	case n == cache.ObjectName{}:
		return []byte("/"), nil
	}
	return []byte(n.String()), nil
}

func (objectNames) Decode(b []byte) (cache.ObjectName, error) {
	n, err := cache.ParseObjectName(string(b))
	if err != nil {
		return n, fmt.Errorf("%q is not the name of an object: %w", b, err)
	}
	return n, nil
}
