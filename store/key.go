package store

import (
	"errors"
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// KeyOf returns the key that fn gives to an object. It returns an *ObjectError that names
// the Go type if fn fails, panics (for example because of a nil pointer) or returns an
// empty key.
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
