package store

import (
	"context"
	"iter"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
)

// Backend is a database of scopes.
type Backend interface {
	// Open leases a scope until the Store's Close. State that was stored under
	// an equal Scope with the same type, transform and format is there again;
	// anything else starts empty. Errors: ErrInUse while another Store holds the
	// scope, ErrClosed, ErrNotFound on a read-only database, ErrNoKey from a Backend
	// that outlives the process where the scope is of Secrets and it has no key.
	Open(Scope, Options) (Store, error)
	// Scopes describes every scope that the database holds, ordered by resource,
	// namespace and selectors.
	Scopes() ([]Info, error)
	// Close writes what waits, releases the database and returns the first error.
	// Stores that are still open answer ErrClosed from then on. Idempotent.
	Close() error
}

// Identities is implemented by backends that remember, from process to process,
// which cluster was last found behind an address, so that a process that starts
// while the server is down can serve that cluster's objects meanwhile.
type Identities interface {
	// Identity returns what was remembered of how a server was asked; "" is
	// nothing.
	Identity(asked string) (cluster string, err error)
	// SetIdentity remembers it. It blocks until that is written.
	SetIdentity(asked, cluster string) error
}

// Options say how a scope is opened. The zero value reads objects by the codec
// that each was stored with and keeps no index.
type Options struct {
	// Codec encodes the scope's objects. nil: objects are decoded as
	// codec.DecodeAny does, and writing is an error.
	Codec codec.Codec
	// Indexers are index functions without an identity: their entries are
	// rebuilt when the scope is opened. The map is copied. A function that is
	// cache.MetaNamespaceIndexFunc itself counts as index.Namespace().
	Indexers cache.Indexers
	// Indexes are index functions with an identity: their entries survive a
	// restart as long as the identity is the same.
	Indexes []index.Index
	// Rejected is told of each stored object that an index function fails for while the
	// scope is opened: the object is there, and not in that index. nil is nobody.
	Rejected func(*ObjectError)
	// TransformVersion identifies the transform that objects went through before
	// they came here; "" is none. Objects stored under another one are dropped.
	TransformVersion string
	// Fresh drops what was stored.
	Fresh bool
	// DecodedBytes bounds the cache of decoded objects: the estimated bytes of
	// heap. 0 is 64 MiB, -1 no bound.
	DecodedBytes int64
}

// Checkpoint is the resource version that a scope's objects are complete up to.
type Checkpoint struct {
	RV     string    // "" where the scope must be listed again before it is watched
	Reason string    // why RV is empty; "" where it is not
	Time   time.Time // when RV or Reason was set
}

// Entry is one object in the form in which the store holds it.
type Entry struct {
	Key    string
	Object runtime.Object // the decoded object where it is at hand, else nil; not to be changed
	Raw    []byte         // the encoded object where Object is nil; not to be changed
}

// Change is the new state of one object. Without Object and Raw it was deleted.
type Change struct {
	Key    string // "" is filled in by Prepare
	Object runtime.Object
	Raw    []byte // the encoded object where Object is nil, as Relist.Parts yields it
	// Departs says that the object that is stored under Key is deleted, whatever comes in
	// its place, and that not everybody has been told: see Departer. Last is its final
	// state, nil where that is not known.
	Departs bool
	Last    runtime.Object
	// Prepared is what Prepare made of the object, for the backend that made it.
	Prepared any
}

// IsDeletion reports whether the object was deleted.
func (c Change) IsDeletion() bool { return c.Object == nil && c.Raw == nil }

// Entry returns the new state, which Decode takes.
func (c Change) Entry() Entry { return Entry{Key: c.Key, Object: c.Object, Raw: c.Raw} }

// Batch is a prefix of the stream of changes: after it the scope is complete up
// to RV. A key occurs at most once.
type Batch struct {
	Changes []Change
	RV      string // "" leaves the checkpoint as it is
	// Loaded is set by Relist.Parts where the store held nothing to compare with, or
	// has lost what it held: when the batch is applied, readers see the whole list.
	Loaded bool
}

// Header is what is known of an object without decoding it.
type Header struct {
	Key     string
	UID     string
	RV      string
	Labels  map[string]string // not to be changed
	Created time.Time         // to the second; zero where it is not known
	Bytes   int64             // of the encoded object
}

