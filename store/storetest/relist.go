package storetest

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

var relistCases = []testCase{
	{"First", testRelistFirst},
	{"FirstIsInvisible", testRelistFirstIsInvisible},
	{"FirstInterrupted", testRelistFirstInterrupted},
	{"BookmarkBesideFirst", testBookmarkBesideFirst},
	{"AppliedBesideFirst", testAppliedBesideFirst},
	{"FirstEmpty", testRelistFirstEmpty},
	{"FirstWithoutRV", testRelistFirstWithoutRV},
	{"AfterAdd", testRelistAfterAdd},
	{"Unchanged", testRelistUnchanged},
	{"Changes", testRelistChanges},
	{"ChangesNothingItself", testRelistChangesNothingItself},
	{"EqualRVOtherContent", testRelistEqualRV},
	{"Empty", testRelistEmpty},
	{"Large", testRelistLarge},
	{"Invalidated", testRelistInvalidated},
	{"Aborted", testRelistAborted},
	{"AbortedBetweenParts", testRelistAbortedBetweenParts},
	{"Superseded", testRelistSuperseded},
	{"AddedTwice", testRelistAddedTwice},
	{"Kept", testRelistKept},
	{"Refused", testRelistRefused},
	{"Removed", testRelistRemoved},
}

// relist starts a relist and adds objects to it.
func (h *harness) relist(objects ...runtime.Object) store.Relist {
	h.Helper()
	list, err := h.Relist()
	must(h, err)
	for _, object := range objects {
		must(h, list.Add(object))
	}
	return list
}

// applyParts applies the batches of a relist, closes it and returns the changed keys in
// order. It reports batches that violate the rules of Parts.
func (h *harness) applyParts(list store.Relist, rv string) []string {
	h.Helper()
	var keys []string
	var last store.Batch
	parts, putting := 0, false
	for b, err := range list.Parts(rv) {
		must(h, err)
		if parts++; parts > 1 && last.RV != "" {
			h.Errorf("part %d has RV %q and is not the last", parts-1, last.RV)
		}
		if b.Loaded && len(b.Changes) > 0 {
			h.Errorf("part %d is loaded and has %d changes", parts, len(b.Changes))
		}
		for _, c := range b.Changes {
			if c.IsDeletion() && putting {
				h.Errorf("deletion of %q comes after an object that differs", c.Key)
			}
			putting = putting || !c.IsDeletion()
			keys = append(keys, c.Key)
		}
		last = store.Batch{RV: b.RV}
		must(h, h.Apply(b))
	}
	if parts == 0 || last.RV != rv {
		h.Errorf("last of %d parts has RV %q, want %q", parts, last.RV, rv)
	}
	must(h, list.Close())
	return keys
}

func testRelistFirst(h *harness) {
	objects := many(10, "1", "red")
	h.applyParts(h.relist(objects...), "20")
	h.wantObjects(objects...)
	if got := h.Checkpoint().RV; got != "20" {
		h.Errorf("Checkpoint().RV = %q, want 20", got)
	}
	if got := h.LastStoreSyncResourceVersion(); got != "20" {
		h.Errorf("LastStoreSyncResourceVersion() = %q, want 20", got)
	}
	h.apply("21", put(configMap("many/00003", "21", "blue")), store.Change{Key: "many/00004"})
	h.reopen()
	objects[3] = configMap("many/00003", "21", "blue")
	h.wantObjects(slices.Delete(objects, 4, 5)...)
}

// testRelistFirstIsInvisible checks that no method returns objects of an incomplete first
// list.
func testRelistFirstIsInvisible(h *harness) {
	list := h.relist(many(600, "1", "red")...)
	h.wantObjects()
	for b, err := range list.Parts("20") {
		must(h, err)
		h.wantObjects()
		if _, ok, err := h.Entry("many/00001"); ok || err != nil {
			h.Errorf("Entry of an object of a list that is not whole = %t, %v", ok, err)
		}
		if got := h.collect(); len(got) != 0 {
			h.Errorf("All yields %d objects of a list that is not whole", len(got))
		}
		if got := h.pageKeys("", 5); len(got) != 0 {
			h.Errorf("Select gives %q of a list that is not whole", got)
		}
		if got := h.Checkpoint().RV; got != "" {
			h.Errorf("Checkpoint().RV = %q before the list is whole", got)
		}
		must(h, h.Apply(b))
	}
	must(h, list.Close())
	h.wantObjects(many(600, "1", "red")...)
}

