// Package bolt stores scopes in one bbolt file.
//
// # Usage
//
// Open a DB, pass it to informers, and close it after they have ended. Only one process
// at a time can use a file for writing. OpenReadOnly is for inspecting the file of a
// process that has ended.
//
// # Durability
//
// Changes are visible at once. They are written in groups, every CommitInterval or
// CommitBytes; each group is one synced transaction that also contains the resource
// version that the group is complete up to. After a crash the objects, the index entries
// and the resource version are all those of one earlier state, from which the watch can
// be resumed. While the disk is full or broken, reads are answered from memory and from
// the file, and writes are retried.
//
// A process that has a database open holds the lock of FILE.lock next to it. Close
// removes that file.
//
// # Corruption
//
// Every record, header and manifest has a CRC-32C, and the manifest contains the count
// and the sum of the entries of its buckets. Open checks all of it. It renames a damaged
// file to FILE.corrupt-TIME and starts an empty one, because a cache can be filled again
// and must not take its controller down. All calls of bbolt recover panics, and memory
// faults are turned into panics.
//
// A file that cannot be used, because another user can change it or the directory cannot
// be written, is left alone: Open logs the cause, and informers hold their objects in
// memory (DB.Suspended). WithoutFile does the same for the errors that Open returns.
//
// # Encryption
//
// Secrets are written only if Options.Keys provides a key, and only encrypted;
// Options.EncryptAll encrypts all scopes. Records and headers are sealed with
// AES-256-GCM, bound to scope, bucket and object key, under a random data key of the
// file. The user's key wraps the data keys. Hashes of objects and index values are HMACs
// under a key of the file that never changes. Encrypted scopes are compressed without a
// dictionary, because a dictionary contains content.
//
// Not encrypted are the identity of a scope, its resource version, object keys, also of
// deleted objects, the resource version and time of each change in the log, sizes and
// counts, names of indexes, the fact that objects share a value of an index, and ledgers,
// with the keys of durable queues.
//
// A user's key is 64 hexadecimal digits in a file (codec.KeyFile) or in the output of a
// command (codec.KeyCommand). To replace it, put the new key in front of the old one. The
// next Open or DB.Rekey then wraps the data keys with the new key, and the old key is no
// longer needed. If no key opens the file, the encrypted scopes start cold. While the
// provider returns no key, such scopes are kept but cannot be opened, and their informers
// run in memory.
//
// Encryption protects the content of the file, and of copies of it, from readers without
// the key. It does not prevent a writer of the file from removing objects or restoring an
// earlier content, and it does not protect the memory of the process. bbolt does not
// erase old pages before it reuses them: content that was stored before encryption is
// only gone when the file is deleted.
//
// # Another history
//
// An undamaged file may belong to a history that the cluster no longer has, for example
// after etcd was restored. Options.Epoch drops all scopes at the next Open. DB.Wipe drops
// them at once, also while informers hold them.
//
// # Compatibility
//
// The file contains the name of its format. A file of another format version is rejected
// and not changed. The file must not be on a network file system.
package bolt
