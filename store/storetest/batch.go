package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

var batchCases = []testCase{
	{"Apply", testApply},
	{"ApplyUnprepared", testApplyUnprepared},
	{"ApplyRefused", testApplyRefused},
	{"Before", testBefore},
	{"PrepareRefused", testPrepareRefused},
	{"PrepareBeforeAddIndexers", testPrepareBeforeAddIndexers},
	{"PrepareIsNoWrite", testPrepareIsNoWrite},
	{"Checkpoint", testCheckpoint},
	{"CheckpointTime", testCheckpointTime},
	{"LastRV", testLastRV},
	{"Flush", testFlush},
}

func testApply(h *harness) {
	h.add(configMap("a/gone", "1", "red"), configMap("a/changed", "2", "red"), configMap("a/kept", "3", "red"))
	h.apply("20",
		store.Change{Key: "a/gone"},
		put(configMap("b/new", "18", "red green")),
		store.Change{Key: "a/missing"},
		put(configMap("a/changed", "19", "blue")),
	)
	h.wantObjects(configMap("a/kept", "3", "red"), configMap("a/changed", "19", "blue"), configMap("b/new", "18", "red green"))
	h.apply("21")
	h.apply("", store.Change{Key: "b/new"})
	h.wantObjects(configMap("a/kept", "3", "red"), configMap("a/changed", "19", "blue"))
	if got := h.Checkpoint().RV; got != "21" {
		h.Errorf("Checkpoint().RV = %q, want 21", got)
	}
}

func testApplyUnprepared(h *harness) {
	one, two := configMap("a/one", "1", "red"), configMap("a/two", "2", "blue")
	must(h, h.Apply(store.Batch{RV: "5", Changes: []store.Change{put(one), {Key: "a/two", Object: two}}}))
	h.wantObjects(one, two)
	must(h, h.Apply(store.Batch{RV: "6", Changes: []store.Change{{Key: "a/one"}}}))
	h.wantObjects(two)
}

// testBefore checks that a batch whose Before is outdated is counted as one without.
func testBefore(h *harness) {
	one, two := configMap("a/one", "1", "red"), configMap("a/two", "2", "blue")
	h.add(one)
	before, err := h.Before([]string{"a/one", "a/two"})
	must(h, err)
	if held := before.Held["a/one"]; len(before.Held) != 1 || held.UID != string(one.UID) || held.RV != "1" {
		h.Errorf("Before returns %v, want %v alone", before.Held, one)
	}
	h.apply("3", put(two), store.Change{Key: "a/one"})
	must(h, h.Apply(store.Batch{RV: "4", Before: before, Changes: []store.Change{put(one), {Key: "a/two"}}}))
	h.wantObjects(one)
	must(h, h.Apply(store.Batch{RV: "5", Before: before, Changes: []store.Change{put(two)}}))
	h.wantObjects(one, two)
	if before, err = h.Before(nil); err != nil || len(before.Held) > 0 {
		h.Errorf("Before of no keys returns %v and error %v", before.Held, err)
	}
}

// testApplyRefused checks that a batch that was not prepared is applied completely or not
// at all.
func testApplyRefused(h *harness) {
	h.apply("1", put(configMap("a/old", "1", "red")))
	for name, object := range refused() {
		var objectErr *store.ObjectError
		err := h.Apply(store.Batch{RV: "2", Changes: []store.Change{
			{Key: "a/old"}, put(configMap("a/new", "2", "red")), put(object),
		}})
		if !errors.As(err, &objectErr) {
			h.Errorf("Apply of an object with %s: got error %v, want an *ObjectError", name, err)
		}
	}
	h.wantObjects(configMap("a/old", "1", "red"))
	if got := h.Checkpoint().RV; got != "1" {
		h.Errorf("Checkpoint().RV = %q after batches that failed, want 1", got)
	}
}

