// Package record is the format of what package bolt stores: records, headers, manifests
// and the keys of index entries. Each has a checksum of its own, because bbolt has
// checksums only for its meta pages.
//
// # Concurrency
//
// Functions and values have no state in common and take no locks. A value must not be
// used by several goroutines while one changes it.
package record
