// Command bench measures client-go's informer and ours against the same server
// and writes docs/benchmarks.md.
//
// # Processes
//
// The command starts itself again: one process is the API server of one
// collection, and every measurement is a process of its own, client-go's and ours
// in turn. A process is told what to do by the environment variable of its role
// and answers with JSON on its standard output.
//
// # The server
//
// It holds each object encoded, with a resource version and the time of sending
// as numbers of a fixed width, so that a change costs a copy and the server is
// never what is measured. Between measurements it goes back to what it held at
// its start.
package main
