// Package quickstart tests the README and docs/adopting.md on a real API server: their
// commands and their programs, which are in the folders next to this file.
package quickstart
