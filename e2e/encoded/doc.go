// Package encoded tests on a real API server, for each kind in client-go's scheme, that
// the bytes that the server sends for an object are those that a store keeps, and that
// informers which store them hold what the server has.
package encoded
