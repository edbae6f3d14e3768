// Package index names index functions, so that a process can trust index entries that an
// earlier process has written.
//
// A [cache.IndexFunc] is code: neither its address nor its body shows what a closure has
// captured. An [Index] states it explicitly, and a store keeps [Index.Identity] with the
// entries. Entries with an equal identity are reused; all others are rebuilt.
//
// # Usage
//
// Use a predefined index ([Namespace], [Label], [Field], [OwnerUID], [NodeName]), parse
// one from a command line ([Parse]), or fill in an [Index]. To call an index function of
// other code, use [Values].
//
// # Concurrency
//
// All functions here, and the functions of the predefined indexes, are safe for
// concurrent use and never block. They neither change nor keep the object that they are
// given.
//
// # Errors
//
// The functions of [Label], [Field], [OwnerUID] and [NodeName] return an error for an
// argument that is not a Kubernetes object, including nil pointers and tombstones, and
// never panic. Errors name types and paths and never contain the content of an object.
package index

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Index is an index function with an identity. An informer rebuilds an index if its
// identity differs from the stored one.
type Index struct {
	// Name is the index's name, the key of [cache.Indexers].
	Name string
	// Version must change when the meaning of Func changes. It is compared only for
	// equality.
	Version string
	// Params contains what Func has captured, for example the label key.
	Params string
	// Func computes the values of an object. It must depend only on the object and on the
	// content of Params.
	Func cache.IndexFunc
}

// Identity returns Name, Version and Params as one string. Two indexes have the same
// identity if and only if all three are equal.
func (i Index) Identity() string {
	return fmt.Sprintf("%q %q %q", i.Name, i.Version, i.Params)
}

// Values calls fn for obj and returns its values, sorted and without duplicates, in a
// slice that the caller owns. An object for which fn returns ErrNoValue has no values.
// Values returns another error of fn unchanged. It turns a panic of fn into an error that
// names only the type of the panic value.
func Values(fn cache.IndexFunc, obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			values, err = nil, fmt.Errorf("index: function panicked on a %T with a %T", obj, r)
		}
	}()
	values, err = fn(obj)
	if errors.Is(err, ErrNoValue) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values), nil
}

// IsNamespace reports whether fn is [cache.MetaNamespaceIndexFunc] itself. A function
// that calls it is a different function.
func IsNamespace(fn cache.IndexFunc) bool {
	return reflect.ValueOf(fn).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
}

// IsNodeName reports whether fn is that of [NodeName]. Another function may have its
// name.
func IsNodeName(fn cache.IndexFunc) bool {
	return reflect.ValueOf(fn).Pointer() == reflect.ValueOf(nodeName).Pointer()
}

// accessor is like meta.Accessor but also returns an error for nil pointers.
func accessor(obj any) (metav1.Object, error) {
	if v := reflect.ValueOf(obj); v.Kind() != reflect.Pointer || v.IsNil() {
		return nil, fmt.Errorf("index: no object but a %T", obj)
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("index: no object but a %T", obj)
	}
	return m, nil
}
