package durable

import "time"

// Policy says what handlers receive of objects that have not changed since the place.
type Policy int

const (
	// Trickle delivers each of them once in Options.Every.
	Trickle Policy = iota
	// Skip delivers none. It is for controllers that depend on nothing but the objects
	// that they watch.
	Skip
	// All delivers all of them at the start, as if there were no place. The queue is
	// restored.
	All
)

// Options describe a Consumer. The zero value trickles.
type Options struct {
	// Version is the version of the logic, set by hand. With another one than before,
	// handlers receive everything once. Skip needs one, because nothing else would make a
	// new logic see old objects.
	Version string
	// Unchanged is the policy for objects that have not changed.
	Unchanged Policy
	// Every is the time in which Trickle delivers each object once; 0 means 10 hours.
	Every time.Duration
	// Elected is closed when this process may work. Until then handlers receive nothing
	// and count as synced. Nil means at once.
	Elected <-chan struct{}
	// Shared keeps the place and the queue for a successor without this file, which
	// InCluster does. Nil means that only the file has them.
	Shared Shared
	// CommitFirst makes Get of the queue wait until what has led to the key is written,
	// so that nothing is worked on that could be unknown after a crash. That takes a
	// commit, some ten milliseconds, for the keys of a commit together. If that cannot be
	// written, as on a full disk, Get logs an error after 30 seconds and goes on, and
	// until it can, each further Get waits for 100 milliseconds, and every ten seconds
	// one for a second. Of a change that was lost with the file, the key is written.
	CommitFirst bool
}
