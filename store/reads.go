package store

import "time"

// Reads says how a store is read and what its objects cost, since it was opened.
type Reads struct {
	// Hits are the objects that were asked for by key and found decoded; Misses those
	// that had to be read and decoded.
	Hits, Misses uint64
	// Longest is the longest read transaction, of all scopes of the database. While one
	// is open, pages that are free are not used again and the file grows.
	Longest time.Duration
	// Encodes and Decodes are what it takes to make bytes of objects, and objects of
	// bytes: with what compressing takes, without encryption, the disk and the
	// checksums. Goroutines that work at the same time add up.
	Encodes, Decodes Work
	// DecodedBytes is the memory that objects which are kept decoded take, as far as it
	// can be estimated.
	DecodedBytes int64
}

// Work is how often something was done, and how long all of it took.
type Work struct {
	Count uint64
	Took  time.Duration
}

// ReadCounter is implemented by Stores that do not hold every object decoded.
type ReadCounter interface {
	// Reads does not wait for the disk.
	Reads() Reads
}
