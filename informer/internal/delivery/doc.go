// Package delivery brings the changes of one informer to its event handlers: queues,
// cursors that walk the stored objects, resyncs, files of slow handlers' queues, and the
// keys that handlers know. It reads stored objects and knows nothing else of stores,
// reflectors and files of objects.
//
// The informer appends changes in a Turn (Hub.Do), in which it also applies them to the
// store. Each handler has a goroutine, which takes from its queue, decodes and calls.
package delivery
