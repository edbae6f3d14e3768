// Package store says what a backend of the persistent informer is: a database
// of scopes, each of which holds the objects of one list request together with
// their indices and the resource version that they are complete up to.
//
// # Usage
//
// A program opens a backend ([github.com/informctl/informctl/store/bolt] or
// [github.com/informctl/informctl/store/mem]) and hands it to informers. Who
// embeds the store without an informer opens a [Scope] of it and uses the
// resulting [Store]: a cache.Indexer with batches and a checkpoint.
//
// # The promises a store keeps
//
// The numbers are those of ARCHITECTURE.md.
//
//  1. One commit: objects, index entries and resource version change together.
//  2. The resource version never leads: [Checkpoint].RV is that of the last
//     change which is in the store. It may lag, since replay is idempotent.
//  5. The disk may lie: damage is reported as a [*CorruptionError], never as a
//     wrong object or a short list.
//
// # Concurrency
//
// Every method of every type here is safe for concurrent use, except that one
// goroutine at a time may drive a [Relist].
//
// Package [github.com/informctl/informctl/store/storetest] holds the suite that
// every backend passes.
package store
