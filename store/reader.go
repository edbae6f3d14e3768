package store

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Reader is a scope for readers: its methods change nothing and return their errors. It
// may be used by several goroutines.
type Reader interface {
	// Checkpoint returns the resource version that the scope is complete up to, or the
	// reason why there is none. It includes applied changes that are not written yet.
	Checkpoint() Checkpoint
	// Len returns the number of objects. It decodes none.
	Len() int
	// Entry returns the stored form of one object, without decoding it.
	Entry(key string) (Entry, bool, error)
	// Select returns the entries that match q, in key order and as of one moment. It does
	// not decode objects to find them. Errors: ErrNoIndex, and damage, because the result
	// might be incomplete.
	Select(q Query) ([]Entry, error)
	// HeadersOf returns the headers of those keys that exist, in the order of keys and as
	// of one moment.
	HeadersOf(keys []string) ([]Header, error)
	// Decode returns the object of an entry: Entry.Object if it is set, else a new
	// object. It also works after Close.
	Decode(Entry) (runtime.Object, error)
	// GetIndexers returns a copy of the index functions, by name.
	GetIndexers() cache.Indexers
	// IndexKeys returns the keys of the objects that have a value in an index.
	IndexKeys(indexName, indexedValue string) ([]string, error)
	// TryListIndexFuncValues returns the values of an index. It is ListIndexFuncValues
	// with the error of this read.
	TryListIndexFuncValues(indexName string) ([]string, error)
}
