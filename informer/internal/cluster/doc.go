// Package cluster finds out what a ListerWatcher lists, and which cluster answers it.
//
// A [Finder] wraps the transport of a configuration and finds scopes. A [Client] asks the
// server for its identity, and the backend remembers that for a start while the server is
// down. A [Verifier] compares the server with the cluster of a scope for as long as an
// informer runs.
package cluster
