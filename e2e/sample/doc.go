// Package sample holds the end-to-end tests of examples/samplecontroller: a
// process of its own, on a real API server, that is killed and started again.
package sample