// testBookmarkBesideFirst checks that a resource version that is applied while a first
// list is loaded does not make a part of the list visible, now or after a restart.
func testBookmarkBesideFirst(h *harness) {
	list := h.relist(many(600, "1", "red")...)
	h.apply("9")
	h.wantObjects()
	if got := h.Checkpoint().RV; got != "" {
		h.Errorf("Checkpoint().RV = %q while a first list is loaded", got)
	}
	must(h, list.Close())
	h.wantObjects()
	h.reopen()
	h.wantObjects()
	h.applyParts(h.relist(many(10, "1", "red")...), "20")
	h.wantObjects(many(10, "1", "red")...)
}

// testAppliedBesideFirst checks that all reads agree on what is applied while a first
// list is loaded: before the list ends, after it has broken, and after one that is whole.
func testAppliedBesideFirst(h *harness) {
	applied := []store.Change{put(configMap("a/beside", "5", "red")), put(configMap("a/both", "6", "red")), {Key: "a/gone", RV: "7"}}
	listed := []runtime.Object{configMap("a/both", "6", "red"), configMap("a/gone", "1", "red"), configMap("a/listed", "1", "red")}
	agree := func(when string) {
		h.Helper()
		keys, err := h.Keys(store.Query{})
		must(h, err)
		entries, err := h.Select(store.Query{})
		must(h, err)
		headers, err := h.HeadersOf([]string{"a/beside", "a/both", "a/gone", "a/listed"})
		must(h, err)
		objects, err := h.Objects(store.Query{})
		must(h, err)
		all := h.collect()
		if n := len(keys); h.Len() != n || len(entries) != n || len(headers) != n || len(objects) != n || len(all) != n {
			h.Errorf("%s: Len is %d, Keys has %d, Select %d, HeadersOf %d, Objects %d, All %d",
				when, h.Len(), n, len(entries), len(headers), len(objects), len(all))
		}
		for _, key := range []string{"a/beside", "a/both", "a/gone", "a/listed"} {
			_, entry, err := h.Entry(key)
			must(h, err)
			_, object, err := h.Object(key)
			must(h, err)
			if want := slices.Contains(keys, key); entry != want || object != want {
				h.Errorf("%s: %q: Keys has it: %t, Entry: %t, Object: %t", when, key, want, entry, object)
			}
		}
	}
	list := h.relist(listed...)
	h.apply("", applied...)
	agree("before the list ends")
	must(h, h.Flush(h.Context()))
	agree("before the list ends, written")
	must(h, list.Close())
	agree("after the list has broken")
	list = h.relist(listed...)
	h.apply("", applied...)
	h.applyParts(list, "20")
	agree("after the list")
	must(h, h.Flush(h.Context()))
	agree("after the list, written")
	h.reopen()
	agree("after it was opened again")
}

// testRelistFirstInterrupted checks that an interrupted first list leaves nothing behind.
func testRelistFirstInterrupted(h *harness) {
	for i, interrupt := range []func(store.Relist){
		func(list store.Relist) { must(h, list.Close()) },
		func(store.Relist) {},
		func(store.Relist) { h.reopen() },
		func(list store.Relist) {
			for _, err := range list.Parts("1") {
				must(h, err)
				break
			}
			must(h, list.Close())
		},
		func(list store.Relist) {
			for _, err := range list.Parts("2") {
				must(h, err)
				h.reopen()
				break
			}
		},
	} {
		interrupt(h.relist(configMap(fmt.Sprintf("lost/%d", i), "1", "red"), configMap("a/both", "1", "red")))
		h.wantObjects()
		if c := h.Checkpoint(); c.RV != "" || c.Reason == "" {
			h.Errorf("after interruption %d: Checkpoint() = %+v, want a reason", i, c)
		}
	}
	h.applyParts(h.relist(configMap("a/both", "2", "blue"), configMap("a/new", "2", "blue")), "20")
	h.wantObjects(configMap("a/both", "2", "blue"), configMap("a/new", "2", "blue"))
	h.reopen()
	h.wantObjects(configMap("a/both", "2", "blue"), configMap("a/new", "2", "blue"))
}

