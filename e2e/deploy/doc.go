// Package deploy holds the tests of what deploy/ has for a cluster: a real API
// server takes each manifest, their programs run with their rights, and the
// Dockerfile is linted.
package deploy
