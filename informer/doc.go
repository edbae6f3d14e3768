// Package informer is client-go's shared informer on a persistent store: a
// cache.SharedIndexInformer that starts with the objects that the last process
// left and resumes their watch.
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
// # What handlers see
//
// Each handler gets exactly one add per stored object, then its changes in
// order; an object that was deleted while the process was down is added, then
// deleted, with its last known state. An update's old object is what the handler
// was given last. Handlers do not wait for each other, and no other goroutine waits
// for them until what waits in files for the slow ones is 1 GiB.
//
// A handler that is added later, as controller-runtime adds those of a leader when it
// leads, gets what is there then. Before that it is told of what was stored when the
// process began and is deleted since, each as an initial add with its last known state
// and a deletion. The next process tells of them, too, unless this one had handlers that
// have synced and were told of every deletion, and none came after that: an informer does
// not know which handlers are still to come, or what a work queue has not done. What is
// kept for that is in the file, up to 64 MiB; Status.DepartedDropped counts what was not.
// A file that is lost or wiped takes it along.
//
// What came and went in one process, and whose deletion was stored before a slow handler
// was told, is not told of by the next.
//
// # Differences from client-go
//
// Each has its assertion, named here, in trace_test.go or, as TestDifference..., in
// differences_test.go; both informers are run beside each other, and nothing else
// differs in generated scripts of events.
//
// Lists and watches:
//
//   - fewerRelists, toldAllChanges: a watch that is lost is resumed wherever the
//     server has the history, so handlers are told of each change in order, where
//     client-go lists and tells the last state. Until the next event or bookmark the
//     resource version may be lower than client-go's (mayLag).
//   - nothingUnchanged: a new list is compared with what is stored, and what has not
//     changed makes no OnUpdate; Options.NotifyUnchanged resyncs instead.
//   - anyRelistOrder: deletions come first, as with client-go, then changes in key
//     order, not in the list's.
//   - Rewound: a history that went back, as after an etcd restore, is noticed and
//     listed again.
//   - StoreError: what the store could not take is listed again, where client-go
//     loses the event and goes on.
//   - hearsOfFailures: the watch error handler is told of failures inside a watch,
//     too.
//   - RequestsOfStart: a list asks for no resource version, so that it is of this moment;
//     client-go's asks for "0", the server's cache, and later for what it has.
//   - WarmServerLags (reflector): a watch that is to catch up and brings no bookmark
//     until its second timeout is followed by a list.
//   - Fakes, "never there": a deletion of what is not held is told to nobody.
//
// Starts:
//
//   - WarmStart: objects are there before the server has answered, and HasSynced is
//     true once the state that the server had at the start is reached
//     (Options.SyncWhen).
//   - DeletedWhileDown: handlers are told of objects that were deleted while the
//     process was down, as an add and a deletion.
//   - WrittenBeforeRun: what was written to the store before Run is dropped; client-go
//     tells of its deletion.
//
// Handlers:
//
//   - initialsFirst: a change that comes while a handler is given its initial adds may
//     be told before adds of other objects. Changes are told in the watch's order.
//   - resyncsGoOn: resync periods do not begin anew with a list. A handler that comes
//     late is resynced its period after it came, and one that is slow once, however
//     many periods it missed.
//   - syncedLater: a handler that is busy syncs after the changes that came between its
//     initial adds; one that is removed in its last never does.
//   - PanickingHandler: with utilruntime.ReallyCrash off, a handler that panicked in
//     an initial add syncs all the same.
//
// Transforms, indexes, objects:
//
//   - ObjectsWithoutKey: what has no key is a store.ObjectError, which does not print the
//     object, not a cache.KeyError.
//   - transformOnce, TransformOnce: a transform runs once per object received.
//   - lastGoodState, TransformError: an object that a transform fails for, or panics,
//     keeps its last good state and is tried again; its deletion is told. The stored
//     resource version stays until it can be stored or is gone.
//   - TransformResult: a transform returns an object of the example's type.
//   - BlankRV: a transform may clear the resource version; the store's is the event's.
//   - What is written through GetIndexer is stored, and outlives the process until the
//     server's objects replace it.
//   - BadIndexFunction: an index function that fails or panics refuses the object, with
//     its key, instead of ending the process.
//   - NilIndexers, ownIndexers, CallersIndexers: AddIndexers works on an informer made
//     without any; the map given to New stays as it was, and GetIndexers returns a copy.
//
// # Unit tests on fakes
//
// client-go's fakes keep the resource versions that the author of a test has written and
// number their lists themselves. They say so (IsWatchListSemanticsUnSupported), and of
// such a client, unless a Factory asks its server which cluster it is, no resource
// version is doubted: handlers hear what they hear from client-go's informer, and the
// fake is asked what client-go's asks it, but for the resource version of a list, and for
// a list after a watch that failed, which is opened again instead (TestFakes,
// TestFakesRequests). A ListWatch written by hand does not say
// it: it gets a list of one object, the probe, before each watch after one that was lost,
// and after an event with a resource version below the last; Options.NoProbe turns that
// off. What an earlier process has stored is resumed from behind a probe in any case, so
// a unit test gives no Backend, or a file of its own. A Factory asks for the namespace
// kube-system, whose UID says which cluster answers, and sends the ListerWatcher one
// request that it answers itself, with a limit of 1, to learn its scope.
//
// # Concurrency
//
// Every method is safe for concurrent use. RunWithContext returns when all
// goroutines of the informer have ended; a handler that does not return keeps it.
//
// # Audits
//
// A cluster's history can be replaced by another one, when etcd is restored. One that
// is behind is noticed at once; one that has grown past what is held is not, unless
// Options.AuditInterval has all objects compared now and then. Handlers are told what
// differs from what they were given, by adds, updates and deletions; so they are when
// a program wipes a scope under its informer (bolt.DB.Wipe).
//
// # Looking into a running process
//
// bbolt locks its file. Status says how an informer is; Handler answers questions
// over HTTP, read-only; Serve puts that on a unix socket that only this user can
// connect to, and SocketPath says where.
//
// # Durability
//
// See package bolt. Secrets are persisted where the backend has a key to encrypt them
// with (bolt.Options.Keys); else they are held in memory, which is logged. What waits
// for slow handlers in files is encrypted in any case, with keys that are never stored.
package informer
