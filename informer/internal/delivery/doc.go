// Package delivery brings the changes of one informer to its event handlers: cursors that
// walk the stored objects, resyncs, handlers that go on where an earlier process ended,
// and the keys that handlers know. It reads stored objects and knows nothing else of
// stores, reflectors and files of objects. The queue of one handler is in package queue;
// what a handler has of the log, and of objects that were deleted while no process ran
// (departed objects), is in package replay.
//
// A Hub is client-go's sharedProcessor, and a Registration its processorListener. The
// informer appends changes in a Turn (Hub.Do), in which it also applies them to the
// store.
//
// # Concurrency
//
// Hub.mu protects the Hub and all Registrations. Each handler has a goroutine, which
// takes from its queue, decodes and calls without the lock; it ends when the handler is
// removed or after Hub.End, and Hub.Wait waits for it. Hub.RunResyncs runs until its
// context ends.
package delivery
