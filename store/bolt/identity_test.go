package bolt_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/informctl/informctl/store/bolt"
)

// TestIdentity checks that the next process finds a remembered cluster only for the same
// connection, and that a damaged entry is ignored.
func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	with := func(f func(*bolt.DB)) {
		t.Helper()
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f(db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(db *bolt.DB, asked, want string) {
		t.Helper()
		if got, err := db.Identity(asked); got != want || err != nil {
			t.Errorf("Identity(%q) = %q, %v; want %q", asked, got, err, want)
		}
	}
	with(func(db *bolt.DB) {
		want(db, "host-a", "")
		for _, cluster := range []string{"first", "first", "second-identity"} {
			if err := db.SetIdentity("host-a", cluster); err != nil {
				t.Error(err)
			}
			want(db, "host-a", cluster)
		}
	})
	with(func(db *bolt.DB) {
		want(db, "host-a", "second-identity")
		want(db, "host-b", "")
	})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := bytes.ReplaceAll(data, []byte("second-identity"), []byte("second-idemtity"))
	if err := os.WriteFile(path, spoiled, 0o600); err != nil {
		t.Fatal(err)
	}
	with(func(db *bolt.DB) { want(db, "host-a", "") })
}
