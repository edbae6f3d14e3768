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
	// Open leases a scope until Close is called on the Store. It restores state that was
	// stored under an equal Scope with the same type, transform and format; otherwise the
	// scope starts empty. Errors: ErrInUse while another Store holds the scope,
	// ErrClosed, ErrNotFound on a read-only database, and ErrNoKey from a persistent
	// Backend without an encryption key if the scope contains Secrets.
	Open(Scope, Options) (Store, error)
	// Scopes describes every scope in the database, ordered by resource, namespace and
	// selectors.
	Scopes() ([]Info, error)
	// Close writes the pending changes, releases the database and returns the first
	// error. Stores that are still open return ErrClosed afterwards. Close is idempotent.
	Close() error
}

// Ledger is implemented by backends that remember small values beside the scopes. Without
// it, identities of clusters and places of consumers are forgotten when a process ends.
// The methods are safe for concurrent use.
type Ledger interface {
	// Ledger returns the values of a name; none is no error. If the error wraps
	// ErrCorrupt, the values are those that can be read. The caller may keep them.
	Ledger(ctx context.Context, name string) (values map[string][]byte, err error)
	// SetLedger changes values of a name in one transaction, and blocks until it is
	// written; nil deletes a value. What scopes have committed before is in the file
	// before it, so a Place that it has is never ahead of its scope. Keys are not empty.
	SetLedger(ctx context.Context, name string, changes map[string][]byte) error
	// ReplaceLedger is like SetLedger, and deletes the values that changes do not have,
	// also those that cannot be read.
	ReplaceLedger(ctx context.Context, name string, changes map[string][]byte) error
	// LedgerLosses returns how often all values of all names were lost since the backend
	// was opened: with its file, or by a wipe.
	LedgerLosses() uint64
}

// Options specify how a scope is opened. With the zero value, each object is decoded with
// the codec it was stored with, and the scope has no indexes.
type Options struct {
	// Codec encodes the objects of the scope. If it is nil, objects are decoded with
	// codec.DecodeAny, and writes return an error.
	Codec codec.Codec
	// Indexers are index functions without an identity: their entries are rebuilt when
	// the scope is opened. The map is copied. cache.MetaNamespaceIndexFunc is treated as
	// index.Namespace().
	Indexers cache.Indexers
	// Indexes are index functions with an identity: their entries survive a restart as
	// long as the identity does not change.
	Indexes []index.Index
	// Rejected is called while the scope is opened or first listed, for each stored
	// object for which an index function fails. The object stays in the store but is
	// missing from that index. May be nil.
	Rejected func(*ObjectError)
	// TransformVersion identifies the transform that was applied to the objects before
	// they were stored; "" means no transform. Objects stored with another version are
	// not served: the next list finds out which of them have departed, and replaces them.
	TransformVersion string
	// History bounds the log of what was changed. The zero value means that of the
	// backend, as bolt.Options.History.
	History History
	// Fresh means that the stored content is not served, as after a change of
	// TransformVersion.
	Fresh bool
	// DecodedBytes bounds the estimated heap size, in bytes, of the cache of decoded
	// objects. 0 means that all such scopes of the process share 64 MiB, -1 means no
	// bound.
	DecodedBytes int64
	// DecodedGroup, if it is not nil, is comparable: all scopes of the process that are
	// opened with the same DecodedGroup and the same positive DecodedBytes share it.
	DecodedGroup any
}

// Checkpoint is the resource version that the content of a scope is complete up to.
type Checkpoint struct {
	RV     string // "" if the scope must be listed before it can be watched
	Reason string // why RV is empty; "" if it is not
	// Time is when the content was last known to be the server's; if it never was, when
	// Reason was set.
	Time time.Time
}

// ForeignContent is the Reason of a Checkpoint from when objects of another cluster are
// stored in a scope, until its own cluster is listed. They are no state of the scope: the
// next process drops them, and a list is not compared with them.
const ForeignContent = "objects of another cluster were stored"

// Entry is one object in its stored form.
type Entry struct {
	Key    string
	Object runtime.Object // the decoded object; nil if only Raw is available; read-only
	Raw    []byte         // the encoded object if Object is nil; read-only
	// Cell, if it is not nil, has the decoded object of Raw, or gets it from the first
	// Decode.
	Cell *Cell
}

