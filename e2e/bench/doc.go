// Command bench measures client-go's informer and ours against the same server
// and writes docs/benchmarks.md.
//
// # Results
//
// benchmarks.json beside the report has the figures of every round and under what
// they were measured, by groups: a kind and a number of objects. A run replaces all
// of it; with -add it replaces the groups that it measures, so that hours of
// measuring can be divided. -report writes the report and the plots anew.
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
//
// With -kube the server is a kube-apiserver of package controlplane and the group has
// the starts only: what comes after them needs a server that changes on command.
package main
