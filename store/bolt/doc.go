// Package bolt keeps scopes in one bbolt file.
//
// # Usage
//
// Open a DB, hand it to informers, and close it after they have ended. A file is
// used by one process at a time; OpenReadOnly is for looking into the file of a
// process that has ended.
//
// # Durability
//
// Changes are visible at once and are written in groups, every CommitInterval or
// CommitBytes, each group in one synced transaction with the resource version
// that it is complete up to. A crash therefore goes back to an earlier state of
// objects, index entries and resource version alike, from which resuming the
// watch is right. While the disk is full or broken reads go on, from memory and
// what the file has, and writing is tried again.
//
// # Corruption
//
// Every record, header and manifest carries a CRC-32C, and the manifest what its
// buckets add up to. Open checks all of it; a damaged file is renamed to
// FILE.corrupt-TIME and a fresh one begun, since a cache can be filled again and
// must not take its controller down. bbolt is called under recover, with faults
// turned into panics.
//
// # Compatibility
//
// The file names its format. A file of a newer format is refused and left alone.
// It must not be on a network file system.
package bolt
