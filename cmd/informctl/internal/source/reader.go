package source

import (
	"context"
	"iter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/internal/wire"
	"github.com/informctl/informctl/store"
)

// Reader is the interface through which commands read one scope. All keys that it returns
// are sorted. If a process is queried, its objects may change between two calls. A Reader
// must be used from one goroutine, except Encoded.Decode.
type Reader interface {
	AllKeys() ([]string, error)
	ByIndex(name, value string) ([]string, error)
	Labelled(labels.Selector) ([]string, error)
	// Among returns those of the keys that exist and whose labels match.
	Among(keys []string, selector labels.Selector) ([]string, error)
	// Fetch returns the objects of keys, in their order. d defines which parts are
	// needed.
	Fetch(keys []string, d Depth) ([]Encoded, error)
	// IndexValues returns the values of an index, sorted. Values of Secrets may be
	// redacted.
	IndexValues(index string) ([]IndexValue, error)
	// Changes yields the changes in the log that were written at or after a time, and
	// those that are written later if live is set. head is called before the first one.
	Changes(ctx context.Context, since time.Time, live bool, head func(wire.HistoryHead)) iter.Seq2[Change, error]
}

// Change is one change of an object. A state that is nil was not there.
type Change struct {
	Key, RV string
	// it was made between them; Since is zero if it was made at Time
	Since, Time time.Time
	Old, New    *Encoded
}

// Depth is the part of an object that is needed.
type Depth int

// The depths, each of which includes those before it.
const (
	Nothing Depth = iota // only its key
	Header               // namespace, name, UID, RV, creation: nothing is decoded
	Record               // the parts that the codec of the scope decodes
)

// Encoded is an object in its stored form.
type Encoded struct {
	Decode func() (runtime.Object, error) // nil: the object no longer exists
}

// headerOnly returns an object that is decoded from its header.
func headerOnly(h store.Header) Encoded {
	return Encoded{Decode: func() (runtime.Object, error) {
		m := &metav1.PartialObjectMetadata{}
		m.Namespace, m.Name, _ = cache.SplitMetaNamespaceKey(h.Key)
		m.UID, m.ResourceVersion = types.UID(h.UID), h.RV
		m.CreationTimestamp = metav1.NewTime(h.Created)
		return m, nil
	}}
}

// IndexValue is one value of an index.
type IndexValue struct {
	Value string `json:"value"`
	Count int    `json:"count"` // number of objects with the value
}
