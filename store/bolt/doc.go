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
// A process that has a database open holds the lock of FILE.lock beside it, which Close
// removes.
//
// # Corruption
//
// Every record, header and manifest carries a CRC-32C, and the manifest what its
// buckets add up to. Open checks all of it; a damaged file is renamed to
// FILE.corrupt-TIME and a fresh one begun, since a cache can be filled again and
// must not take its controller down. bbolt is called under recover, with faults
// turned into panics.
//
// # Encryption
//
// Secrets are written only where Options.Keys has a key, and encrypted; with
// Options.EncryptAll everything is. Records and headers are sealed by AES-256-GCM,
// bound to scope, bucket and object key, under a random data key of the file, which the
// user's key wraps. Hashes of objects and index values are HMACs, under a key of the
// file that never changes. In the clear are what a scope is of, its resource version,
// object keys, sizes and counts, and which objects share a value of an index. Encrypted
// scopes are compressed without a dictionary: a dictionary is content.
//
// A user's key is 64 hexadecimal digits in a file (codec.KeyFile) or the output of a
// command (codec.KeyCommand). To replace it put the new one in front of the old one:
// the next Open, DB.Rekey, or a running process some minutes later wraps the data keys
// with it, and then the old one is not needed. A key that does not open the file is a
// cold start of what was encrypted. While no key can be had such scopes cannot be
// opened, and are kept; informers of them run on memory.
//
// Encryption keeps what is in a file, or in a copy of it, from who has no key. It does
// not keep who may write the file from removing objects or from putting back what the
// file had before, nor what is in the memory of the process from who may read that.
// bbolt leaves old pages as they are until they are used again: what was stored before
// it was encrypted is gone with the file only.
//
// # Another history
//
// A file that is whole may be of a history that the cluster no longer has.
// Options.Epoch drops all of it at the next Open, DB.Wipe at once, also under
// informers that hold it.
//
// # Compatibility
//
// The file names its format. A file of a newer format is refused and left alone.
// It must not be on a network file system.
package bolt
