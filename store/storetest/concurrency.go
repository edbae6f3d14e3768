package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

var concurrencyCases = []testCase{
	{"ReadersAndWriters", testReadersAndWriters},
	{"BatchIsAtomic", testBatchIsAtomic},
	{"OneOpenWins", testOneOpenWins},
	{"CloseUnderReaders", testCloseUnderReaders},
}

// testReadersAndWriters runs writers with separate keys, so that their last states are
// known, and readers of everything.
func testReadersAndWriters(h *harness) {
	const writers, rounds = 4, 60
	var done atomic.Bool
	var reading, writing sync.WaitGroup
	for range 3 {
		reading.Go(func() {
			for !done.Load() {
				h.readEverything()
			}
		})
	}
	for w := range writers {
		writing.Go(func() { h.writeRounds(w, rounds) })
	}
	writing.Go(func() {
		for i := range 5 {
			name := fmt.Sprintf("late-%d", i)
			if err := h.AddIndexers(cache.Indexers{name: length}); err != nil {
				h.Errorf("AddIndexers: %v", err)
			}
			if err := h.Flush(h.Context()); err != nil {
				h.Errorf("Flush: %v", err)
			}
		}
	})
	writing.Wait()
	done.Store(true)
	reading.Wait()

	var want []runtime.Object
	for w := range writers {
		want = append(want, configMap(fmt.Sprintf("w%d/added", w), fmt.Sprint(rounds-1), "red"),
			configMap(fmt.Sprintf("w%d/batched", w), fmt.Sprint(rounds-1), "blue green"))
	}
	h.reopen() // without the late indexes
	h.wantObjects(want...)
}

func (h *harness) writeRounds(w, rounds int) {
	for i := range rounds {
		rv := fmt.Sprint(i)
		errs := []error{
			h.Add(configMap(fmt.Sprintf("w%d/added", w), rv, "red")),
			h.Add(configMap(fmt.Sprintf("w%d/deleted", w), rv, "red")),
		}
		b := store.Batch{RV: rv, Changes: []store.Change{
			{Key: fmt.Sprintf("w%d/deleted", w)}, put(configMap(fmt.Sprintf("w%d/batched", w), rv, "blue green")),
		}}
		errs = append(errs, h.Prepare(&b), h.Apply(b))
		if err := errors.Join(errs...); err != nil {
			h.Errorf("writer %d, round %d: %v", w, i, err)
			return
		}
	}
}

// readEverything calls every reading method and reports results that are impossible at
// any moment.
func (h *harness) readEverything() {
	var errs []error
	for _, obj := range h.List() {
		_, ok := obj.(*corev1.ConfigMap)
		if !ok {
			h.Errorf("List has a %T", obj)
		}
	}
	_, _, err := h.GetByKey("w1/batched")
	errs = append(errs, err)
	objects, err := h.ByIndex("words", "green")
	errs = append(errs, err)
	for _, obj := range objects {
		if got := obj.(*corev1.ConfigMap).Data["words"]; got != "blue green" {
			h.Errorf("ByIndex(words, green) has an object with %q", got)
		}
	}
	_, err = h.IndexKeys("words", "red")
	errs = append(errs, err)
	_, err = h.Index("words", configMap("a/x", "", "red blue"))
	errs = append(errs, err)
	for _, err := range h.All() {
		errs = append(errs, err)
	}
	for _, err := range store.HeadersOfAll(h) {
		errs = append(errs, err)
	}
	_, err = h.Select(store.Query{After: "w1/", Limit: 3})
	errs = append(errs, err)
	_, err = h.Select(store.Query{Namespace: "w1", Selector: labels.SelectorFromSet(labels.Set{"app": "red"})})
	errs = append(errs, err)
	_, _, err = h.Entry("w2/added")
	errs = append(errs, err, h.Err())
	_, _, _, _, _ = h.ListKeys(), h.Len(), h.GetIndexers(), h.Checkpoint(), h.LastStoreSyncResourceVersion()
	h.ListIndexFuncValues("words")
	if _, err := h.db.Scopes(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		h.Errorf("reader: %v", err)
	}
}

