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
// list of a single object asks for the server's present resource version, *now*:
// below the stored one, history was rewound, and the watch, which would be
// accepted with silence for ever, is not opened. Then the watch resumes, in short
// pieces at first, because nothing in the protocol marks the end of a replay: an
// event or a bookmark at or after *now* does, and the server sends a bookmark
// shortly before a watch's timeout (KEP-956).
//
// # Losing the watch
//
//	closed at its timeout                watch from the last resource version
//	closed earlier, EOF, refused, 5xx,   back off, ask for *now* again,
//	429, in-stream error                 watch from the last resource version
//	empty and closed at once, twice      list again: resources without a watch
//	                                     cache do not say 410
//	410, as status or event              list again, at once the first time
//	504 ResourceVersionTooLarge          the server is behind: three tries, then
//	                                     list again
//	401, 403                             back off and report
//	object that cannot be read           the same resource version once more, then
//	                                     list again
//	resource version below the held one  history was rewound: list again, at once
//	                                     the first time
//
// # Concurrency
//
// A Reflector starts no goroutine that outlives Run. Its sink's methods are
// called from Run's goroutine only.
package reflector
