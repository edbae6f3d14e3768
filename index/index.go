// Package index names index functions, so that index entries written by one process can be trusted by the next.
//
// A [cache.IndexFunc] is code: neither its address nor its body tells what a closure captured. An [Index] says it in
// words, and a store keeps [Index.Identity] beside the entries. Entries of an equal identity are used as they are, all
// others are built again.
//
// # Usage
//
// Take a ready index ([Namespace], [Label], [Field], [OwnerUID], [NodeName]), parse one from a command line ([Parse]),
// or fill in an [Index]. Whoever calls an index function that it does not own calls it through [Values].
//
// # Concurrency
//
// All functions here, and the functions of the ready indexes, are safe for concurrent use and never block. None of them
// changes or keeps the object that it is given.
//
// # Errors
//
// The functions of [Label], [Field], [OwnerUID] and [NodeName] return an error for what is no Kubernetes object, nil
// pointers and tombstones included, and never panic. Errors name types and paths, never an object's content.
package index

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Index is an index function with an identity. An informer rebuilds an index whose identity differs from the stored one.
type Index struct {
	// Name is the index's name, the key of [cache.Indexers].
	Name string
	// Version is raised when the meaning of Func changes. It is compared for equality only.
	Version string
	// Params is what Func captured, for example the label key.
	Params string
	// Func computes an object's values. It must depend on nothing but the object and what Params says.
	Func cache.IndexFunc
}

// Identity returns Name, Version and Params as one string. Two indexes have the same identity exactly if all three are
// equal.
func (i Index) Identity() string {
	return fmt.Sprintf("%q %q %q", i.Name, i.Version, i.Params)
}

// Values calls fn for obj and returns its values, sorted and each once, in a slice that is the caller's. An error of fn
// is returned as it is. A panic of fn becomes an error that names the type of the panic's value only.
func Values(fn cache.IndexFunc, obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			values, err = nil, fmt.Errorf("index: function panicked on a %T with a %T", obj, r)
		}
	}()
	values, err = fn(obj)
	if err != nil {
		return nil, err
	}
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values), nil
}

// IsNamespace reports whether fn is [cache.MetaNamespaceIndexFunc] itself. A function that calls it is another one.
func IsNamespace(fn cache.IndexFunc) bool {
	return reflect.ValueOf(fn).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
}

// accessor is meta.Accessor that returns an error for nil pointers, too.
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
