// Package relay answers requests for stored objects as a Kubernetes API server does: get,
// list and watch, for kubectl, client-go and all other clients, also while the server
// cannot be reached, and for the state of an earlier moment. It is a module of its own,
// since it uses the handlers of k8s.io/apiserver.
//
// It reads the file of an informer. Lists and watches of one that holds its objects in
// memory are answered with 503. Nothing is forwarded to a server, and nothing can be
// changed.
//
// # What is told
//
// A list without a resource version is as new as what the informer has received, and not
// a quorum read: never let a program that destroys something check here before. Resource
// versions are those of the server.
//
// A list is of one moment, that of a mark in the log (package store), and tells its
// resource version, or the higher one up to which nothing has changed since. It is
// written a page at a time and holds no transaction, so that its memory does not depend
// on its size or on the client. An exact list and a continue can be of any moment that
// the log reaches; inside of what was written at once, or of a list of the informer, they
// are refused with 410.
//
// # Watches
//
// A watch goes along groups of changes. A group is what one commit has changed or, where
// a list was applied or an object could not be stored, all up to the next mark whose
// state was the server's. In a group,
//
//   - changes are in the order of resource versions;
//   - an object whose place another one has taken is DELETED just before that is ADDED,
//     with the resource version before it;
//   - a deletion that a list has found has no resource version. It comes first, with that
//     of the mark before: a client that is cut between two of them, and goes on from
//     there, receives both;
//   - an object that was created and deleted in one commit is ADDED, as it was last, and
//     DELETED;
//   - several commits make one change of an object.
//
// A watch that asks for bookmarks receives one of a group's mark behind the group if it
// was sent a change of it and the last one has a lower resource version, and each minute
// one of how far it has come. A client can go on from there. From a resource version
// inside a group it cannot, and receives 410: what it has cannot be known. A watch of a
// single name may, since each state of its object has its own resource version. A
// resource version that is not reached yet is waited for; if it turns out to be inside a
// group, or if no server is followed that could reach it, the watch ends with 410, too.
//
// When the process ends, watches end without an error: their clients go on where they
// were, with the next process.
//
// # Who reads
//
// Local listens at the loopback, with TLS and a token that is in a kubeconfig of mode
// 0600. A request needs the token; its Host has to be the loopback, and its Origin, too,
// if there is one. Secrets are served with Options.Secrets only.
//
// # Concurrency
//
// A collection has a goroutine that follows its log and one that has changes written as
// long as somebody watches. They begin with the first watch and end with Server.Close,
// or when the Source does not have the collection any more: each request for objects
// asks it, and each watch once a minute. A watch has a goroutine that ends with its
// request.
package relay
