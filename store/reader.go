package store

import (
	"context"
	"iter"

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
	// Object returns one object, decoded. It may be shared: it is read-only.
	Object(key string) (obj runtime.Object, exists bool, err error)
	// Objects returns the objects that match q, decoded and as of one moment: in key
	// order, or in any order if q names an index. Objects that are not kept decoded are
	// decoded in parallel. Errors: as Select.
	Objects(q Query) ([]runtime.Object, error)
	// Entry returns the stored form of one object, without decoding it.
	Entry(key string) (e Entry, exists bool, err error)
	// Select returns the entries that match q, in key order and as of one moment. It does
	// not decode objects to find them. Errors: ErrNoIndex, and damage, because the result
	// might be incomplete.
	Select(q Query) ([]Entry, error)
	// Keys is like Select but returns only the keys. If q consists of an index and its
	// values, it reads the index alone: a key is returned even if its object's header is
	// damaged.
	Keys(q Query) ([]string, error)
	// HeadersOf returns the headers of those keys that exist, in the order of keys and as
	// of one moment.
	HeadersOf(keys []string) ([]Header, error)
	// Values returns the values of an index, in order. Errors: as Select.
	Values(indexName string) ([]string, error)
	// Follow yields what was changed after a Place, in the order in which it was applied,
	// and waits for more until ctx ends; that of a read-only database ends at the end of
	// the log. A change is yielded when it is written and not before, so no crash takes
	// it back. Nothing is held while the loop body runs. An error ends it: ErrTrimmed,
	// ErrLineage, ErrClosed, and what makes the log unreadable. The caller then reads
	// what there is and follows from there. Where ctx ends before the log has reached
	// the resource version of the Place, the error is ErrAhead, too.
	Follow(ctx context.Context, after Place) iter.Seq2[Event, error]
	// History describes the log.
	History() (LogState, error)
	// Decode returns the object of an entry: Entry.Object if it is set, else a new
	// object. It also works after Close.
	Decode(Entry) (runtime.Object, error)
	// Indexers returns a copy of the index functions, by name.
	Indexers() cache.Indexers
}
