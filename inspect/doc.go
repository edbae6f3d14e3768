// Package inspect looks into a running process: an HTTP handler that answers questions
// about its informers, and the unix socket where informctl asks them. The file that they
// work on cannot be opened by another process meanwhile. Only programs import it:
//
//	go inspect.Serve(ctx, inspect.SocketPath(db.Path()), inspect.NewHandler(factory))
//
// # Requests
//
// GET only. An answer is one JSON document, or where that is said one JSON object a line.
// The handler authenticates nobody, so serve it where only those reach it who may read the
// objects: see Serve. Values of Secrets are redacted unless secrets=show is asked for.
//
//	/v1/status                  an array of informer.Status
//	/v1/scopes                  what each informer holds, by ID
//	/v1/objects                 objects, a line each
//	    namespace= selector= limit= after=KEY
//	/v1/object                  one: key=NAMESPACE/NAME
//	/v1/indexes                 names, and the identities of those that survive a restart
//	/v1/index                   values with their counts, a line each: name= limit= after=VALUE
//	/v1/query                   objects with a value of an index, a line each
//	    index= value= namespace= selector= limit= after=KEY
//	/v1/changes                 {"type", "object"} a line from now on, type ADDED, MODIFIED, DELETED
//	    since=now initial=true  the objects that are there first, as INITIAL
//	    since=RV                what came after a resource version first
//	                            "listed": true says that a list may have brought it
//	/v1/snapshot                a copy of the database after its last commit
//	/v1/file, /v1/keys, /v1/records, /v1/headers
//	                            what informctl reads; they change with it
//
// All but status, file, scopes and snapshot take scope=ID, or scope=RESOURCE where that
// names one scope; with one informer it may be left out. Objects are those that readers
// of the informer see; a walk over many is no snapshot. An error is
// {"error": "..."}: with 400 for a wrong parameter, 404 for what does not exist, 405
// for another method, 503 where the handler is busy, and with a "cause" where
// that is "damage" or "no key". Where lines have been sent before, the error is the last
// line.
//
// # Changes since a resource version
//
// Changes are those of informer.Informer.Follow. The RV of since=RV is the
// metadata.resourceVersion of the last line that a client has received without
// initial=true and that is not "listed", since a list comes in the order of keys; or the
// checkpoint's of a /v1/status before the client asked for /v1/objects. The answer is 410
// where the changes after RV are not remembered, and 504 where RV is ahead of the informer
// for 5 seconds.
//
// # Load
//
// Objects are read in chunks, as Lister.All does: a request never holds a transaction
// while its client receives. Four requests read at a time; others wait 5 seconds for a
// place and are then refused. A client has 30 seconds to take each line, and two and a
// half minutes for an answer that has an end; one that follows changes has 5 seconds and
// a bounded buffer.
//
// The package's tests are among those of package informer, whose harness they need.
package inspect
