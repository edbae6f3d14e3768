// Package relay holds the end-to-end test of package relay: an API server and informctl,
// which serves its objects, are asked the same, and the answers have to be the same.
package relay
