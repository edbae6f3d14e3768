package store

// Departed is an object that was deleted.
type Departed struct {
	Number uint64 // ascends in the order in which objects departed; greater than 0
	Before Entry  // what was stored; a key only where that can no longer be read
	Last   Entry  // the final state as the server sent it; without a key where that is not known
}

// Departer is implemented by Stores that keep what Change.Departs says, so that whoever
// comes later can be told of it: in this process or, until it is settled, in the next.
// What is kept is bounded, in bytes of the encoded objects; what comes beyond is not.
type Departer interface {
	// Departed returns up to limit objects with a Number above after, in the order of
	// their numbers and as of one moment; fewer than limit means that there are no more.
	Departed(after uint64, limit int) ([]Departed, error)
	// Settle says that everybody whom it concerns was told of all that has departed so
	// far: whoever opens the scope next does not find it. This Store goes on to return it.
	// It does not wait for the disk.
	Settle()
	// Unsettle takes back what Settle has said since the scope was opened: somebody has
	// come who was not told.
	Unsettle()
	// Departures counts what is kept, and what was not since the scope was opened. It
	// does not wait for the disk.
	Departures() (kept, dropped int)
}
