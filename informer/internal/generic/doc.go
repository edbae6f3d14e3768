// Package generic is what the factories of informers by resource have in common:
// those of the dynamic and of the metadata client.
//
// # Usage
//
// New is told what the clients differ in, a Form, and returns the Factory that the
// public packages embed.
//
// # Concurrency
//
// A Factory is safe for concurrent use.
package generic
