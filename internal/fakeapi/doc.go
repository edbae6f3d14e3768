// Package fakeapi is an in-memory API server for one collection of objects. It is used to
// test clients that list and watch.
//
// # Usage
//
//	server := fakeapi.New(&v1.ConfigMap{}, &v1.ConfigMapList{}, fakeapi.Options{})
//	rv, err := server.Create(configMap)
//	// server is a cache.ListerWatcher
//
// A Server follows the rules of a real API server for resource versions, pages, streamed
// lists, bookmarks and expired history, and fails on request. It uses package time, so a
// test may run in a synctest bubble: create the Server in the bubble.
//
// # Concurrency
//
// A Server is safe for concurrent use. Each open watch has one goroutine. It ends with
// the watch: by Stop, at the end of the request's context, at its timeout, or when the
// server closes the watch.
//
// # Limits
//
// Requests with selectors get a 400. The label selector of a streamed list concerns only
// the list, and not the changes after it. A list with a resource version from the future
// fails at once; a real server waits for three seconds first.
package fakeapi
