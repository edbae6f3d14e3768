package store

import (
	"fmt"
	"time"
)

// Commits says how the writing of a database goes, since it was opened.
type Commits struct {
	Count    int           // transactions that were committed, of all scopes of the database
	Took     time.Duration // all of them together
	Last     time.Time     // when the last one ended; zero where there was none
	LastTook time.Duration
	Bytes    int64 // of the records that they wrote

	// Durations and Sizes say how many transactions took how many seconds, and wrote how
	// many bytes.
	Durations, Sizes []Bucket

	Err     error // of the last attempt to write the scope; nil after a success
	Waiting int64 // bytes of the scope's changes that are not written yet
	Stored  int64 // bytes of the scope's records in the file, as of the last write

	// Rebuilds is how often the file was damaged or lost, and begun again.
	Rebuilds int

	// AllWaiting is the same of all scopes of the database. More than MaxWaiting is too
	// much: nothing is dropped, but the disk does not keep up.
	AllWaiting, MaxWaiting int64
}

// Bucket counts values: those of the buckets before it, too.
type Bucket struct {
	UpTo  float64 // the largest value that it counts
	Count uint64
}

// TooMuchWaits says that more waits for the disk than is to; "" where it does not.
func (c Commits) TooMuchWaits() string {
	if c.AllWaiting <= c.MaxWaiting {
		return ""
	}
	return fmt.Sprintf("%d bytes of changes wait for the disk, more than %d", c.AllWaiting, c.MaxWaiting)
}

// Committer is implemented by Stores that write later than Apply returns.
type Committer interface {
	// Commits does not wait for the disk.
	Commits() Commits
}