// Change is the new state of one object. A Change without Object and Raw is a deletion.
type Change struct {
	Key    string // Prepare sets it if it is ""
	Object runtime.Object
	Raw    []byte // the encoded object if Object is nil, as from Relist.Parts
	Cell   *Cell  // as in Entry
	// RV is the resource version of a deletion, which is higher than that of the last
	// state; "" if it is not known. An object has its own.
	RV string
	// Departs means that the object stored under Key is deleted, even if another object
	// replaces it, and that not every handler has received the deletion: see Departer.
	// Last is its final state, nil if it is not known.
	Departs bool
	Last    runtime.Object
	// Short, if it has a key, is the last state of an object that was created and deleted
	// since the batch before: the batch has its deletion alone. It is for the log.
	Short Entry
	// Prepared is the result of Prepare, for the backend that set it.
	Prepared any
}

// IsDeletion reports whether the object was deleted.
func (c Change) IsDeletion() bool { return c.Object == nil && c.Raw == nil }

// Entry returns the new state as an Entry for Decode.
func (c Change) Entry() Entry {
	return Entry{Key: c.Key, Object: c.Object, Raw: c.Raw, Cell: c.Cell}
}

// Batch is the next part of the stream of changes: after it, the scope is complete up to
// RV. A key occurs at most once.
type Batch struct {
	Changes []Change
	// Before is the result of Before for the keys of the changes, or zero. Apply looks
	// again if it is not known to be the present state.
	Before Before
	// RV is ignored while a first list is loaded, unless Loaded is set: what is stored is
	// not complete then. "" leaves the checkpoint unchanged, unless there is a Reason.
	RV string
	// Reason, if RV is "", replaces the checkpoint by one without an RV and with this
	// reason, as Invalidate does.
	Reason string
	// Time is when the content was the server's, as of an import. Zero means now, or with
	// a Reason that it was the server's last when the checkpoint says so.
	Time time.Time
	// Rewound, with a Reason, means that what is stored belongs to a history of the
	// server that is no more, or was never the server's: the log begins a new lineage.
	Rewound bool
	// CatchUp means that the changes were made at some time since the checkpoint of the
	// start, and not just now.
	CatchUp bool
	// Loaded is set by Relist.Parts if the store had no content to compare with: the
	// scope was empty, or its content was lost. Applying the batch makes the whole list
	// visible to readers. The batch has no Changes.
	Loaded bool
}

// Checkpoint returns the checkpoint that follows another one with a batch that has an RV
// or a Reason.
func (b Batch) Checkpoint(was Checkpoint) Checkpoint {
	c := Checkpoint{RV: b.RV, Time: b.Time}
	if c.RV == "" {
		c.Reason = b.Reason
	}
	if !c.Time.IsZero() {
		return c
	}
	c.Time = time.Now()
	// Otherwise the clock was set back.
	wasSet := !was.Time.IsZero() && was.Time.Before(c.Time.Round(0))
	if c.RV == "" && wasSet {
		c.Time = was.Time
	}
	return c
}

// Header is the information about an object that is available without decoding it.
type Header struct {
	Key     string
	UID     string
	RV      string
	Labels  map[string]string // read-only
	Created time.Time         // in seconds; zero if it is not known
	Bytes   int64             // size of the encoded object
}