// testPrepareRefused checks that objects that cannot be stored are removed from the
// batch, each with its own error, and that the rest keeps its order.
func testPrepareRefused(h *harness) {
	h.add(configMap("a/gone", "1", "red"))
	b := store.Batch{RV: "9", Changes: []store.Change{put(configMap("a/first", "2", "red"))}}
	bad := refused()
	want, wantKeys := []runtime.Object{configMap("a/first", "2", "red")}, []string{"a/first"}
	for i, name := range slices.Sorted(maps.Keys(bad)) {
		good := configMap(fmt.Sprintf("b/%d", i), "3", "blue")
		b.Changes = append(b.Changes, put(bad[name]), put(good))
		want, wantKeys = append(want, good), append(wantKeys, keyOf(h, good))
	}
	b.Changes = append(b.Changes, store.Change{Key: "a/gone"})

	err := h.Prepare(&b)
	if err == nil {
		h.Fatalf("Prepare: got no error")
	}
	if strings.Contains(err.Error(), secret) {
		h.Errorf("Prepare: the error shows an object's content: %v", err)
	}
	var joined interface {
		error
		Unwrap() []error
	}
	if !errors.As(err, &joined) {
		h.Fatalf("Prepare returned a %T, want joined errors", err)
	}
	var objectErr *store.ObjectError
	for _, err := range joined.Unwrap() {
		if !errors.As(err, &objectErr) {
			h.Errorf("Prepare: got error %v, want an *ObjectError", err)
		}
	}
	if got := len(joined.Unwrap()); got != len(bad) {
		h.Errorf("Prepare returned %d errors, want one for each of %d objects: %v", got, len(bad), err)
	}
	var keys []string
	for _, c := range b.Changes {
		keys = append(keys, c.Key)
	}
	same(h, "keys that Prepare left", keys, append(wantKeys, "a/gone"))

	must(h, h.Apply(b))
	h.wantObjects(want...)
}

// testPrepareBeforeAddIndexers checks that an index that is added between Prepare and
// Apply contains the objects of the batch.
func testPrepareBeforeAddIndexers(h *harness) {
	b := store.Batch{RV: "9", Changes: []store.Change{put(configMap("a/one", "2", "red"))}}
	must(h, h.Prepare(&b))
	must(h, h.AddIndexers(cache.Indexers{"length": length}))
	must(h, h.Apply(b))
	same(h, "index", entriesOf(h, h, "length"), map[string][]string{"3": {"a/one"}})
}

func testPrepareIsNoWrite(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	b := store.Batch{RV: "2", Changes: []store.Change{put(configMap("a/one", "2", "blue")), put(configMap("a/two", "2", "x"))}}
	must(h, h.Prepare(&b))
	h.wantObjects(configMap("a/one", "1", "red"))
	if got := h.Checkpoint().RV; got != "1" {
		h.Errorf("Checkpoint().RV = %q after Prepare, want 1", got)
	}
}