func testRelistFirstEmpty(h *harness) {
	h.applyParts(h.relist(), "20")
	h.wantObjects()
	if got := h.Checkpoint().RV; got != "20" {
		h.Errorf("Checkpoint().RV = %q, want 20", got)
	}
	h.reopen()
	if got := h.Checkpoint().RV; got != "20" {
		h.Errorf("Checkpoint().RV = %q after opening again, want 20", got)
	}
}

// testRelistFirstWithoutRV checks that lists of servers without resource versions, for
// example fakes, work.
func testRelistFirstWithoutRV(h *harness) {
	h.applyParts(h.relist(configMap("a/one", "", "red")), "")
	h.wantObjects(configMap("a/one", "", "red"))
	if c := h.Checkpoint(); c.RV != "" || c.Reason == "" {
		h.Errorf("Checkpoint() = %+v, want a reason", c)
	}
}

// testRelistAfterAdd checks that a list replaces the objects that were added before it.
func testRelistAfterAdd(h *harness) {
	h.add(configMap("a/same", "1", "red"), configMap("a/changed", "1", "red"), configMap("a/gone", "1", "red"))
	must(h, h.Flush(h.Context()))
	want := []runtime.Object{configMap("a/same", "1", "red"), configMap("a/changed", "2", "blue"), configMap("a/new", "2", "x")}
	h.applyParts(h.relist(want...), "20")
	h.wantObjects(want...)
	h.reopen()
	h.wantObjects(want...)
}

// listed stores a complete list of objects at RV 10.
func (h *harness) listed(objects ...runtime.Object) {
	h.Helper()
	list := make([]any, len(objects))
	for i, object := range objects {
		list[i] = object
	}
	must(h, h.Replace(list, "10"))
}

func testRelistUnchanged(h *harness) {
	for _, written := range []bool{false, true} {
		h.listed(many(30, "1", "red")...)
		if written {
			h.reopen()
		}
		parts := 0
		list := h.relist(many(30, "1", "red")...)
		for b, err := range list.Parts("20") {
			must(h, err)
			if parts++; len(b.Changes) != 0 || b.RV != "20" {
				h.Errorf("part %d of an equal list has %d changes and RV %q, want none and 20", parts, len(b.Changes), b.RV)
			}
			must(h, h.Apply(b))
		}
		must(h, list.Close())
		h.wantObjects(many(30, "1", "red")...)
		if got := h.Checkpoint().RV; got != "20" || parts != 1 {
			h.Errorf("Checkpoint().RV = %q after %d parts, want 20 after one", got, parts)
		}
	}
}

func testRelistChanges(h *harness) {
	for _, written := range []bool{false, true} {
		h.listed(configMap("a/changed", "1", "red"), configMap("a/same", "1", "red"), configMap("z/gone", "1", "red"),
			configMap("b/gone", "1", "blue"))
		if written {
			h.reopen()
		}
		want := []runtime.Object{configMap("a/new", "2", "green"), configMap("a/same", "1", "red"), configMap("a/changed", "2", "blue")}
		keys := h.applyParts(h.relist(want...), "20")
		slices.Sort(keys)
		same(h, "what changed", keys, []string{"a/changed", "a/new", "b/gone", "z/gone"})
		h.wantObjects(want...)
		h.reopen()
		h.wantObjects(want...)
	}
}

