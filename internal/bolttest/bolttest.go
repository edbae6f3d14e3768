// Package bolttest reads the database files of tests.
package bolttest

import (
	"testing"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// Scopes returns the scopes in a database file that no process has open.
func Scopes(t testing.TB, path string) []store.Info {
	t.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	infos, err := db.Scopes()
	if err != nil {
		t.Fatal(err)
	}
	return infos
}