// Store is one scope. Indexer returns its cache.Indexer.
type Store interface {
	Reader

	// Prepare encodes the objects of a batch in place and computes their index values, so
	// that Apply only has to insert them. It calls user code; callers must not hold
	// locks. Prepare removes objects that cannot be stored from the batch and returns one
	// *ObjectError for each, joined.
	Prepare(*Batch) error
	// Before returns what the scope holds under the keys, as of one moment. A key occurs
	// at most once. If it returns an error, nothing is known of any key.
	Before(keys []string) (Before, error)
	// Apply makes a batch visible to readers immediately; the backend later writes it and
	// its RV in one transaction (promises 1 and 2). Apply prepares changes that Prepare
	// has not processed; on the first *ObjectError it returns without applying anything.
	// Apply does not wait for the disk.
	Apply(Batch) error
	// Invalidate replaces the checkpoint by one without an RV and with the reason. It
	// waits until the checkpoint is written or cannot be written. The scope is then
	// listed again after it is opened the next time.
	Invalidate(ctx context.Context, reason string) error
	// Flush blocks until everything that was applied before the call is written. If the
	// context ends first, it returns the error of the last attempt to write. If changes
	// were lost with the file before they were written, Flush and Close return the cause,
	// until the next list is written; after a wipe they do not.
	Flush(context.Context) error

	// Relist starts to compare the scope with a new list. It discards an earlier Relist
	// that was not closed.
	Relist() (Relist, error)

	// Encode returns the encoded, uncompressed entry of an object, which Decode accepts.
	// It encodes a copy, because encoding writes to the cache inside a resource.Quantity
	// and other goroutines may read the object. Without a codec, the entry contains the
	// object; a backend that stores encoded objects returns an *ObjectError.
	Encode(runtime.Object) (Entry, error)
	// Compare returns the header of the stored object with the key of obj (a zero Header
	// if there is none), and whether both have the same content, but for apiVersion and
	// kind of a typed object: see Scope.SameButKind. A store without a codec cannot
	// compare content. An object that cannot be stored is an *ObjectError.
	Compare(obj runtime.Object) (held Header, same bool, err error)
	// All yields every object in key order. It reads in chunks and holds no transaction
	// while the loop body runs. It is not a snapshot: an object that changes during the
	// iteration is yielded in its old or new state, or not at all. An error ends the
	// iteration.
	All() iter.Seq2[runtime.Object, error]

	// AddIndexes adds all index functions or, on an error, none. It calls them for the
	// stored objects; meanwhile writers wait, readers do not. The entries of added
	// functions are kept in memory.
	AddIndexes(cache.Indexers) error
	// Close writes the pending changes and ends the lease. Afterwards reads work until
	// the Backend is closed, and writes return ErrClosed. Close is idempotent.
	Close() error
}

// Relist compares a scope with a new list (ARCHITECTURE.md, "Listing again"). Only one
// goroutine at a time may use it.
//
// Readers see no change until Parts has yielded its last batch. If the scope does not
// hold a complete list yet, the objects are loaded directly and become visible, all at
// once, when that batch is applied.
type Relist interface {
	// Add adds one listed object. It replaces an object with the same key that was added
	// before. An object that cannot be stored is reported as an *ObjectError; it counts
	// as listed, so its last good state is kept.
	Add(runtime.Object) error
	// Keep counts a key as listed although its object cannot be added, so that its last
	// good state is kept.
	Keep(key string)
	// Remove counts a key as not listed, even if it was added.
	Remove(key string)
	// Parts yields the differences in batches: first the deletion of every object that is
	// not in the list, then the added and changed objects. The caller applies each batch
	// before it takes the next. Objects may be encoded: Store.Decode accepts
	// Change.Entry. An object that replaces one with another UID Departs. Only the last
	// batch carries rv.
	Parts(rv string) iter.Seq2[Batch, error]
	// Close discards the staged objects. It is idempotent.
	Close() error
}

// Info describes one scope of a database.
type Info struct {
	ID      string
	Scope   Scope
	Objects int
	Bytes   int64 // total size of the encoded objects
	Codec   string
	// TypeFingerprint and TransformVersion identify the source of the encoded objects.
	TypeFingerprint, TransformVersion string

	Indexes    []IndexInfo // the stored indexes, ordered by name
	Checkpoint Checkpoint
	Log        LogInfo
	Complete   bool // false if the first list was never completed: objects are not served
	Encrypted  bool
}

// LogInfo describes the log of a stored scope.
type LogInfo struct {
	Entries  int
	Bytes    int64     // encoded
	Begins   time.Time // of the oldest entry; zero if there is none
	Dropped  uint64    // entries that the bounds have dropped
	Unlogged uint64    // as LogState.Unlogged
}

// IndexInfo describes one stored index.
type IndexInfo struct {
	Name     string
	Identity string
	Values   int // distinct index values
}
