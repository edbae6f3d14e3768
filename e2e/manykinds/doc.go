// Command manykinds measures a process that follows hundreds of kinds, each with few
// objects, as those of crossplane and argo do: a manager's cache of controller-runtime
// with client-go's informers, and the same cache with persistent ones. It prints a table
// in Markdown. The server is a process of its own on the same machine.
package main
