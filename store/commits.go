package store

import (
	"fmt"
	"time"
)

// Commits describes the commits of a database since it was opened.
type Commits struct {
	Count    int           // committed transactions, of all scopes of the database
	Took     time.Duration // the duration of all of them together
	Last     time.Time     // the end of the last commit; zero before the first one
	LastTook time.Duration
	Bytes    int64 // encoded size of the records that were written

	// Durations and Sizes are cumulative histograms of the transactions: by duration in
	// seconds and by written bytes.
	Durations, Sizes []Bucket

	Err     error // of the last attempt to write the scope; nil after a success
	Waiting int64 // bytes of the scope's changes that are not written yet
	Stored  int64 // bytes of the scope's records in the file, as of the last write

	// Rebuilds is how often the database started a new file because the old one was
	// damaged or lost.
	Rebuilds int

	// AllWaiting is Waiting for all scopes of the database together. A value above
	// MaxWaiting means that the disk does not keep up; no change is dropped.
	AllWaiting, MaxWaiting int64
}

// Bucket is one bucket of a cumulative histogram: Count includes the buckets before it.
type Bucket struct {
	UpTo  float64 // the largest value that is counted
	Count uint64
}

// TooMuchWaits returns a message if AllWaiting exceeds MaxWaiting, else "".
func (c Commits) TooMuchWaits() string {
	if c.AllWaiting <= c.MaxWaiting {
		return ""
	}
	return fmt.Sprintf("%d bytes of changes wait for the disk, more than %d", c.AllWaiting, c.MaxWaiting)
}

// Committer is implemented by Stores that write to disk after Apply has returned.
type Committer interface {
	// Commits returns the statistics. It does not wait for the disk.
	Commits() Commits
}
