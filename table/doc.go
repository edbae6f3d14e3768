// Package table makes the columns that kubectl prints, from objects alone.
//
// kubectl does not make its columns: the API server does, for each kind in its own way. A
// cache has no server to ask, so this package holds what the server answers for the kinds
// that it has by default ([Of]), and for custom resources ([OfDefinition]). The columns
// of all other kinds are the name and the age.
//
// # Concurrency
//
// All functions and methods are safe for concurrent use and never block. They do not
// change the objects that they are given. The time is an argument.
package table
