// Package fakeapi is an API server in memory for one collection of objects, for
// tests of what lists and watches.
//
// # Usage
//
//	server := fakeapi.New(&v1.ConfigMap{}, &v1.ConfigMapList{}, fakeapi.Options{})
//	rv, err := server.Create(configMap)
//	// server is a cache.ListerWatcher
//
// A Server keeps the rules of a real one for resource versions, pages, streamed
// lists, bookmarks and lost history, and fails as it is told to. Time is package
// time's, so that a test may run in a synctest bubble: make the Server in there.
//
// # Concurrency
//
// A Server is safe for concurrent use. Each open watch has one goroutine. It ends
// with the watch: by Stop, by the request's context, at its timeout, or because
// the server closes it.
//
// # Limits
//
// Selectors are answered by a 400; a list with a resource version from the future
// fails at once, where a real server waits for three seconds first.
package fakeapi
