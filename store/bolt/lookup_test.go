package bolt

import (
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

// TestIndexOfClosedStore checks that the indexer of a closed store computes values with
// the functions of the store that was opened after it, whose index it reads.
func TestIndexOfClosedStore(t *testing.T) {
	db, s := openValued(t, filepath.Join(t.TempDir(), "informers.db"), 0)
	closed := store.Indexer(s)
	if err := closed.Replace([]any{valued("a", "1")}, "10"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Open(s.scope, store.Options{Codec: s.opts.Codec, Indexers: cache.Indexers{"other": byValue}}); err != nil {
		t.Fatal(err)
	}
	if objects, err := closed.Index("other", valued("b", "1")); err != nil || len(objects) != 1 {
		t.Errorf("Index = %d objects, %v, want 1", len(objects), err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
