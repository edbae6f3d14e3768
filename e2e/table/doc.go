// Package table holds the end-to-end test of package table: the API server is asked for
// its tables, and each cell has to be the same.
package table
