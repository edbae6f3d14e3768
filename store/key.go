package store

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// KeyOf returns what fn calls an object. An error of fn, a panic, as a nil
// pointer causes, and an empty key are an *ObjectError that names the Go type.
func KeyOf(fn cache.KeyFunc, obj any) (key string, err error) {
	defer func() {
		if recover() != nil {
			key, err = "", &ObjectError{Err: fmt.Errorf("a %T that is not an object", obj)}
		}
	}()
	if key, err = fn(obj); err == nil && key == "" {
		err = errors.New("empty key")
	}
	if err != nil {
		return "", &ObjectError{Err: fmt.Errorf("key of a %T: %w", obj, err)}
	}
	return key, nil
}
