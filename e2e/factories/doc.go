// Package factories tests persistent informers on a real API server: in client-go's typed
// factory, in the dynamic and the metadata factory, and in client-go's typed wrappers.
package factories
