// Package bolttest reads the database files of tests, and makes volumes for them.
package bolttest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

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

// List lists objects into a scope, complete up to rv, and writes them.
func List(t testing.TB, s store.Store, rv string, objects ...runtime.Object) {
	t.Helper()
	r, err := s.Relist()
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range objects {
		if err := r.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	for b, err := range r.Parts(rv) {
		if err == nil {
			err = s.Apply(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Volume mounts a file system of that many MiB in memory and returns its directory. It
// skips the test if that is not possible, as without root rights.
func Volume(t *testing.T, mib int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", mib), "tmpfs", dir).CombinedOutput()
	if err != nil {
		t.Skipf("SKIPPED: needs root: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil { //nolint:noctx // the test's context has ended
			t.Errorf("%v: %s", err, out)
		}
	})
	return dir
}

// Fill takes a number of bytes of a volume until release is called.
func Fill(t *testing.T, dir string, bytes int64) (release func()) {
	t.Helper()
	f, err := os.CreateTemp(dir, "filler-*")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}
