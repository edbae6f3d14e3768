// Package indexes has the index functions of a scope, and the entries of those whose
// entries are kept in memory.
package indexes

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
)

// Set contains the scope's index functions: stored ones, which have an identity and whose
// entries are in the file, and volatile ones, which have no identity and whose entries
// are in memory while the scope is open. It is replaced, never changed.
type Set struct {
	Stored   map[string]index.Index
	Volatile cache.Indexers
}

// Clone returns a copy whose maps are the caller's.
func (x *Set) Clone() *Set {
	return &Set{Stored: maps.Clone(x.Stored), Volatile: maps.Clone(x.Volatile)}
}

// Has reports whether there is an index of that name.
func (x *Set) Has(name string) bool {
	_, isStored := x.Stored[name]
	_, isVolatile := x.Volatile[name]
	return isStored || isVolatile
}

// Indexers returns all functions by name. The map is the caller's.
func (x *Set) Indexers() cache.Indexers {
	out := maps.Clone(x.Volatile)
	for name, idx := range x.Stored {
		out[name] = idx.Func
	}
	return out
}

// AreOfNames reports whether the functions need no more of an object than its name and
// its namespace.
func (x *Set) AreOfNames() bool {
	for _, idx := range x.Stored {
		if !index.IsNamespace(idx.Func) {
			return false
		}
	}
	for _, fn := range x.Volatile {
		if !index.IsNamespace(fn) {
			return false
		}
	}
	return true
}

// Values runs every function on one object. If failed is nil, the first failing function
// ends it with an error. Otherwise failed receives the errors, and the object has no
// values in the indexes whose functions failed.
func (x *Set) Values(obj runtime.Object, failed func(error)) (stored, volatile map[string][]string, err error) {
	stored = make(map[string][]string, len(x.Stored))
	for name, idx := range x.Stored {
		if stored[name], err = ValuesOf(name, idx.Func, obj, failed); err != nil {
			return nil, nil, err
		}
	}
	if len(x.Volatile) > 0 {
		volatile = make(map[string][]string, len(x.Volatile))
	}
	for name, fn := range x.Volatile {
		if volatile[name], err = ValuesOf(name, fn, obj, failed); err != nil {
			return nil, nil, err
		}
	}
	return stored, volatile, nil
}

// ValuesOf runs one function on one object; failed is as in Set.Values.
func ValuesOf(name string, fn cache.IndexFunc, obj runtime.Object, failed func(error)) ([]string, error) {
	values, err := index.Values(fn, obj)
	if err == nil {
		return values, nil
	}
	if err = fmt.Errorf("index %q: %w", name, err); failed == nil {
		return nil, err
	}
	failed(err)
	return nil, nil
}
