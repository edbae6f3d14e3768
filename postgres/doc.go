// Package postgres publishes collections of an API server to PostgreSQL, so that many
// processes follow one list and one watch.
//
// # Who does what
//
// A publisher ([DB.Publish]) lists and watches the API server and writes what it is told
// to the database, in one transaction with the resource version. It needs no disk: the
// database is what it resumes from. Start two; a lease in the database chooses.
//
// A follower ([DB.ListerWatcher]) has a cache.ListerWatcher that reads the database. It
// is for every informer, of this project or of client-go. It needs no more than the right
// to SELECT. Resource versions are those of the API server, so that a follower may write
// with optimistic locking, and may go to the API server and come back.
//
// Whoever can write the tables decides what every follower believes, and so what their
// controllers do with their rights: treat the publisher's role as cluster-admin. Secrets
// are refused.
//
// # The log
//
// A transaction appends what has changed to the table change, applies it to the table
// object, and ends with a mark: the rows up to a mark are complete up to its resource
// version. A follower's position is a resource version; seq orders the rows and shows
// gaps. Each row has the random number of its transaction, so that a follower that reads
// on notices when its last row is not the one that it has read: the database was failed
// over to a state without it. The follower then finds its place by resource version.
//
// A list has no order. Its differences are for watches that were open at the mark before
// it; every other watch from a resource version before that of the list is answered with
// a 410, because a change that the list has not seen may lie in between.
//
// # Failures
//
//	another publisher has taken over    ErrFenced inside; it waits for the lease again
//	the database went back              resumes from the resource version that is there
//	the outcome of a COMMIT is unknown  its last row tells
//	the API server is another cluster   nothing is published until it is the right one
//	the API server lists anew           followers that watch are sent the differences
//	the log was trimmed                 410: the follower lists, from the database
//	the database lags behind a follower 504: it waits, and does not go back in time
//	nothing heard for MaxStale          503, and a watch ends with a 429
//
// # Concurrency
//
// A DB and what it returns are safe for concurrent use. Publish ends with its context,
// and the goroutines of a DB with Close.
package postgres
