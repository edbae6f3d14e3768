// Package published tests what is published to PostgreSQL: real processes of informctl
// between a real API server and a real PostgreSQL, all of which are killed.
package published
