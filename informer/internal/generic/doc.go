// Package generic contains the common code of the informer factories for the dynamic and
// the metadata client.
//
// # Usage
//
// New takes a Form, which contains the differences of the clients, and returns the
// Factory that the public packages embed.
//
// # Concurrency
//
// A Factory is safe for concurrent use.
package generic
