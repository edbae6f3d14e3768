package bolt

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// TestLostWhileIndexed checks that objects that are lost while they are indexed, in Open
// or in AddIndexers, are not in the index.
func TestLostWhileIndexed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "informers.db")
	db, s := openValued(t, path, 0)
	if err := store.Indexer(s).Add(valued("a", "1")); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	losing := func(obj any) ([]string, error) {
		(*owner)(db).Lost(db.corrupt("file", errors.New("it is gone")))
		return byValue(obj)
	}
	if err := store.Indexer(s).AddIndexers(cache.Indexers{"losing": losing}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("AddIndexers = %v, want %v", err, store.ErrCorrupt)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}

	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	once := sync.OnceFunc(func() { (*owner)(db).Lost(db.corrupt("file", errors.New("it is gone"))) })
	opened, err := db.Open(s.scope, store.Options{Codec: c, Indexers: cache.Indexers{"value": func(obj any) ([]string, error) {
		once()
		return byValue(obj)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := listValued(opened.(*scopeStore), "5", func() {}, valued("b", "2")); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]int{"1": 0, "2": 1} {
		if found, err := store.Indexer(opened).ByIndex("value", value); err != nil || len(found) != want {
			t.Errorf("ByIndex of %s has %d objects, %v; want %d", value, len(found), err, want)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
