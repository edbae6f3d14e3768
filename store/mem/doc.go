// Package mem is a backend that keeps decoded objects on the heap, like client-go's own
// informer.
//
// # Usage
//
// [New] creates a [DB]. The content of a scope is kept when the scope is closed and
// opened again in the same DB, and so are the places of consumers (package durable);
// nothing survives the DB.
//
// # Concurrency
//
// Readers do not block: each write publishes a new immutable state, and a read uses the
// state that is current when it starts. Only who reads a state of the past, or begins to
// follow, waits for the write in progress. Writers of one scope wait for each other.
// Index functions may read the present state of their scope. Those that AddIndexes or a
// write calls for a newly added index must not write to it, read its past or follow it.
//
// # Objects
//
// Objects are stored and returned without copying: changing an object changes it for all
// readers. [store.Entry].Raw is nil and [store.Header].Bytes is 0.
package mem
