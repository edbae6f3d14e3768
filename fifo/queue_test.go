package fifo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/fifo"
)

func object(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// show formats deltas as "Added a1 Deleted a?", where ? is a tombstone.
func show(deltas cache.Deltas) string {
	var parts []string
	for _, d := range deltas {
		obj, mark := d.Object, ""
		if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj, mark = tombstone.Obj, "?"
		}
		m, ok := obj.(*metav1.PartialObjectMetadata)
		if !ok {
			m = object("nil", "")
		}
		parts = append(parts, fmt.Sprintf("%s %s%s%s", d.Type, m.Name, m.ResourceVersion, mark))
	}
	return strings.Join(parts, " ")
}

func showBatch(b fifo.Batch) string {
	var parts []string
	for _, c := range b.Changes() {
		parts = append(parts, c.Key+": "+show(c.Deltas))
	}
	return strings.Join(append(parts, "@"+b.RV), ", ")
}

// popBatches empties the queue with PopBatch.
func popBatches(t *testing.T, q *fifo.Queue) []string {
	t.Helper()
	var got []string
	for q.Len() > 0 {
		if err := q.PopBatch(t.Context(), func(b fifo.Batch) error {
			got = append(got, showBatch(b))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// popAll empties the queue with Pop. It blocks if the queue contains only bookmarks.
func popAll(t *testing.T, q *fifo.Queue) []string {
	t.Helper()
	var got []string
	for q.Len() > 0 {
		if _, err := q.Pop(func(obj any, initial bool) error {
			got = append(got, fmt.Sprintf("%s %t", show(obj.(cache.Deltas)), initial))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func push(t *testing.T, q *fifo.Queue, dt cache.DeltaType, name, version, rv string) {
	t.Helper()
	if err := q.Push(t.Context(), dt, object(name, version), rv); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRVNeverLeads checks invariant 3: A@5 B@7 A@9 never gives 9 before B is handed out.
func TestRVNeverLeads(t *testing.T) {
	for maxBatch, want := range map[int][]string{
		1: {"a: Added a5, @5", "b: Added b7, @7", "a: Updated a9, @9"},
		2: {"a: Added a5, b: Added b7, @7", "a: Updated a9, @9"},
		3: {"a: Added a5 Updated a9, b: Added b7, @9"},
	} {
		q := fifo.New(fifo.Options{MaxBatch: maxBatch})
		push(t, q, cache.Added, "a", "5", "5")
		push(t, q, cache.Added, "b", "7", "7")
		push(t, q, cache.Updated, "a", "9", "9")
		if diff := cmp.Diff(want, popBatches(t, q)); diff != "" {
			t.Errorf("MaxBatch %d (-want +got):\n%s", maxBatch, diff)
		}
	}
}

func TestPopKeepsOrderAcrossObjects(t *testing.T) {
	q := fifo.New(fifo.Options{})
	push(t, q, cache.Added, "a", "1", "1")
	push(t, q, cache.Updated, "a", "2", "2")
	push(t, q, cache.Added, "b", "3", "3")
	push(t, q, cache.Updated, "a", "4", "4")
	want := []string{"Added a1 Updated a2 false", "Added b3 false", "Updated a4 false"}
	if diff := cmp.Diff(want, popAll(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBookmark(t *testing.T) {
	q := fifo.New(fifo.Options{Capacity: 1})
	for _, rv := range []string{"1", "", "2"} {
		must(t, q.Bookmark(t.Context(), rv))
	}
	if got := q.Len(); got != 1 {
		t.Errorf("two bookmarks in a row: Len %d", got)
	}
	if diff := cmp.Diff([]string{"@2"}, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	push(t, q, cache.Added, "a", "3", "")
	for _, rv := range []string{"4", "5"} { // fits, though the queue is full
		must(t, q.Bookmark(t.Context(), rv))
	}
	if diff := cmp.Diff([]string{"a: Added a3, @5"}, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// While a batch is being processed, a bookmark belongs to none of its deltas.
	push(t, q, cache.Added, "b", "6", "6")
	must(t, q.PopBatch(t.Context(), func(fifo.Batch) error { return q.Bookmark(t.Context(), "7") }))
	if diff := cmp.Diff([]string{"@7"}, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// Pop drops bookmarks, and then a producer that waits for room continues.
	synctest.Test(t, func(t *testing.T) {
		q := fifo.New(fifo.Options{Capacity: 1})
		must(t, q.Bookmark(t.Context(), "8"))
		go func() {
			if err := q.Add(object("c", "9")); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if diff := cmp.Diff([]string{"Added c9 false"}, popAll(t, q)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestDeletionsFold(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "a", Obj: object("a", "1")}
	tests := []struct {
		first, second any
		want          string
	}{
		{object("a", "1"), object("a", "2"), "Deleted a1"},
		{object("a", "2"), tombstone, "Deleted a2"},
		{tombstone, object("a", "2"), "Deleted a2"},
	}
	for _, test := range tests {
		q := fifo.New(fifo.Options{})
		must(t, q.Push(t.Context(), cache.Deleted, test.first, "3"))
		push(t, q, cache.Added, "b", "4", "4")
		must(t, q.Push(t.Context(), cache.Deleted, test.second, "5"))
		want := []string{"a: " + test.want + ", b: Added b4, @5"}
		if diff := cmp.Diff(want, popBatches(t, q)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestFullQueueWaits(t *testing.T) {
	adds := map[string]func(context.Context, *fifo.Queue) error{
		"Push": func(ctx context.Context, q *fifo.Queue) error {
			return q.Push(ctx, cache.Added, object("b", "2"), "2")
		},
		"Add":     func(_ context.Context, q *fifo.Queue) error { return q.Add(object("b", "2")) },
		"Replace": func(_ context.Context, q *fifo.Queue) error { return q.Replace([]any{object("b", "2")}, "2") },
		"Resync":  func(_ context.Context, q *fifo.Queue) error { return q.Resync() },
	}
	for name, add := range adds {
		for _, end := range []string{"room", "close", "context"} {
			if end == "context" && name != "Push" {
				continue
			}
			t.Run(name+"/"+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { fullQueueWaits(t, add, end) })
			})
		}
	}
}

func fullQueueWaits(t *testing.T, add func(context.Context, *fifo.Queue) error, end string) {
	known := cache.NewStore(cache.MetaNamespaceKeyFunc)
	must(t, known.Add(object("k", "1")))
	q := fifo.New(fifo.Options{Capacity: 1, KnownObjects: known})
	push(t, q, cache.Added, "a", "1", "1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- add(ctx, q) }()
	synctest.Wait()
	select {
	case err := <-done:
		t.Fatalf("full queue did not wait: %v", err)
	default:
	}
	var want error
	switch end {
	case "room":
		must(t, q.PopBatch(t.Context(), func(fifo.Batch) error { return nil }))
	case "close":
		q.Close()
		q.Close()
		want = fifo.ErrClosed
	case "context":
		cancel()
		want = context.Canceled
	}
	if err := <-done; !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestReplaceIsAdmittedWhole(t *testing.T) {
	q := fifo.New(fifo.Options{Capacity: 2, MaxBatch: 2})
	must(t, q.Replace([]any{object("a", "1"), object("b", "2"), object("c", "3")}, "9"))
	if got := q.Len(); got != 3 {
		t.Errorf("Len %d, want 3", got)
	}
	want := []string{"a: Replaced a1, b: Replaced b2, @", "c: Replaced c3, @9"}
	if diff := cmp.Diff(want, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCapacityHoldsUnderManyProducers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity, producers, each = 4, 8, 100
		q := fifo.New(fifo.Options{Capacity: capacity, MaxBatch: 3})
		var wg sync.WaitGroup
		for p := range producers {
			wg.Go(func() {
				for i := range each {
					if err := q.Push(t.Context(), cache.Updated, object(fmt.Sprint(p), fmt.Sprint(i)), ""); err != nil {
						t.Error(err)
					}
				}
			})
		}
		next := map[string]int{}
		for total := 0; total < producers*each; {
			must(t, q.PopBatch(t.Context(), func(b fifo.Batch) error {
				if n := q.Len(); n > capacity {
					t.Errorf("Len %d", n)
				}
				for _, c := range b.Changes() {
					for _, d := range c.Deltas {
						if got := d.Object.(*metav1.PartialObjectMetadata).ResourceVersion; got != fmt.Sprint(next[c.Key]) {
							t.Errorf("producer %s: got %s, want %d", c.Key, got, next[c.Key])
						}
						next[c.Key]++
						total++
					}
				}
				return nil
			}))
		}
		wg.Wait()
	})
}

func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fifo.New(fifo.Options{MaxBatch: 1})
		must(t, q.Idle(t.Context()))
		push(t, q, cache.Added, "a", "1", "1")
		push(t, q, cache.Added, "b", "2", "2")
		var idle atomic.Bool
		go func() {
			if err := q.Idle(t.Context()); err != nil {
				t.Error(err)
			}
			idle.Store(true)
		}()
		synctest.Wait() // it waits for a and b
		for range 2 {
			must(t, q.PopBatch(t.Context(), func(fifo.Batch) error {
				push(t, q, cache.Added, "later", "3", "3") // Idle does not wait for it
				synctest.Wait()
				if idle.Load() {
					t.Error("idle while a batch is being processed")
				}
				return nil
			}))
		}
		synctest.Wait()
		if !idle.Load() {
			t.Error("not idle after everything was processed")
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Idle(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v", err)
		}
		done := make(chan error)
		go func() { done <- q.Idle(t.Context()) }()
		synctest.Wait()
		q.Close()
		if err := <-done; !errors.Is(err, fifo.ErrClosed) {
			t.Errorf("got error %v", err)
		}
	})
}

func TestCloseReleasesConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fifo.New(fifo.Options{})
		done := make(chan error, 2)
		go func() { done <- q.PopBatch(t.Context(), func(fifo.Batch) error { return nil }) }()
		go func() {
			_, err := q.Pop(func(any, bool) error { return nil })
			done <- err
		}()
		synctest.Wait()
		q.Close()
		for range 2 {
			if err := <-done; !errors.Is(err, cache.ErrFIFOClosed) {
				t.Errorf("got error %v", err)
			}
		}
		if err := q.Push(t.Context(), cache.Added, object("a", "1"), ""); !errors.Is(err, fifo.ErrClosed) {
			t.Errorf("push: got error %v", err)
		}
		if err := q.Bookmark(t.Context(), "1"); !errors.Is(err, fifo.ErrClosed) {
			t.Errorf("bookmark: got error %v", err)
		}
	})
}

func TestCloseWithWaitingDeltas(t *testing.T) {
	q := fifo.New(fifo.Options{})
	push(t, q, cache.Added, "a", "1", "1")
	q.Close()
	if err := q.PopBatch(t.Context(), func(fifo.Batch) error { return nil }); !errors.Is(err, fifo.ErrClosed) {
		t.Errorf("PopBatch: got error %v", err)
	}
	if diff := cmp.Diff([]string{"Added a1 false"}, popAll(t, q)); diff != "" {
		t.Errorf("Pop (-want +got):\n%s", diff)
	}
	if _, err := q.Pop(func(any, bool) error { return nil }); !errors.Is(err, fifo.ErrClosed) {
		t.Errorf("Pop: got error %v", err)
	}
}

func TestBatchIsGoneAfterAnErrorOrPanic(t *testing.T) {
	q := fifo.New(fifo.Options{MaxBatch: 1})
	for _, name := range []string{"a", "b", "c"} {
		push(t, q, cache.Added, name, "1", name)
	}
	errProcess := errors.New("process")
	if err := q.PopBatch(t.Context(), func(fifo.Batch) error { return errProcess }); !errors.Is(err, errProcess) {
		t.Errorf("got error %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = q.PopBatch(t.Context(), func(fifo.Batch) error { panic("process") })
	}()
	if diff := cmp.Diff([]string{"c: Added c1, @c"}, popBatches(t, q)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPushErrors(t *testing.T) {
	q := fifo.New(fifo.Options{})
	err := q.Push(t.Context(), cache.Added, struct{ Secret string }{"hunter2"}, "1")
	var keyError *fifo.KeyError
	if !errors.As(err, &keyError) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got error %v", err)
	}
	if err := q.Push(t.Context(), cache.ReplacedAll, object("a", "1"), "1"); err == nil {
		t.Error("unknown type: no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Push(ctx, cache.Added, object("a", "1"), "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	if q.Len() != 0 {
		t.Errorf("Len %d", q.Len())
	}
}

func BenchmarkPushPopBatch(b *testing.B) {
	q := fifo.New(fifo.Options{})
	objects := make([]any, 1000)
	for i := range objects {
		objects[i] = object(fmt.Sprint(i), "1")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := q.Push(b.Context(), cache.Updated, objects[i%1000], "1"); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			if err := q.PopBatch(b.Context(), func(fifo.Batch) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	}
}
