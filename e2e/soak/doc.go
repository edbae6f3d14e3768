// Package soak holds the endurance test: informers run in a separate process on a real
// API server while objects change. At random the process is killed, the network is cut,
// the disk fills, the API server restarts and etcd is compacted. After each round
// handlers, store, file and server must agree.
//
// [Proxy] is the network that is cut.
package soak
