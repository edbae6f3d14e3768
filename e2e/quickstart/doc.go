// Package quickstart holds the end-to-end tests of the README and of docs/adopting.md:
// their programs, which are in the folders beside it, and their commands, on a real API
// server.
package quickstart
