package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	bbolt "go.etcd.io/bbolt"
)

// TestVerifyOfOtherEntries checks that an index with as many entries as it should have is
// not said to be damaged by its number.
func TestVerifyOfOtherEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	writeFile(t, path)
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		scopes := tx.Bucket([]byte("scope"))
		return scopes.ForEachBucket(func(id []byte) error {
			entries := scopes.Bucket(id)
			for _, name := range []string{"index", "label:app"} {
				if entries = entries.Bucket([]byte(name)); entries == nil {
					return nil
				}
			}
			if entries.Stats().KeyN != 4 {
				return nil // not the pods'
			}
			key, _ := entries.Cursor().Last()
			other := append(append([]byte{}, key[:len(key)-1]...), '9')
			if err := entries.Delete(key); err != nil {
				return err
			}
			return entries.Put(other, nil)
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify"}, {"query", "pods", "--index", "label:app=web"}} {
		got := say(t.Context(), append(args, "--db", path)...)
		if all := got.Out + got.Err; got.Code != 3 || !strings.Contains(all, "4 entries, as many as there should be, but not the same") {
			t.Errorf("%q: exit code %d, %s", args, got.Code, all)
		}
	}
}
