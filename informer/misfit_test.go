package informer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store/mem"
)

// TestObjectOfAnotherShape checks that an object which the path of an index does not fit
// is stored without a value, as every object that anybody may create, and that the next
// start is warm.
func TestObjectOfAnotherShape(t *testing.T) {
	for _, persisted := range []bool{true, false} {
		inBubble(t, func(w *world) {
			idx, err := index.Field(`data[?(@>"1")].x`)
			if err != nil {
				t.Fatal(err)
			}
			opts := informer.Options{Indexes: []index.Index{idx}}
			if !persisted {
				opts.Backend = mem.New()
			}
			w.put("listed", "1")
			r := w.run(opts).sync()
			w.put("pushed", "2")
			waitFor(time.Minute)
			st := r.inf.Status()
			if len(st.Rejected) > 0 || st.Checkpoint.RV != w.server.RV() || st.Objects != 2 {
				w.Errorf("rejected %q, checkpoint %+v, %d objects", st.Rejected, st.Checkpoint, st.Objects)
			}
			values := r.inf.GetIndexer().ListIndexFuncValues(idx.Name)
			if keys := r.inf.GetStore().ListKeys(); len(values) > 0 || !slices.Equal(keys, []string{"default/listed", "default/pushed"}) {
				w.Errorf("values %q, keys %q", values, keys)
			}
			r.end()
			if !persisted {
				return
			}
			r = w.run(opts).sync()
			if st := r.inf.Status(); st.Start != "resumed" {
				w.Errorf("the next start: %s, because %q", st.Start, st.StartReason)
			}
			r.end()
		})
	}
}
