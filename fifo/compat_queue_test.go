package fifo_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/fifo"
)

func TestReplaceFindsMissingObjects(t *testing.T) {
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	must(t, known.Add(object("known", "1")))
	must(t, known.Add(object("listed", "1")))
	must(t, known.Add(object("waiting", "1")))
	q := fifo.New(fifo.Options{KnownObjects: known})
	push(t, q, cache.Updated, "waiting", "2", "")
	must(t, q.Replace([]any{object("listed", "3")}, "3"))
	want := []string{"waiting: Updated waiting2 Deleted waiting2?, listed: Replaced listed3, known: Deleted known1?, @3"}
	if diff := cmp.Diff(want, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Without known objects the queue remembers the last objects itself.
	q = fifo.New(fifo.Options{})
	must(t, q.Replace([]any{object("a", "1"), object("b", "2")}, "2"))
	must(t, q.Update(object("b", "3")))
	must(t, q.Delete(object("a", "4")))
	popAll(t, q)
	must(t, q.Replace([]any{object("c", "5")}, "5"))
	if diff := cmp.Diff([]string{"c: Replaced c5, b: Deleted b3?, @5"}, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// It does not remember pushed objects, so Replace returns an error.
	push(t, q, cache.Added, "d", "6", "6")
	if err := q.Replace(nil, "7"); !errors.Is(err, fifo.ErrKnownObjects) {
		t.Errorf("Replace after Push: got error %v", err)
	}
	if err := q.Resync(); !errors.Is(err, fifo.ErrKnownObjects) {
		t.Errorf("Resync after Push: got error %v", err)
	}
}

// TestReplaceSeesWhatIsBeingProcessed checks that Replace includes an object that is
// being processed and that the known objects do not include yet.
func TestReplaceSeesWhatIsBeingProcessed(t *testing.T) {
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	q := fifo.New(fifo.Options{KnownObjects: known})
	push(t, q, cache.Added, "a", "1", "1")
	must(t, q.PopBatch(t.Context(), func(fifo.Batch) error { return q.Replace(nil, "2") }))
	if diff := cmp.Diff([]string{"a: Deleted a1?, @2"}, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReplaceAddsNothingOnAnError(t *testing.T) {
	q := fifo.New(fifo.Options{})
	err := q.Replace([]any{object("a", "1"), 7}, "1")
	var keyError *fifo.KeyError
	if !errors.As(err, &keyError) || q.Len() != 0 || q.HasSynced() {
		t.Errorf("got error %v, Len %d, HasSynced %t", err, q.Len(), q.HasSynced())
	}
}

func TestDeleteOfUnknownIsSkipped(t *testing.T) {
	for _, known := range []cache.KeyListerGetter{nil, cache.NewStore(cache.MetaNamespaceKeyFunc)} {
		q := fifo.New(fifo.Options{KnownObjects: known})
		must(t, q.Delete(object("a", "1")))
		if got := q.Len(); got != 0 {
			t.Errorf("Len %d", got)
		}
	}
}

func TestResyncYieldsToNewerDeltas(t *testing.T) {
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	q := fifo.New(fifo.Options{KnownObjects: known})
	for _, name := range []string{"a", "b", "c"} {
		must(t, known.Add(object(name, "1")))
	}
	push(t, q, cache.Updated, "c", "2", "")
	must(t, q.PopBatch(t.Context(), func(fifo.Batch) error {
		push(t, q, cache.Updated, "a", "3", "")
		return q.Resync()
	}))
	want := []string{"a: Updated a3, b: Sync b1, @"}
	if diff := cmp.Diff(want, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestHasSynced(t *testing.T) {
	q := fifo.New(fifo.Options{})
	if q.HasSynced() {
		t.Error("a new queue has synced")
	}
	must(t, q.Replace([]any{object("a", "1"), object("b", "2")}, "2"))
	must(t, q.Add(object("c", "3")))
	for i := range 3 {
		_, err := q.Pop(func(_ any, initial bool) error {
			if initial != (i < 2) || q.HasSynced() == initial {
				t.Errorf("delta %d: isInInitialList %t, HasSynced %t", i, initial, q.HasSynced())
			}
			return nil
		})
		must(t, err)
	}
	<-q.HasSyncedChecker().Done()

	q = fifo.New(fifo.Options{})
	must(t, q.Replace(nil, "1"))
	if !q.HasSynced() {
		t.Error("an empty Replace has not synced")
	}
}

// deltaQueue is a queue whose consumer is a store.
type deltaQueue struct {
	cache.Queue
	known cache.Store
	len   func() int
}

func (q deltaQueue) pop(t *rapid.T) string {
	var got string
	if _, err := q.Pop(func(obj any, initial bool) error {
		deltas := obj.(cache.Deltas)
		got = fmt.Sprintf("%s %t", show(deltas), initial)
		for _, d := range deltas {
			if d.Type == cache.Deleted {
				key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(d.Object)
				if err != nil {
					return err
				}
				if err := q.known.Delete(cache.ExplicitKey(key)); err != nil {
					return err
				}
			} else if err := q.known.Update(d.Object); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s synced=%t", got, q.HasSynced())
}

func explicitKeyFunc(obj any) (string, error) {
	if key, ok := obj.(cache.ExplicitKey); ok {
		return string(key), nil
	}
	return cache.MetaNamespaceKeyFunc(obj)
}

// TestAgreesWithDeltaFIFO checks that this queue and DeltaFIFO agree for a single object:
// it has only one order.
func TestAgreesWithDeltaFIFO(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		theirKnown, ourKnown := cache.NewStore(explicitKeyFunc), cache.NewStore(explicitKeyFunc)
		theirs := deltaQueue{Queue: cache.NewDeltaFIFOWithOptions(cache.DeltaFIFOOptions{
			KnownObjects: theirKnown, EmitDeltaTypeReplaced: true,
		}), known: theirKnown}
		queue := fifo.New(fifo.Options{KnownObjects: ourKnown})
		ours := deltaQueue{Queue: queue, known: ourKnown, len: queue.Len}
		for i := range rapid.IntRange(1, 40).Draw(t, "length") {
			obj := object("a", fmt.Sprint(i))
			op := rapid.SampledFrom([]string{"add", "update", "delete", "tombstone", "replace", "empty", "resync", "pop"}).Draw(t, "op")
			for _, q := range []deltaQueue{theirs, ours} {
				var err error
				switch op {
				case "add":
					err = q.Add(obj)
				case "update":
					err = q.Update(obj)
				case "delete":
					err = q.Delete(obj)
				case "tombstone":
					err = q.Delete(cache.DeletedFinalStateUnknown{Key: "a", Obj: obj})
				case "replace":
					err = q.Replace([]any{obj}, "1")
				case "empty":
					err = q.Replace(nil, "")
				case "resync":
					err = q.Resync()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if theirs.HasSynced() != ours.HasSynced() {
				t.Fatalf("HasSynced: DeltaFIFO %t, ours %t", theirs.HasSynced(), ours.HasSynced())
			}
			if op == "pop" && ours.len() > 0 {
				if diff := cmp.Diff(theirs.pop(t), ours.pop(t)); diff != "" {
					t.Fatalf("Pop (-DeltaFIFO +ours):\n%s", diff)
				}
			}
		}
		theirs.Close()
		if _, err := theirs.Pop(func(any, bool) error { return nil }); (err != nil) != (ours.len() == 0) {
			t.Fatalf("DeltaFIFO at the end: %v, ours has %d", err, ours.len())
		}
	})
}

// TestStateAtRV checks invariants 1 to 3 with random streams: the state of a consumer
// after each batch is exactly the state at its RV.
func TestStateAtRV(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := fifo.New(fifo.Options{MaxBatch: rapid.IntRange(1, 5).Draw(rt, "MaxBatch"), Capacity: 1000})
		server, client := map[string]string{}, map[string]string{}
		at := map[string]map[string]string{"": {}} // state by RV
		input, output := map[string]cache.Deltas{}, map[string]cache.Deltas{}
		consume := func(key string, deltas cache.Deltas) {
			output[key] = append(output[key], deltas...)
			apply(client, key, *deltas.Newest())
		}
		step := func(op string, i int) {
			rv := fmt.Sprint(i)
			switch {
			case op == "bookmark":
				if err := q.Bookmark(t.Context(), rv); err != nil {
					rt.Fatal(err)
				}
			case op == "batch" && q.Len() > 0:
				if err := q.PopBatch(t.Context(), func(b fifo.Batch) error {
					for _, c := range b.Changes() {
						consume(c.Key, c.Deltas)
					}
					if diff := cmp.Diff(at[b.RV], client); diff != "" {
						rt.Fatalf("state at %q (-want +got):\n%s", b.RV, diff)
					}
					return nil
				}); err != nil {
					rt.Fatal(err)
				}
			case op != "batch":
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
				d := cache.Delta{Type: cache.DeltaType(op), Object: object(key, rv)}
				if err := q.Push(t.Context(), d.Type, d.Object, rv); err != nil {
					rt.Fatal(err)
				}
				input[key] = append(input[key], d)
				apply(server, key, d)
			}
			at[rv] = maps.Clone(server)
		}
		ops := []string{"Added", "Updated", "Deleted", "Replaced", "Sync", "bookmark", "batch", "batch"}
		n := rapid.IntRange(1, 60).Draw(rt, "length")
		for i := range n {
			step(rapid.SampledFrom(ops).Draw(rt, "op"), i)
		}
		for ; q.Len() > 0; n++ {
			step("batch", n)
		}
		if diff := cmp.Diff(foldAll(input), foldAll(output)); diff != "" {
			rt.Fatalf("deltas by key (-in +out):\n%s", diff)
		}
	})
}

// TestAnyMixKeepsOrder checks that with any mix of producer and consumer calls the deltas
// of each object come in order and end in the producer's state.
func TestAnyMixKeepsOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		capacity := rapid.IntRange(1, 6).Draw(rt, "Capacity")
		known := cache.NewStore(explicitKeyFunc)
		q := fifo.New(fifo.Options{
			MaxBatch: rapid.IntRange(1, 5).Draw(rt, "MaxBatch"), Capacity: capacity, KnownObjects: known,
		})
		server := map[string]string{}
		last := map[string]int{}
		consume := func(key string, deltas cache.Deltas) {
			for _, d := range deltas {
				if m, ok := d.Object.(*metav1.PartialObjectMetadata); ok {
					var version int
					if _, err := fmt.Sscan(m.ResourceVersion, &version); err != nil {
						rt.Fatal(err)
					}
					if version < last[key] {
						rt.Fatalf("%s: version %d after %d", key, version, last[key])
					}
					last[key] = version
				}
			}
			var err error
			if d := deltas.Newest(); d.Type == cache.Deleted {
				err = known.Delete(cache.ExplicitKey(key))
			} else {
				err = known.Update(d.Object)
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		popBatch := func() error {
			return q.PopBatch(t.Context(), func(b fifo.Batch) error {
				for _, c := range b.Changes() {
					consume(c.Key, c.Deltas)
				}
				return nil
			})
		}
		for i := range rapid.IntRange(1, 60).Draw(rt, "length") {
			op := rapid.SampledFrom([]string{"push", "add", "delete", "replace", "pop", "batch", "batch"}).Draw(rt, "op")
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
			obj := object(key, fmt.Sprint(i+1))
			empty, full := q.Len() == 0, q.Len() >= capacity
			var err error
			switch {
			case op == "batch" && !empty:
				err = popBatch()
			case op == "pop" && !empty:
				_, err = q.Pop(func(deltas any, _ bool) error {
					key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(deltas.(cache.Deltas).Newest().Object)
					consume(key, deltas.(cache.Deltas))
					return err
				})
			case op == "batch" || op == "pop" || full:
			case op == "push":
				err = q.Push(t.Context(), cache.Updated, obj, "")
				server[key] = obj.ResourceVersion
			case op == "add":
				err = q.Add(obj)
				server[key] = obj.ResourceVersion
			case op == "delete":
				err = q.Delete(obj)
				delete(server, key)
			case op == "replace":
				err = q.Replace([]any{obj}, "")
				server = map[string]string{key: obj.ResourceVersion}
			}
			if err != nil {
				rt.Fatal(err)
			}
			if n := q.Len(); n > capacity && op != "replace" && !full {
				rt.Fatalf("Len %d after %s, capacity %d", n, op, capacity)
			}
		}
		for q.Len() > 0 {
			if err := popBatch(); err != nil {
				rt.Fatal(err)
			}
		}
		got := map[string]string{}
		for _, obj := range known.List() {
			m := obj.(*metav1.PartialObjectMetadata)
			got[m.Name] = m.ResourceVersion
		}
		if diff := cmp.Diff(server, got); diff != "" {
			rt.Fatalf("state at the end (-want +got):\n%s", diff)
		}
	})
}

func apply(state map[string]string, key string, d cache.Delta) {
	if d.Type == cache.Deleted {
		delete(state, key)
	} else {
		state[key] = d.Object.(*metav1.PartialObjectMetadata).ResourceVersion
	}
}

// foldAll returns the deltas of each key, with successive deletions reduced to the first.
func foldAll(deltas map[string]cache.Deltas) map[string]string {
	folded := map[string]string{}
	for key, list := range deltas {
		var kept cache.Deltas
		for _, d := range list {
			if n := kept.Newest(); n == nil || n.Type != cache.Deleted || d.Type != cache.Deleted {
				kept = append(kept, d)
			}
		}
		folded[key] = show(kept)
	}
	return folded
}

func TestStockReflectorFeedsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := watch.NewFakeWithOptions(watch.FakeOptions{})
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "2"}}
				list.Items = []metav1.PartialObjectMetadata{*object("a", "1"), *object("b", "2")}
				return list, nil
			},
			WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				if opts.SendInitialEvents != nil {
					return nil, errors.New("no watch lists here")
				}
				return events, nil
			},
		}
		known := cache.NewStore(explicitKeyFunc)
		q := fifo.New(fifo.Options{KnownObjects: known})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			cache.NewReflectorWithOptions(lw, &metav1.PartialObjectMetadata{}, q, cache.ReflectorOptions{}).RunWithContext(ctx)
		}()
		synctest.Wait()
		events.Modify(object("a", "3"))
		events.Add(object("c", "4"))
		events.Delete(object("a", "5"))
		synctest.Wait()
		got := popAll(t, q)
		slices.Sort(got[:2])
		want := []string{
			"Replaced a1 true", "Replaced b2 true", "Updated a3 false", "Added c4 false", "Deleted a5 false",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		cancel()
		<-done
	})
}
