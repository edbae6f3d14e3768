// Package store defines the interface of a backend of the persistent informer. A backend
// is a database of scopes. A scope holds the objects of one list request, their index
// entries, and the resource version (RV) that its content is complete up to.
//
// # Usage
//
// A program opens a backend ([github.com/informctl/informctl/store/bolt] or
// [github.com/informctl/informctl/store/mem]) and passes it to informers. A program that
// embeds the store without an informer opens a [Scope] and uses the resulting [Store].
// [Indexer] makes a cache.Indexer of it.
//
// # The promises a store keeps
//
// The numbers are those of ARCHITECTURE.md.
//
//  1. One commit: objects, index entries and resource version change together.
//  2. The resource version never leads: [Checkpoint].RV is never newer than the last
//     change in the store. It may be older, because replay is idempotent.
//  5. The disk may lie: damage is reported as a [*CorruptionError], never as a wrong
//     object or a short list.
//
// # Concurrency
//
// Every method of every type here is safe for concurrent use, except that one goroutine
// at a time may drive a [Relist].
//
// Package [github.com/informctl/informctl/store/storetest] contains the conformance suite
// that every backend passes.
package store
