// Package mem is a backend that keeps decoded objects on the heap, as
// client-go's own informer does.
//
// # Usage
//
// [New] makes a [DB]. What was written under a scope is there again when the
// scope is opened another time under the same DB; nothing survives the DB.
//
// # Concurrency
//
// Readers never block: each write publishes a new immutable state, and a read
// answers from the one that it found. Writers of one scope wait for each other.
// Index functions run outside every lock that a reader could need, but those of
// AddIndexers, and those of a write that meets a new index, must not write to
// the same scope.
//
// # Objects
//
// Objects are handed out and taken in as they are, not copied: whoever changes
// one changes it for all readers. [store.Entry].Raw is nil and
// [store.Header].Bytes is 0.
package mem