// testBatchIsAtomic checks that a reader sees all of a batch or nothing of it.
func testBatchIsAtomic(h *harness) {
	const objects, rounds = 40, 50
	h.fill("0", many(objects, "0", "round-0"))
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				h.wantOneRound(objects)
			}
		})
	}
	for i := 1; i <= rounds; i++ {
		h.fill(fmt.Sprint(i), many(objects, fmt.Sprint(i), fmt.Sprintf("round-%d", i)))
		if i%10 == 0 {
			must(h, h.Flush(h.Context()))
		}
	}
	done.Store(true)
	readers.Wait()
	h.wantObjects(many(objects, fmt.Sprint(rounds), fmt.Sprintf("round-%d", rounds))...)
}

// wantOneRound reports a list or an index value that contains a part of a batch.
func (h *harness) wantOneRound(objects int) {
	seen := map[string]int{}
	for _, obj := range h.List() {
		seen[obj.(*corev1.ConfigMap).Data["words"]]++
	}
	if len(seen) != 1 {
		h.Errorf("List has objects of several batches: %v", seen)
	}
	for round := range seen {
		got, err := h.ByIndex("words", round)
		if err != nil || (len(got) != 0 && len(got) != objects) {
			h.Errorf("ByIndex has %d of %d objects of a batch, %v", len(got), objects, err)
		}
		for _, by := range []store.Query{{Namespace: "many"}, {Index: "namespace", Values: []string{"many"}}, {}} {
			by.Selector = labels.SelectorFromSet(labels.Set{"app": round})
			entries, err := h.Select(by)
			if err != nil || (len(entries) != 0 && len(entries) != objects) {
				h.Errorf("Select has %d of %d objects of a batch, %v", len(entries), objects, err)
			}
			decoded, err := store.DecodeAll[*corev1.ConfigMap](h, entries)
			if err != nil {
				h.Errorf("DecodeAll: %v", err)
			}
			for _, cm := range decoded {
				if cm.Labels["app"] != round {
					h.Errorf("Select of %s has an object of %s", round, cm.Labels["app"])
				}
			}
		}
	}
	if values := h.ListIndexFuncValues("words"); len(values) != 1 {
		h.Errorf("ListIndexFuncValues = %q, want the value of one batch", values)
	}
}

func testOneOpenWins(h *harness) {
	must(h, h.Close())
	var wg sync.WaitGroup
	stores := make(chan store.Store, 8)
	for range cap(stores) {
		wg.Go(func() {
			s, err := h.db.Open(h.scope, h.opts)
			if err == nil {
				stores <- s
			} else if !errors.Is(err, store.ErrInUse) {
				h.Errorf("Open: got error %v, want %v", err, store.ErrInUse)
			}
		})
	}
	wg.Wait()
	if len(stores) != 1 {
		h.Fatalf("%d of %d stores hold the scope, want one", len(stores), cap(stores))
	}
	h.indexed = indexer(<-stores)
}

// testCloseUnderReaders checks that readers get objects or ErrClosed, and that Close
// returns.
func testCloseUnderReaders(h *harness) {
	h.fill("1", many(300, "1", "red"))
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				for _, err := range h.All() {
					if err != nil {
						wantIs(h, "All", err, store.ErrClosed)
						return
					}
				}
				h.List()
				if _, err := h.ByIndex("words", "red"); err != nil {
					wantIs(h, "ByIndex", err, store.ErrClosed)
					return
				}
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for i := 0; ; i++ {
				if err := h.Add(configMap("a/one", fmt.Sprint(i), "red")); err != nil {
					wantIs(h, "Add", err, store.ErrClosed)
					return
				}
			}
		})
	}
	must(h, h.Close())
	must(h, h.db.Close())
	readers.Wait()
}
