// Package all tests informctl run --all against a real API server. It has no code of its
// own.
package all
