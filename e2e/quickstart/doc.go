// Package quickstart holds the end-to-end tests of README's quick start: its
// programs, which are in the folders beside it, and its commands, on a real API
// server.
package quickstart
