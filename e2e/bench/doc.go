// Command bench compares client-go's informer with ours on the same server and writes
// docs/benchmarks.md.
//
// # Results
//
// The file benchmarks.json next to the report contains the figures of every round and the
// conditions of the measurement, by group. A group is a kind and a number of objects. A
// run replaces the whole file. With -add it replaces only the groups that it measures, so
// hours of measuring can be divided. -report only writes the report and the plots again.
//
// # Processes
//
// The command starts itself again in other roles: one process is the API server of one
// collection, and every measurement is a separate process, alternately with client-go's
// informer and ours. The environment variable of the role contains the task of a process.
// The process answers with JSON on its standard output.
//
// # The server
//
// The server holds each object in encoded form, with the resource version and the time of
// sending as numbers of a fixed width. A change therefore costs only a copy, and the
// server does not limit what is measured. Between measurements it returns to its first
// state.
//
// With -kube the server is also a kube-apiserver of package controlplane, of pods and of
// config maps. These groups contain only the starts: the later steps need a server that
// changes on command.
package main
