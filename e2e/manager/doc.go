// Package manager holds the tests of persistent informers under a
// controller-runtime manager, on a real API server.
package manager
