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
//	options := durable.Options{Version: "1", Unchanged: durable.Skip}
//	c, err := durable.Open(db, "widgets", options)
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
// may be delivered again, up to about a second of them after a crash, and with package
// controllerruntime after Close, too. A key whose work ended without Forget, as after a
// terminal error, runs once after the next start.
//
// The log has what a commit has changed, from the state before it to the state after it.
// So a change that was delivered, worked on and undone inside one commit, which takes a
// second at most, is not known after a crash at that moment. Who cannot have that sets
// CommitFirst.
//
// A program with another Go type or another transform than the one before begins another
// log. It does not know a deletion that the process before has received and whose key was
// not written, if the object was younger than that process: one in the last second before
// a crash, or one for which a handler was too slow.
//
// # When everything is delivered
//
// Handlers receive everything, as initial adds, when the place is not valid: at the first
// start, with another Version, when there are more handlers for a scope than before, when
// the log does not reach back to the place, and when the file was damaged or replaced.
// Deletions that are still known come first. Status says why. Handlers of informers that
// hold their objects in memory receive everything at each start, after the election.
// Those of another library's informers do not wait for the election.
//
// An object whose state before is not known, as after a loss of the file, comes as an add
// also where handlers know it: an update from the object to itself would pass no filter.
//
// # Unchanged objects
//
// Many controllers repair what is outside the cluster, too, and depend on being called
// for each object now and then. By default each object comes once in Options.Every, as an
// initial add, which a priority queue puts behind the rest: Trickle. Skip leaves
// unchanged objects out.
//
// # A successor on another node
//
// With Options.Shared, which InCluster makes of a ConfigMap, the place and the keys that
// are left are also kept where a successor with another file finds them, up to 10 seconds
// behind. A standby with a file of its own goes on from the same resource version in its
// own log: deletions and moved references included. What is known of a change then is
// what its log has: of an object that has changed more than once in one commit of this
// file, as when it catches up, the states between are not known.
//
// A successor without a file, or one whose log does not reach back, receives what its
// file knows to be deleted, what the log has, the objects that are newer, and then each
// object once in Options.Every, also with Skip. Deletions that the process before has not
// handled and that the successor has not seen are lost then, unless they have left
// something behind that is watched: give objects a finalizer if their deletion is work.
// If the resource version may be of a history that is no more, because the server was
// restored from a backup or the file was wiped, the successor receives everything.
//
// What is shared has room for 512 KiB of compressed keys, which are 100,000 delayed ones
// with short names. If more are left, those that only wait are left out, and the place is
// that before the oldest of them: what made them wait comes from the log again. That is
// not so of keys that no event of the consumer's handlers has led to, as of a channel
// source, which are lost to another node then. If those that are delayed or have failed
// do not fit either, a successor receives everything.
//
// A Shared that cannot be read or written is tried again without end. Status and the log,
// which repeats it, say why.
//
// One process at a time has what is shared. Replicas that work without an election need a
// consumer each, with a ConfigMap of its own or none.
//
// # Messages
//
// A Consumer logs with the logger of the context with which the informers of its handlers
// run, and before one has opened its scope with klog.Background.
package durable
