// Package inspect lets other processes inspect the informers of a running process. It
// provides an HTTP handler that answers questions about them, and the unix socket on
// which informctl asks. Another process cannot open the informers' file at the same time.
// Only programs import this package:
//
//	go inspect.Serve(ctx, inspect.SocketPath(db.Path()), inspect.NewHandler(factory))
//
// # Requests
//
// Only GET is allowed. An answer is one JSON document, or, where stated, one JSON object
// per line. The handler does not authenticate clients, so serve it only to those who may
// read the objects: see Serve. Unless the request has secrets=show, an answer has names,
// labels, types and keys of Secrets and no values, and an index that may contain values
// is asked for none (403).
//
//	/v1/status                  an array of informer.Status
//	/v1/consumers               an array of durable.Status
//	/v1/scopes                  the scope of each informer, with its ID
//	/v1/objects                 objects, one per line
//	    namespace= selector= limit= after=KEY
//	    key=NAMESPACE/NAME      only those with these keys; it may be repeated
//	    index= value=           only those with a value in an index; value= may be, too
//	/v1/indexes                 names, and identities of those that survive a restart
//	/v1/index                   values, counts, one per line: name= limit= after=VALUE
//	/v1/changes                 changes from now on: {"type", "object"} per line,
//	                            with the type ADDED, MODIFIED or DELETED
//	                            "inside": true: a state before is not known, and counts
//	                            as one that matched
//	    since=now initial=true  first the stored objects, as INITIAL
//	    since=RV                first the changes after a resource version
//	                            "listed": true: the change may come from a list
//	    namespace= selector=    only objects that match: one that begins to is ADDED,
//	                            one that no longer does DELETED, as it last matched;
//	                            what has no namespace matches each
//	    old=true                "old" is the state before a MODIFIED, if it is known
//	    bookmarks=true          from the log, BOOKMARK where a client can go on from
//	/v1/snapshot                a copy of the database after its last commit
//	/v1/file, /v1/keys, /v1/records, /v1/headers, /v1/history, /v1/log
//	                            for informctl only; they change with it
//
// The requests for objects, keys and values of an index take notOlderThan=RV: they wait
// up to 5 seconds until the informer's state is at least as new as that resource version
// (informer.Informer.NotOlderThan), and answer 504 if it is not.
//
// All requests except status, file, scopes, consumers and snapshot take scope=ID, or
// scope=RESOURCE if that identifies one scope; with one informer it may be omitted.
// Answers contain the objects that readers of the informer see; a walk over many objects
// is no snapshot.
//
// An error is {"error": "..."}, with a "cause" if that is "damage", "no key" or "closed".
// The status is 400 for a wrong parameter, 403 for what needs secrets=show, 404 for
// something that does not exist, 405 for another method and 503 if the handler is busy,
// or if the informer has not opened what it stored yet or has stopped. If lines have been
// sent before, the error is the last line, also where Serve ends while a client follows.
// An answer that has an end is cut off if the process ends before it.
//
// # Changes since a resource version
//
// Changes from now on are those of informer.Informer.Follow. The RV of since=RV is the
// metadata.resourceVersion of the last line that a client has received without
// initial=true and that is not "listed", because a list comes in key order. A BOOKMARK is
// such a line, too. It can also be the checkpoint of a /v1/status that the client
// requested before /v1/objects.
//
// What came after RV is read from the log of the scope, which is in the file and outlives
// the process, and later changes follow when they are written. The log has one change for
// all changes of an object in one commit, so a client whose RV is inside a commit may
// have received states that the log does not have: changes of that commit are "inside":
// true, and their states before count as ones that matched. The status is 410 if the log
// does not reach back to RV: the client then begins with initial=true. It is 504 if the
// log is not at RV after 5 seconds. An informer that holds its objects in memory has a
// log since a client has followed it.
//
// # Load
//
// Objects are read in chunks, like Lister.All does: a request never holds a transaction
// while its client receives. Four requests read at a time; others wait up to 5 seconds
// and are then refused. A client has 30 seconds to take each line, and two and a half
// minutes for an answer that ends. A client that follows changes has 5 seconds and a
// bounded buffer.
//
// The tests of this package are in package informer, because they need its harness.
package inspect
