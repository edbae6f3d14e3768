package informer_test

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

// TestTransformLeavesGoValues checks a transform that puts values into unstructured
// objects which no JSON is decoded to: handlers, readers and the next process see what
// JSON could hold, and the next start is warm. A value without a JSON form is reported by
// the key of its object.
func TestTransformLeavesGoValues(t *testing.T) {
	type text string
	shared := map[string]any{"n": 1} // what the transform holds is not changed
	cyclic := map[string]any{}
	cyclic["x"] = cyclic
	put := map[string]any{
		"int": int(1), "int8": int8(-1), "uint64": uint64(1), "large": uint64(math.MaxUint64), "float32": float32(1.5),
		"number": json.Number("1"), "text": text("a"), "list": []string{"a"}, "map": map[string]string{"a": "b"},
		"numbers": map[string]int64{"a": 1}, "objects": []map[string]any{{"a": 1}}, "nested": []any{map[string]any{"a": []int{1}}},
		"time": metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "nil": []string(nil), "shared": shared, "bytes": []byte("a"),
		"int64": int64(1), "float64": float64(1), "plain": []any{nil, true},
	}
	want := map[string]any{
		"int": int64(1), "int8": int64(-1), "uint64": int64(1), "large": float64(math.MaxUint64), "float32": 1.5,
		"number": int64(1), "text": "a", "list": []any{"a"}, "map": map[string]any{"a": "b"},
		"numbers": map[string]any{"a": int64(1)}, "objects": []any{map[string]any{"a": int64(1)}}, "nested": []any{map[string]any{"a": []any{int64(1)}}},
		"time": "2026-01-01T00:00:00Z", "nil": nil, "shared": map[string]any{"n": int64(1)}, "bytes": "YQ==",
		"int64": int64(1), "float64": float64(1), "plain": []any{nil, true},
	}
	thing := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"namespace": "default", "name": name},
		}}
	}
	inBubble(t, func(w *world) {
		things := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "ThingList"}}
		server := fakeapi.New(thing(""), things, fakeapi.Options{})
		create := func(name string) {
			w.Helper()
			if _, err := server.Create(thing(name)); err != nil {
				w.Fatal(err)
			}
		}
		life := func(then func(inf *informer.Informer)) {
			w.Helper()
			db := w.open()
			inf, err := informer.New(server, thing(""), informer.Options{Backend: db, TransformVersion: "1", Scope: store.Scope{Resource: "things"}})
			if err != nil {
				w.Fatal(err)
			}
			if err := inf.SetTransform(func(obj any) (any, error) {
				u := obj.(*unstructured.Unstructured)
				switch u.GetName() {
				case "chan":
					u.Object["x"] = make(chan int)
				case "cyclic":
					u.Object["x"] = cyclic
				default:
					u.Object["x"] = put
				}
				return u, nil
			}); err != nil {
				w.Fatal(err)
			}
			check := func(obj any) {
				if diff := cmp.Diff(want, obj.(*unstructured.Unstructured).Object["x"]); diff != "" {
					w.Errorf("(-want +got):\n%s", diff)
				}
			}
			if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: check}); err != nil {
				w.Fatal(err)
			}
			if err := inf.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
				w.Fatal(err)
			}
			r := &run{w: w, db: db, inf: inf, done: make(chan struct{})}
			r.start()
			r.sync()
			then(inf)
			for _, obj := range inf.GetStore().List() {
				check(obj)
			}
			r.end()
		}
		create("listed")
		life(func(inf *informer.Informer) {
			create("pushed")
			waitFor(time.Minute)
			if st := inf.Status(); len(st.Rejected) > 0 || st.Objects != 2 || st.Checkpoint.RV != server.RV() {
				w.Errorf("rejected %q, %d objects, checkpoint %+v", st.Rejected, st.Objects, st.Checkpoint)
			}
		})
		life(func(inf *informer.Informer) {
			if st := inf.Status(); st.Start != "resumed" || st.Objects != 2 {
				w.Errorf("start %q, because %q, with %d objects", st.Start, st.StartReason, st.Objects)
			}
			create("chan")
			create("cyclic")
			waitFor(5 * time.Minute)
			if st := inf.Status(); !slices.Equal(st.Rejected, []string{"default/chan", "default/cyclic"}) || st.Objects != 2 {
				w.Errorf("rejected %q, %d objects", st.Rejected, st.Objects)
			}
		})
	})
	if diff := cmp.Diff(map[string]any{"n": 1}, shared); diff != "" {
		t.Errorf("what the transform holds was changed (-want +got):\n%s", diff)
	}
}
