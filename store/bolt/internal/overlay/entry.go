// Package overlay has what was applied to a scope and is not in the file yet, and merges
// it over what is in the file. Unlike the write buffer of a database that commits on each
// deletion, it has entries of deletions, too.
package overlay

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/indexes"
	"github.com/informctl/informctl/store/bolt/internal/record"
)

// Entry is the newest state of a changed key.
type Entry struct {
	Key     string         // in the file
	Name    string         // the object's own key: see record.FileKey
	Payload record.Packed  // empty if deleted
	Head    *record.Header // nil if deleted
	// Volatile contains the values of index functions without an identity, by name.
	Volatile map[string][]string
	Indexes  *indexes.Set   // the functions that computed the index values
	Object   runtime.Object // the encoded object, for the cache; not kept in pending
	// Encoded is the same for an object that is not decoded yet; Raw is nil if it is.
	Encoded store.Entry

	// Departing means that the stored state is to be kept as a departed object.
	Departing bool
	// Departs is the number of the departed object. It is assigned when the entry becomes
	// visible; 0 means that the entry does not depart.
	Departs uint64
	// Before is the state that departs, or the last one of an object that is deleted, if
	// it was not written when that happened.
	Before *Entry
	// Last is the final state of the departed object.
	Last record.Packed

	// Applied means that the entry is or was in an overlay. Another application of the
	// same change needs an entry of its own.
	Applied bool

	// InFile means that a first list has written the entry, as it is. The commit writes
	// it once more, compressed.
	InFile bool

	// Absent means that the file had no object when the entry became pending, or since.
	Absent bool

	Codec     byte      // of payload; 0: that of the scope
	Order     uint64    // of application; 0: not logged
	DeletedAt string    // the resource version of a deletion, if it is known
	Since     time.Time // the change was made at some time after it; zero: now
}

// Values returns the object's values in an index.
func (e *Entry) Values(name string) []string {
	if values, ok := e.Volatile[name]; ok || e.Head == nil {
		return values
	}
	return e.Head.Index[name]
}

// Stored returns the header that is written together with p.
func (e *Entry) Stored(p record.Packed) *record.Header {
	if p.Head != nil {
		return p.Head
	}
	return e.Head
}

// Size estimates the memory that an entry takes, in bytes.
func (e *Entry) Size() int {
	size := len(e.Key) + len(e.Payload.Bytes) + len(e.Last.Bytes) + 256
	if e.Before != nil {
		size += e.Before.Size()
	}
	return size
}

// follows takes over that the entry before has been written.
func (e *Entry) follows(written *Entry) {
	e.Absent = written.Head == nil
	switch {
	case written.Departs != 0 && e.Departs == written.Departs: // it has departed
		e.Departs, e.Before, e.Last = 0, nil, record.Packed{}
	case e.Departs == 0 && (!e.Absent || e.Before == written.Before):
		e.Before = nil // the file has it, or the log
	}
}

// RV returns the resource version of the change that an entry is.
func (e *Entry) RV() string {
	if e.Head != nil {
		return e.Head.RV
	}
	return e.DeletedAt
}
