// Package durable lets a controller do only the work that is left after a restart.
//
// A Consumer is a name, a version of its logic and what it watches. In the file of its
// informers it keeps its place in the log of each scope, and beside it its queue: the
// keys that wait, are in work, are delayed or have failed. Both change in one
// transaction. The next process goes on from there: its handlers receive what was
// changed after the place, as updates with the state before, deletions with the last
// state, and creations, and its queue holds what was left. Without a Consumer they
// receive every object as new.
//
//	db, err := bolt.Open(path, bolt.Options{})
//	c, err := durable.Open(db, "widgets", durable.Options{Version: "1", Unchanged:
//
// durable.Skip})
//
//	queue := durable.NewQueue(c, limiter, durable.ObjectNames)
//	informer.AddEventHandler(c.Handler(handler)) // which adds to the queue
//	...                                          // run, and end the informers
//	err = errors.Join(c.Close(), db.Close())
//
// # Guarantees
//
// Each change that the informer has received and that is in the file is worked on at
// least once at or after its delivery, whatever the process dies of: a key leaves the
// file when Forget and Done were called for it and it was not added meanwhile. A change
// may be delivered again, up to about a second of them after a crash. A key whose work
// ended without Forget, as after a terminal error, runs once after the next start.
//
// A change that was delivered, worked on and undone inside the second before a crash, and
// that the server does not remember either, is not known afterwards. Who cannot have that
// sets CommitFirst.
//
// # When everything is delivered
//
// Handlers receive everything, as initial adds, when the place is not valid: at the first
// start, with another Version, when there are more handlers for a scope than before, when
// the log does not reach back to the place, and when the file was damaged or replaced.
// Deletions that are still known come first. So it is with informers that hold their
// objects in memory, and with those of another library. Status says why.
//
// # Unchanged objects
//
// Many controllers repair what is outside the cluster, too, and depend on being called
// for each object now and then. By default each object comes once in Options.Every, as an
// initial add, which a priority queue puts behind the rest: Trickle. Skip leaves
// unchanged objects out.
//
// # Not built yet
//
// Options.Shared, which keeps the place outside the file for a successor on another node,
// returns an error.
package durable
