// Package kubectl holds the end-to-end test of docs/kubectl.md: kubectl asks a real
// server, informctl a file that follows it, and what they print differs as each row says.
package kubectl
