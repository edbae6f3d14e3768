package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/informctl/informctl/internal/testobjects"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// changedPod returns a pod after a rollout that added a long common text to all pods of a
// cluster.
func changedPod(i int) *corev1.Pod {
	pod := testobjects.Pod(i, 1)
	pod.Annotations = map[string]string{"example.com/policy": fmt.Sprintf("%x", testobjects.Secret(0, 7, 4<<10).Data["value"])}
	return pod
}

// change writes the changed states of the numbered pods.
func change(t *testing.T, s store.Store, numbers []int) {
	t.Helper()
	var b store.Batch
	for _, i := range numbers {
		b.Changes = append(b.Changes, store.Change{Object: changedPod(i)})
	}
	b.RV = "2000"
	must(t, s.Apply(b))
	must(t, s.Flush(t.Context()))
}

func wantChanged(t *testing.T, s store.Store, numbers []int) {
	t.Helper()
	for _, i := range numbers {
		want := changedPod(i)
		got, ok, err := store.Indexer(s).GetByKey(want.Namespace + "/" + want.Name)
		if err != nil || !ok {
			t.Fatalf("%s: %v, %v", want.Name, ok, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", want.Name, diff)
		}
	}
}

func bytesOf(t *testing.T, db *bolt.DB) int64 {
	t.Helper()
	infos, err := db.Scopes()
	must(t, err)
	return infos[0].Bytes
}

// TestDictionaryDecays checks that a scope whose objects come to share other content gets
// a new dictionary, only once, and that objects compressed with either dictionary can be
// read.
func TestDictionaryDecays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	const n = 400
	numbers := inKeyOrder(n, 1)
	db, s := openPods(t, path, bolt.Options{})
	bolt.SetTrials(s, 1<<20)
	listPods(t, s, n, 1)
	must(t, s.Flush(t.Context())) // a small list is compressed by the committer
	change(t, s, numbers[:n/4])
	old := bytesOf(t, db)
	for range 4 { // the same changes again: they give no better dictionary
		change(t, s, numbers[:n/4])
	}
	renewed := bytesOf(t, db)
	if 10*renewed > 8*old {
		t.Errorf("%d bytes, %d before there was another dictionary", renewed, old)
	}
	must(t, db.Close())
	if keys := dictionariesOf(t, path); len(keys) != 2 {
		t.Errorf("there are dictionaries %q, want two", keys)
	}
	db, s = openPods(t, path, bolt.Options{})
	wantChanged(t, s, numbers[:n/4])
	got, _, err := store.Indexer(s).GetByKey(testobjects.Pod(numbers[n-1], 1).Namespace + "/" + testobjects.Pod(numbers[n-1], 1).Name)
	must(t, err)
	if diff := cmp.Diff(testobjects.Pod(numbers[n-1], 1), got); diff != "" {
		t.Errorf("a pod of the first dictionary (-want +got):\n%s", diff)
	}
	must(t, db.Close())
}

// TestDictionaryStays checks that more objects of the same kind do not cause a new
// dictionary.
func TestDictionaryStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openPods(t, path, bolt.Options{})
	bolt.SetTrials(s, 1<<20)
	listPods(t, s, 300, 1)
	for i := range 4 {
		listPods(t, s, 300, int64(i+2))
		must(t, s.Flush(t.Context()))
	}
	must(t, db.Close())
	if keys := dictionariesOf(t, path); len(keys) != 1 {
		t.Errorf("there are dictionaries %q, want one", keys)
	}
}

// TestRetrain checks that Retrain replaces a dictionary that does not suit the objects
// and removes the old one, that every transaction on the way leaves a whole file, and
// that Retrain does not change a file whose dictionary suits.
func TestRetrain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "informers.db")
	const n = 2000
	numbers := inKeyOrder(n, 1)
	db, s := openPods(t, path, bolt.Options{})
	listPods(t, s, n, 1)
	change(t, s, numbers)
	before := bytesOf(t, db)
	if _, err := bolt.Retrain(t.Context(), path, func(int) {}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("error of an open file: %v", err)
	}
	must(t, db.Close())

	var copies []string
	retrained, err := bolt.Retrain(t.Context(), path, func(int) {
		image, err := os.ReadFile(path)
		must(t, err)
		copies = append(copies, fmt.Sprintf("%s.%d", path, len(copies)))
		must(t, os.WriteFile(copies[len(copies)-1], image, 0o600))
	})
	must(t, err)
	if !retrained || len(copies) < 2 {
		t.Errorf("retrained %t in %d transactions, want several", retrained, len(copies))
	}
	if keys := dictionariesOf(t, path); len(keys) != 1 {
		t.Errorf("there are dictionaries %q, want one", keys)
	}
	for _, path := range append(copies, path) {
		db, s := openPods(t, path, bolt.Options{})
		if db.SetAside() != "" {
			t.Fatalf("%s is damaged", path)
		}
		wantChanged(t, s, append(numbers[:50:50], numbers[n-50:]...))
		if got := s.Checkpoint().RV; got != "2000" {
			t.Errorf("resource version %q", got)
		}
		if after := bytesOf(t, db); 10*after > 8*before && path == copies[len(copies)-1] {
			t.Errorf("%d bytes of records, %d before", after, before)
		}
		must(t, db.Close())
	}
	retrained, err = bolt.Retrain(t.Context(), path, func(int) {})
	if err != nil || retrained {
		t.Errorf("again: %t, %v", retrained, err)
	}
}