// Store is one scope. Beside cache.Indexer's methods it has those that a
// persistent informer needs.
//
// The rules of cache.Indexer hold with these differences: an index function
// that fails or panics is an error of the write, which then changes nothing;
// GetIndexers returns a copy; objects may be decoded afresh by each read.
// Writes through cache.Indexer do not move the Checkpoint, except Replace and
// Bookmark, which carry a resource version for the whole.
type Store interface {
	cache.Indexer

	// Prepare encodes the objects of a batch in place and computes their index
	// values, so that Apply has only to insert them: it calls user code, so
	// callers run it outside their locks. Objects that cannot be stored are
	// removed from the batch and reported as one *ObjectError each, joined.
	Prepare(*Batch) error
	// Apply makes a batch visible to readers at once; the backend writes it with
	// its RV in one transaction later (promises 1 and 2). Changes that Prepare
	// has not seen are prepared; then the first *ObjectError makes Apply return
	// without a change. Does not wait for the disk.
	Apply(Batch) error
	// Invalidate sets a checkpoint without RV, with the reason, and waits until
	// it is written or cannot be: whoever opens the scope next lists again.
	Invalidate(ctx context.Context, reason string) error
	// Checkpoint returns the resource version that the scope is complete up to,
	// or why there is none; it includes what Apply was given and the disk has not.
	Checkpoint() Checkpoint
	// Flush blocks until all that was applied before is written. It returns the
	// error of the last attempt when the context ends first.
	Flush(context.Context) error

	// Relist starts to compare the scope with a new list. An earlier Relist that
	// was not closed is discarded.
	Relist() (Relist, error)

	// Len returns the number of objects, without decoding any.
	Len() int
	// Entry returns the stored form of one object, without decoding it.
	Entry(key string) (Entry, bool, error)
	// Scan returns up to limit entries with keys after the given one, in key
	// order, as of one moment; fewer than limit means that there are no more.
	Scan(after string, limit int) ([]Entry, error)
	// Select returns the entries that q asks for, in key order, as of one moment.
	// It decodes nothing to find them. Errors: ErrNoIndex, and damage, for then the
	// answer might be short.
	Select(q Query) ([]Entry, error)
	// Encode returns the entry of an object, encoded but not compressed, which Decode
	// takes back. It encodes a copy: others may be reading the object, and encoding
	// writes to what a resource.Quantity caches. Without a codec the entry has the object.
	Encode(runtime.Object) (Entry, error)
	// Decode returns the object of an entry: Entry.Object where there is one,
	// else a fresh one. Works after Close.
	Decode(Entry) (runtime.Object, error)
	// Compare returns the header of the stored object that has obj's key, a zero Header
	// where there is none, and whether its content is the same, which a store without a
	// codec does not know. An object that cannot be stored is an *ObjectError.
	Compare(obj runtime.Object) (held Header, same bool, err error)
	// All yields every object in key order. It reads in chunks: no transaction is
	// held while the loop's body runs and it is no snapshot, so objects changed
	// meanwhile are seen in their old or new state, or not at all. An error ends it.
	All() iter.Seq2[runtime.Object, error]
	// Headers yields every object's header in key order, chunked like All.
	Headers() iter.Seq2[Header, error]
	// HeadersOf returns the headers of those of the keys that there are, in the order of
	// keys and as of one moment.
	HeadersOf(keys []string) ([]Header, error)

	// TryList, TryListKeys and TryListIndexFuncValues are the methods of cache.Indexer
	// with the error of that read: where there is one there is no answer. Err, which is
	// what those without an error leave it in, is of whichever reader was last.
	TryList() ([]any, error)
	TryListKeys() ([]string, error)
	TryListIndexFuncValues(indexName string) ([]string, error)
	// Err says why List could not answer; nil where it could.
	Err() error
	// Close writes what waits and ends the lease. The Store goes on answering
	// reads until its Backend is closed; writes return ErrClosed. Idempotent.
	Close() error
}

// Relist compares a scope with a new list (ARCHITECTURE.md, "Listing again").
// One goroutine drives it.
//
// Until Parts has yielded its last batch nothing that readers see has changed.
// Where the scope holds no complete list yet, the objects are loaded directly
// instead and become visible, all at once, when that batch is applied.
type Relist interface {
	// Add takes one listed object; a key that was added before is replaced. An
	// object that cannot be stored counts as seen, so that its last good state
	// is kept, and is reported as an *ObjectError.
	Add(runtime.Object) error
	// Keep counts a key as listed though its object cannot be taken, so that its
	// last good state stays.
	Keep(key string)
	// Remove takes a key back: it counts as not listed, whether it was added or not.
	Remove(key string)
	// Parts yields what the list changes: first the deletion of every object
	// that it did not have, then what differs, in parts. The caller applies each
	// before it takes the next. Objects may be encoded: Store.Decode takes
	// Change.Entry. The last one alone carries rv.
	Parts(rv string) iter.Seq2[Batch, error]
	// Close discards what is staged. Idempotent.
	Close() error
}

// Info describes one scope of a database.
type Info struct {
	ID      string
	Scope   Scope
	Objects int
	Bytes   int64 // of the encoded objects
	Codec   string
	// TypeFingerprint and TransformVersion say what the objects are encoded from.
	TypeFingerprint, TransformVersion string

	Indexes    []IndexInfo // those whose entries are stored, ordered by name
	Checkpoint Checkpoint
	Complete   bool // false: a first list never ended, so nothing of it is served
	Encrypted  bool
}

// IndexInfo describes one stored index.
type IndexInfo struct {
	Name     string
	Identity string
	Values   int // distinct index values
}
