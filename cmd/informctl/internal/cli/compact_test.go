package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// TestCompact checks that what is compact has the same objects, takes less when most of
// them were removed, and leaves nothing beside it.
func TestCompact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	pods := make([]runtime.Object, 4000)
	for i := range pods {
		pods[i] = testobjects.Pod(i, 1)
	}
	for _, list := range [][]runtime.Object{pods, pods[:10]} {
		db, err := bolt.Open(path, bolt.Options{})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, db, corev1.SchemeGroupVersion.WithKind("Pod"), "pods", store.Typed, list...)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	content, before := run(t, "dump", "--db", path, "-o", "json"), size(t, path)
	run(t, "compact", "--db", path)
	once := size(t, path)
	if !bytes.Equal(content, run(t, "dump", "--db", path, "-o", "json")) {
		t.Error("the objects are others")
	}
	if 2*once > before {
		t.Errorf("%d bytes, %d before", once, before)
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

// TestCompactKeepsGroup checks that the members of a file's group may read it also when
// it is compact.
func TestCompactKeepsGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	if err := copyFile(podFile(t, smallPod), path); err != nil {
		t.Fatal(err)
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		groups = append(groups, os.Getegid()+1)
	}
	i := slices.IndexFunc(groups, func(g int) bool { return g != os.Getegid() })
	if i < 0 {
		t.Skip("the user is in one group")
	}
	if err := errors.Join(os.Chown(path, -1, groups[i]), os.Chmod(path, 0o640)); err != nil {
		t.Fatal(err)
	}
	run(t, "compact", "--db", path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if gid := int(info.Sys().(*syscall.Stat_t).Gid); gid != groups[i] || info.Mode().Perm() != 0o640 { //nolint:forcetypeassert // of a file
		t.Errorf("it has group %d and mode %v, want %d and 0640", gid, info.Mode(), groups[i])
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
