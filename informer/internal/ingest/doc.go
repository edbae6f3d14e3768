// Package ingest brings what an informer lists and watches into its store, and to its
// handlers.
//
// A [Pipeline] receives the objects from a reflector. It takes them as the server has
// encoded them, or transforms them, queues the events of the watch, and applies batches
// of them: it leaves out what an earlier process has stored, takes out the objects that
// cannot be stored, marks what has departed, and stores the rest and appends it to the
// queues of the handlers in one turn.
//
// # Concurrency
//
// Run has two goroutines: the reflector's, which calls the methods of reflector.Sink, and
// one that applies the changes of the watch. The reflector's applies lists, while the
// other one is idle. The only lock is the one under which transforms run.
package ingest
