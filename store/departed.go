package store

// Departed is a deleted object that is kept for handlers that are added later.
type Departed struct {
	Number uint64 // increases with each departed object; greater than 0
	// Before is the stored state before the deletion; only its key is set if that state
	// can no longer be read.
	Before Entry
	// Last is the final state as the server sent it; without a key if it is not known.
	Last Entry
}

// Departer is implemented by Stores that keep departed objects (see Change.Departs), so
// that handlers that are added later still receive them: in this process or, unless
// Settle was called, in the next one. The encoded size of the kept objects is bounded; a
// departed object that would exceed the bound is dropped.
type Departer interface {
	// Departed returns up to limit objects with a Number above after, ordered by Number
	// and as of one moment. A result shorter than limit is the end.
	Departed(after uint64, limit int) ([]Departed, error)
	// Settle records that every handler has received all objects that have departed so
	// far: they are dropped when the scope is opened the next time. This Store continues
	// to return them. Settle does not wait for the disk.
	Settle()
	// Unsettle undoes the calls of Settle since the scope was opened, because a new
	// handler has not received the departed objects.
	Unsettle()
	// Compares reports whether the Store was opened with content that could not be used,
	// for example because of another transform, so that its first list may find objects
	// that have departed.
	Compares() bool
	// Departures returns the number of kept objects, and the number that were not kept
	// since the scope was opened. It does not wait for the disk.
	Departures() (kept, dropped int)
}

// PartSettler is a Departer of a scope that outlives the process: handlers may confirm
// what they have received some time later, while more objects depart.
type PartSettler interface {
	Departer
	// LastDeparted returns the highest Number of an object that has departed so far.
	LastDeparted() uint64
	// SettleUpTo is like Settle for the objects with a Number up to this one, and like
	// Unsettle for the others.
	SettleUpTo(number uint64)
}
