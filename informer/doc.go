// Package informer is client-go's shared informer on a persistent store: a
// cache.SharedIndexInformer that starts with the objects that the last process
// left and resumes their watch.
//
// # Usage
//
//	db, err := bolt.Open("/var/cache/app/informers.db", bolt.Options{})
//	inf, err := informer.New(listerWatcher, &corev1.Pod{}, informer.Options{Backend: db})
//	inf.AddEventHandler(handler)
//	inf.RunWithContext(ctx)
//
// # What handlers see
//
// Each handler gets exactly one add per stored object, then its changes in
// order; an object that was deleted while the process was down is added, then
// deleted, with its last known state. An update's old object is what the handler
// was given last. Handlers do not wait for each other, and no other goroutine
// waits for them.
//
// A handler that is added later gets what is there then. Within two minutes of a
// warm start, which is when controller-runtime adds its handlers, it is first told
// of the deletions that were caught up on, each as an initial add and a deletion,
// up to 16 MiB of objects.
//
// # Differences from client-go
//
//   - HasSynced of a warm start is true once the server's state at the start has
//     been reached (Options.SyncWhen), not when the file was read.
//   - A lost watch is resumed wherever the server has the history; a new list is
//     compared with what is stored, so unchanged objects make no OnUpdate.
//   - A transform runs once per object.
//   - An index function that fails or panics makes an error naming the object's
//     key. The object's last good state stays, and the stored resource version
//     until that object can be stored or is gone.
//   - GetIndexers returns a copy, and the map given to New stays as it was.
//
// # Concurrency
//
// Every method is safe for concurrent use. RunWithContext returns when all
// goroutines of the informer have ended; a handler that does not return keeps it.
//
// # Durability
//
// See package bolt. Secrets are not persisted: they are held in memory, which is
// logged.
package informer
