// Package informer is client-go's shared informer on a persistent store: a
// cache.SharedIndexInformer that starts with the objects that the previous process stored
// and resumes their watch.
//
// # Usage
//
//	db, err := bolt.Open("/var/cache/app/informers.db", bolt.Options{})
//	cluster, err := informer.ClusterIdentity(ctx, cfg)
//	inf, err := informer.New(listerWatcher, &corev1.Pod{}, informer.Options{
//		Backend: db,
//		Scope:   store.Scope{Cluster: cluster},
//	})
//	inf.AddEventHandler(handler)
//	inf.RunWithContext(ctx)
//
// # What handlers receive
//
// Each handler receives exactly one add per stored object, then the changes of the object
// in order. For an object that was deleted while the process was down, a handler receives
// an add and a deletion with the last known state. The old object of an update is the
// object that the handler received last, or the new one where that is not known, as after
// a loss of the file; a durable handler receives an add then. Handlers do not wait for
// each other. No other
// goroutine waits for them until the spilled entries of all handler queues take 1 GiB.
//
// A handler may be added later: controller-runtime adds the handlers of a leader when the
// process becomes the leader. Such a handler first receives the departed objects, each as
// an initial add with the last known state and a deletion, and then the stored objects.
// Departed objects were stored when the process started and have been deleted since. The
// next process reports them again, unless all handlers of this process have synced and
// received every deletion, and no handler was added after that: an informer does not know
// which handlers are still to be added, or what a work queue has not processed. A handler
// that was removed counts if it has not received a deletion from before its removal,
// until another handler is added. The file keeps up to 64 MiB of departed objects;
// Status.DepartedDropped counts those that were not kept. They are lost if the file is
// lost or the scope is wiped.
//
// An object that was created and deleted while one process ran, and whose deletion was
// stored before a slow handler received it, is not reported by the next process.
//
// # Differences from client-go
//
// Each difference has an assertion, named here, in trace_test.go or, as
// TestDifference..., in differences_test.go. The tests run both informers side by side on
// generated scripts of events, and find no other difference.
//
// Lists and watches:
//
//   - fewerRelists, toldAllChanges: a watch that broke is resumed wherever the server
//     still has the history, so handlers receive each change in order. client-go relists,
//     and its handlers receive only the last state. Until the next event or bookmark the
//     resource version may be lower than client-go's (mayLag).
//   - nothingUnchanged: a relist is compared with the stored objects, and unchanged
//     objects cause no OnUpdate; with Options.NotifyUnchanged, a relist is followed by a
//     resync.
//   - anyRelistOrder: after a relist, deletions come first, as with client-go; changes
//     follow in key order, not in the order of the list.
//   - Rewound: a history that went back, for example after an etcd restore, is detected
//     and causes a relist, also of the other informers of the backend and the cluster.
//   - StoreError: if the store could not take a change, the informer relists; client-go
//     loses the event and continues.
//   - TestNoResource: a resource that the server has not served for 5 minutes, for
//     example because its CustomResourceDefinition was deleted, is an empty collection:
//     handlers receive the deletions. HasSynced does not change. client-go's informer
//     keeps the objects. This one keeps those of Kubernetes' own API groups, such as
//     apps: an API may be switched off, or moved to another group.
//   - hearsOfFailures: the watch error handler also receives errors from inside a watch.
//   - RequestsOfStart: a list sets no resource version, so it returns the latest state.
//     client-go's first list asks for "0", the server's cache, and later ones for the
//     resource version that it holds.
//   - WarmServerLags (reflector): if a watch that should catch up receives no bookmark
//     before its second timeout, a list follows.
//   - Fakes, "never there": no handler receives the deletion of an object that handlers
//     do not know.
//
// Starts:
//
//   - WarmStart: objects can be read before the server has answered. HasSynced becomes
//     true when the informer has reached the state that the server had at the start
//     (Options.SyncWhen).
//   - DeletedWhileDown: handlers receive an add and a deletion for each object that was
//     deleted while the process was down.
//   - WrittenBeforeRun: objects that were written to the store before Run are dropped;
//     client-go reports their deletion.
//
// Handlers:
//
//   - initialsFirst: while a handler receives its initial adds, it may receive a change
//     of one object before the adds of others. Changes come in the order of the watch.
//   - resyncsGoOn: a list does not restart the resync periods. A handler that is added
//     late is resynced one period after it was added, and a slow handler once, however
//     many periods it missed.
//   - syncedLater: a busy handler syncs after the changes that came between its initial
//     adds. A handler that is removed during its last initial add never syncs.
//   - PanickingHandler: with utilruntime.ReallyCrash off, a handler that panicked in an
//     initial add still syncs.
//
// Transforms, indexes, objects:
//
//   - ObjectsWithoutKey: the error for an object without a key is a store.ObjectError,
//     which does not print the object, instead of a cache.KeyError.
//   - transformOnce, TransformOnce: a transform runs once per received object.
//   - lastGoodState, TransformError: if a transform fails or panics for an object, the
//     object keeps its last good state and is tried again. Handlers receive its deletion.
//     The stored resource version stays where it is until the object can be stored or is
//     deleted.
//   - TransformResult: a transform must return an object of the example's type.
//   - BlankRV: a transform may clear the resource version; the store uses that of the
//     event.
//   - Objects that are written through GetIndexer are stored. Until the server sends them
//     again, or a list ends, no resource version is stored and nothing is audited. The
//     next process then lists, and its handlers receive what differs.
//   - MalformedObject: an object that the Go type does not take keeps its last good
//     state, and stops neither a list nor a watch. Where the transport is not that of
//     TakeEncoded, a list that client-go could not decode is taken as the server has sent
//     it, and not as a ListerWatcher that changes objects would return it.
//   - TransformLeavesGoValues: a Go value that a transform leaves in an unstructured
//     object, as an int or a []string, becomes what its JSON form is decoded to.
//   - WritesAfterEnd: after Run has returned, the store can be read, but writes through
//     GetIndexer return store.ErrClosed.
//   - BadIndexFunction: if an index function fails or panics, the object is refused with
//     an error that names its key, and the process continues.
//   - NilIndexers, ownIndexers, CallersIndexers: AddIndexers works on an informer that
//     was created without indexers. The map given to New is not changed, and GetIndexers
//     returns a copy.
//
// # Unit tests on fakes
//
// client-go's fakes keep the resource versions that the author of a test has written, and
// number their lists themselves. They report this (IsWatchListSemanticsUnSupported).
// Unless a Factory asks the server for its cluster, the informer trusts every resource
// version of such a client. Its handlers then receive what they receive from client-go's
// informer. The fake receives the same requests, except that lists set no resource
// version (TestFakes, TestFakesRequests).
//
// A ListWatch written by hand does not report this. If a streamed list from a FakeWatcher
// or a RaceFreeFakeWatcher delivers no initial event for half a second, the error is
// reported, and the ListWatch is listed. It also receives a list of one object, the
// probe, before each watch that follows a broken one, and after an event with a resource
// version below the previous one; Options.NoProbe turns probes off. State of an earlier
// process is always resumed after a probe, so a unit test uses no Backend, or its own
// file. A Factory requests the namespace kube-system, whose UID identifies the cluster.
// To learn the scope and the credentials, it also sends requests through the
// ListerWatcher and answers them itself: a list with a limit of 1, or a watch if the
// client supports streamed lists.
//
// # Concurrency
//
// Every method is safe for concurrent use. RunWithContext returns when all goroutines of
// the informer have ended; a handler that does not return blocks it.
//
// # Audits
//
// When etcd is restored, another history can replace a cluster's history. If the resource
// version of the new history is lower than the stored one, the informer detects it at
// once. If it is higher, only an audit detects it: with Options.AuditInterval, the
// informer periodically compares all objects with the server's. Handlers receive the
// differences from what they received before, as adds, updates and deletions. The same
// happens when a program wipes a scope while its informer runs (bolt.DB.Wipe).
//
// # Inspecting a running process
//
// bbolt locks its file, so no other process can open it. Status reports the state of an
// informer. Package inspect answers questions over HTTP, read-only, on a unix socket that
// only the same user can connect to.
//
// # Durability
//
// See package bolt. Secrets are persisted if the backend has an encryption key
// (bolt.Options.Keys); otherwise they are held in memory, and a message is logged.
// Spilled entries of handler queues are always encrypted, with keys that are never
// stored.
package informer
