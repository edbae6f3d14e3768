// Package manager tests persistent informers with controller-runtime on a real API server
// that all tests share.
//
// The tests contain the demands of controller-runtime's own suite on a cache: reading,
// watching, selecting and the other options. Each row runs on a cold file and again after
// a restart, which must give the same results without a list. Other tests restart
// managers, let them lead in turn, and change their options between runs.
package manager
