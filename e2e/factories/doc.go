// Package factories holds the tests of persistent informers in client-go's typed
// factory, in the dynamic and the metadata factory, and under client-go's typed
// wrappers, on a real API server.
package factories
