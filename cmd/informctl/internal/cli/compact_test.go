package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestCompactRetrains checks that compact trains a new dictionary if the objects have
// changed too much for the old one, and that the smaller file contains the same objects.
func TestCompactRetrains(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	const n = 400
	first, later := make([]runtime.Object, n), make([]runtime.Object, n)
	policy := fmt.Sprintf("%x", testobjects.Secret(0, 1, 4<<10).Data["value"])
	for i := range n {
		pod := testobjects.Pod(i, 2)
		pod.Annotations = map[string]string{"example.com/policy": policy}
		first[i], later[i] = testobjects.Pod(i, 1), pod
	}
	for _, list := range [][]runtime.Object{first, later} {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, list...)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	content, before := run(t, "dump", "--db", path, "-o", "json"), recordBytes(t, path)
	run(t, "compact", "--db", path)
	once := size(t, path)
	if !bytes.Equal(content, run(t, "dump", "--db", path, "-o", "json")) {
		t.Error("the objects are others")
	}
	if after := recordBytes(t, path); 2*after > before {
		t.Errorf("%d bytes of records, %d before", after, before)
	}
	run(t, "compact", "--db", path)
	if again := size(t, path); again != once {
		t.Errorf("compact of a compact file: %d bytes, %d before", again, once)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestCompactSays checks that compact says what a file takes on the disk. Its length says
// nothing: a file may be longer than what is in it.
func TestCompactSays(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	if err := copyFile(podFile(t, smallPod), path); err != nil {
		t.Fatal(err)
	}
	run(t, "compact", "--db", path)
	length := size(t, path)
	if err := os.Truncate(path, length+16<<20); err != nil {
		t.Fatal(err)
	}
	said := string(run(t, "compact", "--db", path))
	var unit string
	var before, after float64
	if _, err := fmt.Sscanf(said, path+": %f %3s on the disk before, %f", &before, &unit, &after); err != nil || before != after || before > 16 && unit != "KiB" {
		t.Errorf("%q: %v; want the same size before and after, of %d bytes", said, err, length)
	}
}

// recordBytes returns the size of the records of a file with one scope.
func recordBytes(t *testing.T, path string) int64 {
	t.Helper()
	db, err := bolt.OpenReadOnly(path, bolt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	scopes, err := db.Scopes()
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return scopes[0].Bytes
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