// testCheckpoint checks promise 2, and which methods move the checkpoint.
func testCheckpoint(h *harness) {
	for _, step := range []struct {
		name string
		do   func() error
		want string // RV; "" means that a reason is expected
	}{
		{"nothing", func() error { return nil }, ""},
		{"Add", func() error { return h.Add(configMap("a/one", "5", "red")) }, ""},
		{"Apply without RV", func() error { return h.Apply(store.Batch{}) }, ""},
		{"Apply", func() error { return h.Apply(store.Batch{RV: "6"}) }, "6"},
		{"Update", func() error { return h.Update(configMap("a/one", "7", "red")) }, "6"},
		{"Delete", func() error { return h.Delete(configMap("a/one", "8", "red")) }, "6"},
		{"Apply without RV again", func() error { return h.Apply(store.Batch{}) }, "6"},
		{"Bookmark", func() error { h.Bookmark("9"); return nil }, "9"},
		{"Replace", func() error { return h.Replace(nil, "10") }, "10"},
		{"Invalidate", func() error { return h.Invalidate(h.Context(), "history was lost") }, ""},
		{"Add after Invalidate", func() error { return h.Add(configMap("a/one", "11", "red")) }, ""},
		{"Apply after Invalidate", func() error { return h.Apply(store.Batch{RV: "12"}) }, "12"},
		{"Apply with a reason", func() error { return h.Apply(store.Batch{Reason: "history was lost"}) }, ""},
		{"Bookmark after a reason", func() error { h.Bookmark("13"); return nil }, "13"},
		{"Replace without RV", func() error { return h.Replace([]any{configMap("a/one", "11", "red")}, "") }, ""},
		{"Bookmark after Replace", func() error { h.Bookmark("14"); return nil }, "14"},
	} {
		before := h.Checkpoint()
		must(h, step.do())
		got := h.Checkpoint()
		if got.RV != step.want {
			h.Errorf("after %s: RV = %q, want %q", step.name, got.RV, step.want)
		}
		if (got.RV == "") == (got.Reason == "") {
			h.Errorf("after %s: %+v; want either an RV or a reason", step.name, got)
		}
		if (step.name == "Invalidate" || step.name == "Apply with a reason") && got.Reason != "history was lost" {
			h.Errorf("after %s: Reason = %q", step.name, got.Reason)
		}
		if got.Time.Before(before.Time) {
			h.Errorf("after %s: Time went back from %v to %v", step.name, before.Time, got.Time)
		}
		if got.RV != "" && got.Time.IsZero() {
			h.Errorf("after %s: RV without a time", step.name)
		}
	}
	h.wantObjects(configMap("a/one", "11", "red"))
}

// testCheckpointTime checks that a checkpoint says when its content was last known to be
// the server's, or has the time of its batch.
func testCheckpointTime(h *harness) {
	then := time.Now().Add(-time.Hour)
	for _, b := range []store.Batch{{RV: "6", Time: then}, {Reason: "history was lost", Time: then}, {RV: "7"}} {
		must(h, h.Apply(b))
		if got := h.Checkpoint(); got.RV != b.RV || got.Reason != b.Reason || !b.Time.IsZero() && !got.Time.Equal(b.Time) || got.Time.Before(then) {
			h.Errorf("Checkpoint() = %+v after %+v", got, b)
		}
	}
	must(h, h.Apply(store.Batch{RV: "8", Time: then}))
	for after, do := range map[string]func() error{
		"Invalidate": func() error { return h.Invalidate(h.Context(), "a list begins") },
		"a reason":   func() error { return h.Apply(store.Batch{Reason: "a list begins", Rewound: true}) },
	} {
		must(h, do())
		if got := h.Checkpoint().Time; !got.Equal(then) {
			h.Errorf("after %s, the content was the server's at %v, want %v", after, got, then)
		}
	}
	must(h, h.Apply(store.Batch{RV: "10"}))
	if got := h.Checkpoint().Time; time.Since(got) > time.Minute {
		h.Errorf("with the changes of now, the content was the server's at %v", got)
	}
}

func testLastRV(h *harness) {
	want := func(after, rv string) {
		h.Helper()
		if got := h.LastStoreSyncResourceVersion(); got != rv {
			h.Errorf("LastStoreSyncResourceVersion() = %q after %s, want %q", got, after, rv)
		}
	}
	h.add(configMap("a/one", "5", "red"))
	want("Add", "5")
	h.apply("20", put(configMap("a/two", "7", "red")))
	want("Apply", "20")
	h.apply("", put(configMap("a/two", "8", "red")))
	want("Apply without RV", "20")
	must(h, h.Delete(configMap("a/two", "30", "red")))
	want("Delete", "30")
	must(h, h.Delete(cache.DeletedFinalStateUnknown{Key: "a/one"}))
	want("Delete of a tombstone", "30")
	must(h, h.Replace(nil, "40"))
	want("Replace", "40")
	h.Bookmark("50")
	want("Bookmark", "50")
	must(h, h.Replace(nil, ""))
	want("Replace without RV", "")
}

func testFlush(h *harness) {
	must(h, h.Flush(h.Context()))
	h.apply("5", put(configMap("a/one", "5", "red")))
	must(h, h.Flush(h.Context()))
	h.wantObjects(configMap("a/one", "5", "red"))
}
