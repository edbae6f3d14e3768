// Package watch holds the end-to-end test of "informctl watch" on a real API server. Pods
// change, and the process that keeps the file is killed, and the clients are, too.
package watch
