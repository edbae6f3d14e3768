package store

import "time"

// Reads describes reads of a store and the cost of its objects since it was opened.
type Reads struct {
	// Hits counts reads by key that found a decoded object, Misses those that had to read
	// and decode it.
	Hits, Misses uint64
	// Longest is the duration of the longest read transaction, of all scopes of the
	// database. While a read transaction is open, freed pages are not reused and the file
	// grows.
	Longest time.Duration
	// Encodes and Decodes measure encoding with compression, and decoding with
	// decompression. They do not include encryption, disk access and checksums. The
	// durations of concurrent goroutines add up.
	Encodes, Decodes Work
	// DecodedBytes is the estimated memory of the cached decoded objects.
	DecodedBytes int64
}

// Work is the number of operations and their total duration.
type Work struct {
	Count uint64
	Took  time.Duration
}

// ReadCounter is implemented by Stores that do not keep every object decoded.
type ReadCounter interface {
	// Reads returns the statistics. It does not wait for the disk.
	Reads() Reads
}
