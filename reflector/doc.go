// Package reflector brings one collection of an API server to a sink: it lists,
// watches, resumes a watch from a stored resource version, and lists again where
// the server has lost what was missed.
//
// # Usage
//
// An informer implements Sink and runs a Reflector; see New and Reflector.Run.
//
// # Starting
//
// A sink whose checkpoint has a resource version is not listed. One consistent
// list of a single object, the probe, asks for the server's present resource version,
// *now*: below the stored one, history was rewound, and the watch, which would be
// accepted with silence for ever, is not opened. Then the watch resumes, in short
// pieces at first, because nothing in the protocol marks the end of a replay: an
// event or a bookmark at or after *now* does, and the server sends a bookmark
// shortly before a watch's timeout (KEP-956). A server that sends none in two such
// watches may have none, or a watch cache that lags: then a list follows.
//
// # Losing the watch
//
//	closed at its timeout, after events  watch from the last resource version
//	or bookmarks
//	closed at its timeout, in silence    probe, watch from the last resource version
//	closed earlier, EOF, refused, 5xx,   back off, probe, watch from the last resource
//	429, in-stream error                 version; list again where the server's own
//	                                     error comes soon a third time at that one
//	empty and closed at once, twice      list again: resources without a watch
//	                                     cache do not say 410
//	410, as status or event; an object   list again, at once the first time
//	that the server could not read
//	504 ResourceVersionTooLarge          the server is behind: three tries, then
//	                                     list again
//	401, 403                             back off and report
//	object that cannot be read           the same resource version once more, then
//	                                     list again
//	resource version below the held one  apply the event and probe; below the held one
//	                                     there, too: history was rewound, list again
//
// # Fakes
//
// A client that says that it streams no lists, as client-go's fakes do
// (IsWatchListSemanticsUnSupported), and whose cluster nobody verifies, numbers as the
// author of a test likes, and has watches that are fed by hand. Once it has caught up, nothing of such a client is
// probed, no silence ends a watch, one that ended after events is opened again at once,
// an object of another type is reported and left out, and after a resource version below
// the held one none is stored until the next list.
//
// # Listing
//
// A streamed list (KEP-3157), where client and server have them; after one that failed
// before it brought anything, as after two that broke, pages; after a continuation that
// has expired, one answer with everything. Each is consistent: it asks for no resource
// version, so the list is of the moment at which it was asked for.
//
// # Concurrency
//
// A Reflector starts no goroutine that outlives Run, but for a request whose
// ListerWatcher ignores its context: that is left to itself a second after Run's
// context has ended. The sink's methods are called from Run's goroutine only.
package reflector
