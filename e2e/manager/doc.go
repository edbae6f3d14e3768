// Package manager holds the tests of persistent informers under
// controller-runtime, on a real API server that all of them share.
//
// What controller-runtime's own suite demands of a cache is here row by row:
// reading, watching, selecting and the other options. Each row runs on a cold file
// and again after a restart, which has to give the same answer without a list.
// Beside it are managers that are started again, lead in turn, and ask for other
// things than before.
package manager
