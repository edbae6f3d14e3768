package informer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// TestSmall checks that the warm start of a small collection without changes waits for no
// bookmark, and that handlers are told the same as of a large one.
func TestSmall(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		what   string
		prefix string // of the data of the object a
		while  func(w *world)
		want   []string
		waits  bool // for a bookmark
	}{
		{"nothing is changed", "", func(w *world) { w.server.Advance() }, nil, false},
		{
			"changes", "",
			func(w *world) {
				w.put("b", "2") // 5
				w.put("b", "3") // 6
				w.drop("c")     // 7
				w.put("d", "1") // 8
				w.put("e", "1") // 9
				w.drop("e")     // 10
			},
			[]string{"update b@3=1 b@5=2", "update b@5=2 b@6=3", "delete c@7=1", "initial d@8=1", "initial e@9=1", "delete e@10=1"},
			false,
		},
		{"too large", large, func(w *world) { w.server.Advance() }, nil, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.put("a", "1"+c.prefix) // 2
				w.put("b", "1")          // 3
				w.put("c", "1")          // 4
				w.run(informer.Options{}).sync().end()
				c.while(w)
				l := &log{}
				begun := time.Now()
				r := w.run(informer.Options{}, handle(w, l)).sync()
				if took := time.Since(begun); took > 0 != c.waits {
					t.Errorf("synced after %v", took)
				}
				waitFor(time.Minute)
				told := slices.DeleteFunc(l.take(), func(line string) bool {
					return strings.HasPrefix(line, "initial a") || line == "initial b@3=1" || line == "initial c@4=1"
				})
				// what the watch brings after the last difference is not initial
				for i := range told {
					told[i] = strings.Replace(told[i], "add ", "initial ", 1)
				}
				less := func(a, b string) bool { return a < b }
				if diff := cmp.Diff(c.want, told, cmpopts.EquateEmpty(), cmpopts.SortSlices(less)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				r.end()
				if _, cp := w.stored(w.path); cp.RV != w.server.RV() {
					t.Errorf("stored up to %q, the server is at %q", cp.RV, w.server.RV())
				}
			})
		})
	}
}

// TestSmallGhost checks that an object that was created and deleted while the process was
// down is not shown once the informer has synced, however slow the watch is.
func TestSmallGhost(t *testing.T) {
	inBubble(t, func(w *world) {
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		w.put("z", "1")
		w.put("b", "2")
		w.drop("z")
		w.server.Slow(time.Second)
		r := w.run(informer.Options{}).sync()
		w.sameAsServer(r.inf.GetStore().List())
		w.server.Slow(0)
		r.end()
	})
}

// TestSmallOfAnotherHistory checks a stored object that is not as the server has it,
// though it was not changed since: everything is listed again.
func TestSmallOfAnotherHistory(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 5 {
			w.put(fmt.Sprint("o", i), "1")
		}
		r := w.run(informer.Options{}).sync()
		scope, rv := r.inf.Scope(), r.inf.Status().Checkpoint.RV
		r.end()
		ghost := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "o2", UID: "other", ResourceVersion: "4"}}
		c, err := codec.For(ghost)
		if err != nil {
			t.Fatal(err)
		}
		db := w.open()
		s, err := db.Open(scope, store.Options{Codec: c})
		if err == nil {
			err = s.Apply(store.Batch{RV: rv, Changes: []store.Change{{Object: ghost}}})
		}
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		w.server.Advance()
		before := len(w.server.Requests())
		r = w.run(informer.Options{}).sync()
		if lists := w.lists(before); len(lists) != 1 {
			t.Errorf("lists: %q", lists)
		}
		w.sameAsServer(r.inf.GetStore().List())
		r.end()
	})
}

// TestSmallWithKinds checks a server whose lists have the kinds of objects, as those of
// custom resources do: client-go removes them from what a watch brings.
func TestSmallWithKinds(t *testing.T) {
	inBubble(t, func(w *world) {
		inner := cache.ToListerWatcherWithContext(w.server)
		w.lw = &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				list, err := inner.ListWithContext(ctx, opts)
				if err != nil {
					return nil, err
				}
				return list, meta.EachListItem(list, func(obj runtime.Object) error {
					obj.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
					return nil
				})
			},
			WatchFuncWithContext: inner.WatchWithContext,
		}
		w.put("a", "1")
		w.put("b", "1")
		w.run(informer.Options{}).sync().end()
		w.server.Advance()
		before, begun := len(w.server.Requests()), time.Now()
		r := w.run(informer.Options{}).sync()
		if lists := w.lists(before); len(lists) > 0 || time.Since(begun) > 0 {
			t.Errorf("synced after %v and the lists %q", time.Since(begun), lists)
		}
		r.end()
	})
}
