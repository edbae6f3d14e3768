// Package reflector delivers one collection of an API server to a sink. It lists and
// watches the collection, resumes a watch from a stored resource version, and relists
// when the server no longer has the missed changes.
//
// # Usage
//
// An informer implements Sink and runs a Reflector; see New and Reflector.Run.
//
// # Starting
//
// If the sink's checkpoint has a resource version, the reflector does not list. It first
// sends the probe, a consistent list of one object, to get the server's present resource
// version, *now*. If *now* is below the stored resource version, history was rewound, and
// the reflector does not resume the watch: the server would accept it and stay silent for
// ever. Otherwise it resumes the watch. The first watches have short timeouts, because
// the protocol does not mark the end of a replay: the reflector has caught up with an
// event or a bookmark at or after *now*, and the server sends a bookmark shortly before
// the timeout of a watch (KEP-956). If the server sends no bookmark in such a watch, the
// reflector probes and watches again. If there is none in two of them, the server may not
// support bookmarks, or its watch cache lags: then the reflector lists. A server in whose
// whole database nothing is written meanwhile may be silent, too.
//
// A list waits for the client's limit of requests per second, a watch does not. If the
// list of the probe would wait more than half a second for that, or is forbidden, the
// probe is a streamed list that selects no object: its final bookmark has the resource
// version that a consistent list would have. If the server does not answer it, the probe
// lists however long that takes.
//
// A server ends the watch of a client that reads slowly. If the watches have taken a
// minute and, at their rate, would still need longer than a list to reach the goal, the
// reflector lists. This also holds for a running reflector that has fallen behind; its
// goal is what the probe says after a watch that broke.
//
// For a small collection the probe asks for all objects, and the sink compares them with
// what it holds. If nothing differs, the reflector has caught up, and its watch begins at
// *now*.
//
// # Losing the watch
//
//	closed at its timeout, after events  watch from the last resource version
//	or bookmarks
//	closed at its timeout, in silence,   probe, watch from the last resource version
//	or in catching up without bookmarks
//	closed earlier, EOF, refused, 5xx,   back off, probe, watch from the last resource
//	429, in-stream error                 version; relist if the server soon sends its
//	                                     own error for the third time at that version;
//	                                     if it fails the list, too, probe again
//	third probe that the server fails    watch without a probe for a minute, probe
//	empty and closed at once, twice      relist: resources without a watch cache do not
//	                                     return 410
//	410, as status or event; an object   relist, at once the first time
//	that the server could not read
//	504 ResourceVersionTooLarge          the server is behind: three tries, then relist
//	401, 403                             back off and report; relist at the sixth watch
//	                                     that is forbidden where the probe's list is not
//	404 of the resource                  back off and report; after 5 minutes of it
//	                                     the sink receives an empty list
//	object that cannot be read           watch from the same resource version once more,
//	                                     then relist
//	resource version below the held one  apply the event and probe; if the probe is also
//	                                     below the held one, history was rewound: relist
//
// A server may fail every list, for example because it cannot convert one object, and
// serve watches. A watch without a probe brings what has followed the held resource
// version. It brings nothing if history was rewound, and does not end catching up: that
// needs a probe. Whole lists that the server fails are a minute apart after the first
// ones.
//
// # Fakes
//
// client-go's fakes report that they do not support streamed lists
// (IsWatchListSemanticsUnSupported). If such a client is used without Options.Verify, its
// resource versions are arbitrary values chosen by the author of a test, and the test
// sends the events of its watches by hand. The reflector skips an object of another type
// and reports it. After a resource version below the held one it stores none until the
// next list. A fake may replay nothing, so what changes while no watch is open is lost.
// Once the reflector has caught up, it therefore does what client-go does: it does not
// probe and does not end a silent watch. After a watch that ended without an error it
// opens the next one at once. After a watch that failed, or that was empty and ended
// within a second, it backs off and lists; after a 429 or a refused connection it backs
// off and watches.
//
// # Listing
//
// The reflector uses a streamed list (KEP-3157) if the client and the server support it.
// It uses pages if a streamed list failed before it delivered an object, or if two
// streamed lists broke. It also uses them, for this list and every later one of the same
// cluster, if a streamed list delivered no initial event for 30 seconds: nothing, or only
// bookmarks and changes; and if two in a row were neither accepted nor refused for 30
// seconds. A fake watch of apimachinery gets half a second. As long as a
// server answers neither the stream nor the first page, the stream is kept. The reflector
// requests the whole list in one response if a continue token has expired. Every list is
// consistent: it requests no resource version, so it shows the state at the time of the
// request.
//
// # Concurrency
//
// A Reflector starts no goroutine that outlives Run, except for a request whose
// ListerWatcher ignores its context: Run abandons such a request one second after its
// context has ended. The sink's methods are called only from Run's goroutine.
package reflector
