package store

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Reader contains the methods of Store that change nothing and return their errors. The
// contract of Store applies to each of them.
type Reader interface {
	Checkpoint() Checkpoint
	Len() int
	GetIndexers() cache.Indexers

	Entry(key string) (Entry, bool, error)
	Select(q Query) ([]Entry, error)
	HeadersOf(keys []string) ([]Header, error)
	IndexKeys(indexName, indexedValue string) ([]string, error)
	TryListIndexFuncValues(indexName string) ([]string, error)
	Decode(Entry) (runtime.Object, error)
}

var _ Reader = Store(nil)