// testRelistChangesNothingItself checks that only Apply changes what readers see, batch
// by batch.
func testRelistChangesNothingItself(h *harness) {
	old := []runtime.Object{configMap("a/changed", "1", "red"), configMap("a/gone", "1", "red")}
	h.listed(old...)
	list := h.relist(configMap("a/changed", "2", "blue"), configMap("a/new", "2", "blue"))
	h.wantObjects(old...)
	for b, err := range list.Parts("20") {
		must(h, err)
		before := viewOf(h, h)
		if b.RV != "" && h.Checkpoint().RV != "10" {
			h.Errorf("Checkpoint().RV = %q before the last part is applied, want 10", h.Checkpoint().RV)
		}
		same(h, "while a part is not applied", viewOf(h, h), before)
		must(h, h.Apply(b))
	}
	must(h, list.Close())
	must(h, list.Close())
	h.wantObjects(configMap("a/changed", "2", "blue"), configMap("a/new", "2", "blue"))
}

// testRelistEqualRV checks that changes without a new resource version are found: a new
// default in a CRD changes objects in this way.
func testRelistEqualRV(h *harness) {
	h.listed(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"))
	h.reopen()
	want := []runtime.Object{configMap("a/one", "1", "blue"), configMap("a/two", "1", "red")}
	same(h, "what changed", h.applyParts(h.relist(want...), "20"), []string{"a/one"})
	h.wantObjects(want...)
}

func testRelistEmpty(h *harness) {
	h.listed(many(5, "1", "red")...)
	if keys := h.applyParts(h.relist(), "20"); len(keys) != 5 {
		h.Errorf("an empty list deletes %q, want 5 keys", keys)
	}
	h.wantObjects()
}

// testRelistLarge checks that only the last of many batches has the RV.
func testRelistLarge(h *harness) {
	h.applyParts(h.relist(many(3000, "1", "red")...), "20")
	h.wantObjects(many(3000, "1", "red")...)
	h.reopen()
	var want []runtime.Object
	for i, object := range many(4000, "1", "red") {
		switch {
		case i%3 == 0 && i < 3000: // deleted
		case i%3 == 1 || i >= 3000:
			want = append(want, configMap(keyOf(h, object), "2", "blue"))
		default:
			want = append(want, object)
		}
	}
	if got := len(h.applyParts(h.relist(want...), "30")); got != 3000 {
		h.Errorf("%d objects changed, want 3000: 1000 deleted, 1000 changed, 1000 new", got)
	}
	h.wantObjects(want...)
}

// testRelistInvalidated checks that a scope that was listed once is compared with the
// list and can be read meanwhile, even if it has lost its resource version.
func testRelistInvalidated(h *harness) {
	h.listed(configMap("a/same", "1", "red"), configMap("a/gone", "1", "red"))
	must(h, h.Invalidate(h.Context(), "expired"))
	h.reopen()
	list := h.relist(configMap("a/same", "1", "red"), configMap("a/new", "2", "red"))
	h.wantObjects(configMap("a/same", "1", "red"), configMap("a/gone", "1", "red"))
	same(h, "what changed", h.applyParts(list, "20"), []string{"a/gone", "a/new"})
	h.wantObjects(configMap("a/same", "1", "red"), configMap("a/new", "2", "red"))
	if got := h.Checkpoint(); got.RV != "20" || got.Reason != "" {
		h.Errorf("Checkpoint() = %+v, want RV 20", got)
	}
}

func testRelistAborted(h *harness) {
	old := []runtime.Object{configMap("a/changed", "1", "red"), configMap("a/gone", "1", "red")}
	h.listed(old...)
	list := h.relist(configMap("a/changed", "2", "blue"), configMap("a/new", "2", "blue"))
	must(h, list.Close())
	h.wantObjects(old...)
	if err := list.Add(configMap("a/late", "2", "blue")); err == nil {
		h.Errorf("Add after Close: got no error")
	}
	for b, err := range list.Parts("20") {
		if err == nil {
			h.Errorf("Parts after Close yields %d changes and no error", len(b.Changes))
		}
	}
	h.reopen()
	h.wantObjects(old...)
	if got := h.Checkpoint().RV; got != "10" {
		h.Errorf("Checkpoint().RV = %q after a relist that ended early, want 10", got)
	}
}

// testRelistAbortedBetweenParts checks that the applied batches stay and that nothing
// else changes.
func testRelistAbortedBetweenParts(h *harness) {
	h.listed(many(1500, "1", "red")...)
	list := h.relist(many(1500, "2", "blue")...)
	want, rv := map[string]string{}, "10"
	for _, object := range many(1500, "1", "red") {
		want[keyOf(h, object)] = "1"
	}
	for b, err := range list.Parts("20") {
		must(h, err)
		must(h, h.Apply(b))
		for _, c := range b.Changes {
			want[c.Key] = "2"
		}
		if b.RV != "" {
			rv = b.RV
		}
		break
	}
	must(h, list.Close())
	h.reopen()
	got := map[string]string{}
	for header, err := range store.HeadersOfAll(h) {
		must(h, err)
		got[header.Key] = header.RV
	}
	same(h, "resource versions", got, want)
	if got := h.Checkpoint().RV; got != rv {
		h.Errorf("Checkpoint().RV = %q, want %s", got, rv)
	}
	h.applyParts(h.relist(many(1500, "2", "blue")...), "30")
	h.wantObjects(many(1500, "2", "blue")...)
}

// testRelistSuperseded checks that Relist discards an earlier one that was not closed.
func testRelistSuperseded(h *harness) {
	h.listed(configMap("a/one", "1", "red"))
	first := h.relist(configMap("a/lost", "1", "red"))
	second := h.relist(configMap("a/one", "1", "red"))
	if err := first.Add(configMap("a/lost too", "1", "red")); err == nil {
		h.Errorf("Add to a relist that was superseded: got no error")
	}
	must(h, first.Close())
	same(h, "what changed", h.applyParts(second, "20"), nil)
	h.wantObjects(configMap("a/one", "1", "red"))
}

func testRelistAddedTwice(h *harness) {
	for range 2 { // a first list, then a relist
		h.applyParts(h.relist(configMap("a/one", "1", "red"), configMap("a/two", "1", "x"), configMap("a/one", "2", "blue")), "20")
		h.wantObjects(configMap("a/one", "2", "blue"), configMap("a/two", "1", "x"))
		h.applyParts(h.relist(configMap("a/one", "3", "green")), "30")
	}
}

// testRelistKept checks that a key keeps its last good state, which may be one of the
// list itself.
func testRelistKept(h *harness) {
	for range 2 { // a first list, then a relist
		list := h.relist(configMap("a/both", "2", "blue"))
		list.Keep("a/both")
		list.Keep("a/never")
		h.applyParts(list, "20")
		h.wantObjects(configMap("a/both", "2", "blue"))
		list = h.relist()
		list.Keep("a/both")
		h.applyParts(list, "30")
		h.wantObjects(configMap("a/both", "2", "blue"))
		h.applyParts(h.relist(configMap("a/both", "1", "red")), "40")
	}
}

// testRelistRefused checks that an object that cannot be stored does not count as
// deleted.
func testRelistRefused(h *harness) {
	h.listed(configMap("a/error", "1", "red"), configMap("a/gone", "1", "red"))
	list := h.relist()
	for name, object := range refused() {
		var objectErr *store.ObjectError
		if err := list.Add(object); !errors.As(err, &objectErr) {
			h.Errorf("Add of an object with %s: got error %v, want an *ObjectError", name, err)
		}
	}
	must(h, list.Add(configMap("a/new", "2", "red")))
	same(h, "what changed", h.applyParts(list, "20"), []string{"a/gone", "a/new"})
	h.wantObjects(configMap("a/error", "1", "red"), configMap("a/new", "2", "red"))
}

// testRelistRemoved checks that a removed object counts as not listed.
func testRelistRemoved(h *harness) {
	for range 2 { // a first list, then a relist
		list := h.relist(configMap("a/gone", "2", "blue"), configMap("a/back", "2", "blue"), configMap("a/stays", "1", "red"))
		list.Remove("a/gone")
		list.Remove("a/back")
		list.Remove("a/never")
		must(h, list.Add(configMap("a/back", "1", "red")))
		h.applyParts(list, "20")
		h.wantObjects(configMap("a/back", "1", "red"), configMap("a/stays", "1", "red"))
		h.applyParts(h.relist(configMap("a/gone", "1", "red"), configMap("a/back", "1", "red")), "30")
	}
}
