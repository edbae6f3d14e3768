package bolt

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	bbolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt/internal/layout"
)

// TestBeforeIsEnough checks how many transactions a batch needs to know what it replaces:
// one, and none if all of it is decoded. A Before of another moment, of another store or
// of other keys is looked up again.
func TestBeforeIsEnough(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.db")
	w := openBounded(t, path, 0, "", store.Options{DecodedBytes: 1})
	w.list(60, "")
	w.must(w.s.Flush(t.Context()))
	object := func(name, text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "900"}, Data: map[string]string{"text": text}}
	}
	keys, err := w.s.Keys(store.Query{})
	w.must(err)
	reads := func() int { return w.db.file.Handle().Stats().TxN }
	apply := func(b store.Batch, before store.Before) {
		t.Helper()
		b.Before = before
		w.must(w.s.Prepare(&b))
		w.must(w.s.Apply(b))
	}
	before := func(keys ...string) store.Before {
		t.Helper()
		b, err := w.s.Before(keys)
		w.must(err)
		return b
	}
	put := func(key, text string) store.Batch {
		return store.Batch{RV: "900", Changes: []store.Change{{Key: key, Object: object(key, text)}}}
	}

	other := openIn(t, w.db, "n", store.Options{})
	other.list(60, "")
	ofOther, err := other.s.Before([]string{"new-0"})
	w.must(err)

	began := reads()
	known := before(keys[0], keys[1], "new-0", "new-1", "new-2", "new-3")
	apply(put(keys[0], "changed"), known)
	if n := reads() - began; n != 1 || len(known.Held) != 2 {
		t.Errorf("Before and Apply took %d transactions for %d objects, want 1 for 2", n, len(known.Held))
	}
	for i, b := range []store.Before{ofOther, known, before(keys[5]), {}} {
		began, held := reads(), w.s.Len()
		apply(put(fmt.Sprintf("new-%d", i), "x"), b)
		if n := reads() - began; n != 1 || w.s.Len() != held+1 {
			t.Errorf("Before %d: %d transactions, and %d objects of %d and a new one", i, n, w.s.Len(), held)
		}
	}
}

// TestBeforeOfLostHeader checks that an object whose header a damaged page has lost is
// found, and its record, and that its damage is said.
func TestBeforeOfLostHeader(t *testing.T) {
	w := openBounded(t, filepath.Join(t.TempDir(), "i.db"), 0, "", store.Options{DecodedBytes: 1})
	w.list(60, "")
	keys, err := w.s.Keys(store.Query{})
	w.must(err)
	w.must(w.db.file.Update(t.Context(), "test", func(tx *bbolt.Tx) error {
		return w.s.bucketIn(tx).Bucket(layout.Headers).Delete([]byte(keys[3]))
	}))
	b, err := w.s.Before(keys[2:4])
	w.must(err)
	if held := b.Held[keys[2]]; held.Err != nil || held.UID != "u" {
		t.Errorf("an object that is well: %+v", held)
	}
	if held := b.Held[keys[3]]; !errors.Is(held.Err, store.ErrCorrupt) || held.Entry.Raw == nil {
		t.Errorf("an object without a header: %+v", held)
	}
}
