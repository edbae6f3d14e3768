package bolt

import (
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

// changing is a codec in whose decoding something else happens.
type changing struct {
	codec.Codec
	once   sync.Once
	change func()
	done   bool
}

func (c *changing) Decode(b []byte) (runtime.Object, error) {
	if c.change != nil {
		c.once.Do(func() { c.change(); c.done = true })
	}
	return c.Codec.Decode(b)
}

// TestLentIsKept checks that an object that a reader holds is kept, where every object is
// kept decoded: the next list is answered from memory.
func TestLentIsKept(t *testing.T) {
	inner, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	c := &changing{Codec: inner}
	opts := store.Options{Codec: c, DecodedBytes: -1}
	w := openBounded(t, filepath.Join(t.TempDir(), "informers.db"), 0, "", opts)
	w.list(2000, randomText(500))
	w.must(w.s.Close())
	w = openIn(t, w.db, "", opts) // a warm start
	w.rv = 5000
	c.change = func() {
		w.must(w.s.Apply(store.Batch{RV: "5001", Changes: []store.Change{{Object: w.object(7, "new")}}}))
	}
	held, err := w.s.Objects(store.Query{}) // as lister.List does
	w.must(err)
	for range 3 {
		next, err := w.s.Objects(store.Query{})
		w.must(err)
		held = next
	}
	if !c.done {
		t.Error("nothing has changed while it was decoded")
	}
	if _, ok := (memory{w.s}).all(); !ok || len(held) != 2000 {
		t.Errorf("of %d objects not all are kept decoded: no list is answered from memory", len(held))
	}
}
