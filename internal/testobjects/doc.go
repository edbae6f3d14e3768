// Package testobjects makes varied, realistic Kubernetes objects for tests, benchmarks
// and the demo.
//
// Every object is a function of its number i and a seed: the same two give the same
// object, in every process. The key of an object depends on i alone, so two seeds give
// two contents of the same keys.
//
// The objects look like ones read from an API server: they have UIDs, resource versions,
// creation times and managed fields. [ClearServerFields] takes these away from an object
// that is to be created on a real server.
//
// # Concurrency
//
// All functions are safe for concurrent use, never block and return a new object that the
// caller owns.
package testobjects
