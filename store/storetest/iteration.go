package storetest

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/store"
)

var iterationCases = []testCase{
	{"Entry", testEntry},
	{"Pages", testPages},
	{"PagesWhileChanged", testPagesWhileChanged},
	{"All", testAll},
	{"AllWhileWritten", testAllWhileWritten},
	{"Headers", testHeaders},
	{"HeadersWhileWritten", testHeadersWhileWritten},
}

// many returns n config maps in key order.
func many(n int, rv, words string) []runtime.Object {
	objects := make([]runtime.Object, n)
	for i := range objects {
		objects[i] = configMap(fmt.Sprintf("many/%05d", i), rv, words)
	}
	return objects
}

// fill stores objects in one batch.
func (h *harness) fill(rv string, objects []runtime.Object) {
	h.Helper()
	changes := make([]store.Change, len(objects))
	for i, object := range objects {
		changes[i] = put(object)
	}
	h.apply(rv, changes...)
}

// collect returns the objects that All yields.
func (h *harness) collect() []runtime.Object {
	h.Helper()
	var objects []runtime.Object
	for object, err := range h.All() {
		must(h, err)
		objects = append(objects, object)
	}
	return objects
}

func testEntry(h *harness) {
	want := configMap("a/one", "1", "red")
	h.add(want)
	for _, written := range []bool{false, true} {
		if written {
			must(h, h.Flush(h.Context()))
		}
		e, ok, err := h.Entry("a/one")
		if !ok || err != nil || e.Key != "a/one" {
			h.Fatalf("Entry(a/one) = key %q, %t, %v", e.Key, ok, err)
		}
		if e.Object == nil && e.Raw == nil {
			h.Errorf("Entry(a/one) has neither Object nor Raw")
		}
		got, err := h.Decode(e)
		must(h, err)
		same[runtime.Object](h, "decoded entry", got, want)
	}
	if e, ok, err := h.Entry("a/missing"); ok || err != nil {
		h.Errorf("Entry of a missing key = %+v, %t, %v", e, ok, err)
	}
	if got, err := h.Decode(store.Entry{Key: "a/none"}); err == nil {
		h.Errorf("Decode of an empty entry = %v, want an error", got)
	}
	if h.cfg.Persistent {
		if got, err := h.Decode(store.Entry{Key: "a/none", Raw: []byte("no record")}); err == nil {
			h.Errorf("Decode of bytes that are no object = %v, want an error", got)
		}
	}
}

// pageKeys returns the keys of one page.
func (h *harness) pageKeys(after string, limit int) []string {
	h.Helper()
	entries, err := h.Select(store.Query{After: after, Limit: limit})
	must(h, err)
	keys := []string{}
	for _, e := range entries {
		object, err := h.Decode(e)
		must(h, err)
		same(h, "key of a decoded entry", keyOf(h, object), e.Key)
		keys = append(keys, e.Key)
	}
	return keys
}

func testPages(h *harness) {
	same(h, "Select of an empty scope", h.pageKeys("", 10), nil)
	// "a-b/x" is less than "a/x" by bytes, although "a" is less than "a-b".
	h.add(configMap("b/one", "1", ""), configMap("a/x", "1", ""), configMap("a-b/x", "1", ""), configMap("z", "1", ""))
	must(h, h.Flush(h.Context()))
	h.add(configMap("a/y", "1", ""))
	all := []string{"a-b/x", "a/x", "a/y", "b/one", "z"}
	for limit := 1; limit <= 6; limit++ {
		got, after := []string{}, ""
		for {
			keys := h.pageKeys(after, limit)
			got = append(got, keys...)
			if len(keys) > limit {
				h.Fatalf("Select(%q, %d) gave %d entries", after, limit, len(keys))
			}
			if len(keys) < limit {
				break
			}
			after = keys[len(keys)-1]
		}
		same(h, fmt.Sprintf("Select in chunks of %d", limit), got, all)
	}
	same(h, "Select after a key that is not there", h.pageKeys("a/xx", 2), []string{"a/y", "b/one"})
	same(h, "Select after the last key", h.pageKeys("z", 2), nil)
}

func testPagesWhileChanged(h *harness) {
	h.fill("1", many(10, "1", "old"))
	must(h, h.Flush(h.Context()))
	first := h.pageKeys("", 4)
	h.apply("2",
		store.Change{Key: "many/00001"}, // already passed
		store.Change{Key: "many/00003"}, // the cursor itself
		store.Change{Key: "many/00005"},
		put(configMap("many/00000", "2", "new")),
		put(configMap("many/00004x", "2", "new")),
		put(configMap("many/00006", "2", "new")),
	)
	same(h, "first chunk", first, []string{"many/00000", "many/00001", "many/00002", "many/00003"})
	entries, err := h.Select(store.Query{After: "many/00003", Limit: 4})
	must(h, err)
	got := map[string]string{}
	for _, e := range entries {
		object, err := h.Decode(e)
		must(h, err)
		values, err := words(object)
		must(h, err)
		got[e.Key] = values[0]
	}
	same(h, "second chunk", got, map[string]string{
		"many/00004": "old", "many/00004x": "new", "many/00006": "new", "many/00007": "old",
	})
}

func testAll(h *harness) {
	want := many(700, "1", "red")
	h.fill("1", want[:400])
	must(h, h.Flush(h.Context()))
	h.fill("2", want[400:])
	same(h, "All", h.collect(), want)
	n := 0
	for _, err := range h.All() {
		must(h, err)
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		h.Errorf("All after break went on to %d", n)
	}
}

// churn is the body of a loop over the keys many/00000 to many/00699 that writes during
// the iteration: it deletes the current key and the next one, and adds one key before and
// one after all of them.
func (h *harness) churn(i int) {
	h.Helper()
	must(h, h.Delete(configMap(fmt.Sprintf("many/%05d", i), "", "")))
	h.add(configMap(fmt.Sprintf("early/%05d", i), "2", "red"))
	h.apply("", store.Change{Key: fmt.Sprintf("many/%05d", i+1)}, put(configMap(fmt.Sprintf("zlate/%05d", i), "2", "red")))
	if i%100 == 0 {
		must(h, h.Flush(h.Context()))
	}
}

// testAllWhileWritten checks that All holds nothing while the loop body runs.
func testAllWhileWritten(h *harness) {
	h.fill("1", many(700, "1", "red"))
	var keys []string
	for object, err := range h.All() {
		must(h, err)
		key := keyOf(h, object)
		keys = append(keys, key)
		var i int
		if _, err := fmt.Sscanf(key, "many/%d", &i); err == nil {
			h.churn(i)
		}
	}
	h.wantInOrder(keys)
}

// wantInOrder reports keys that are out of order or duplicate, and keys that are missing
// although they were always stored.
func (h *harness) wantInOrder(keys []string) {
	h.Helper()
	if !slices.IsSorted(keys) || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		h.Errorf("keys are not in order, each once: %q", keys)
	}
	for i := 0; i < 700; i += 2 {
		if key := fmt.Sprintf("many/%05d", i); !slices.Contains(keys, key) {
			// If an odd key was seen because it was deleted after its chunk was read, the
			// next even key was deleted, too.
			if !slices.Contains(keys, fmt.Sprintf("many/%05d", i-1)) {
				h.Errorf("%s was not seen, although nobody had deleted it", key)
			}
		}
	}
}

func testHeaders(h *harness) {
	created := metav1.NewTime(time.Unix(1_780_000_000, 0))
	one := configMap("a/one", "1", "red")
	one.CreationTimestamp = created
	h.add(configMap("b/two", "2", ""), one)
	h.add(configMap("c/three", "3", "blue"))
	want := []store.Header{
		{Key: "a/one", UID: "uid-a/one", RV: "1", Labels: map[string]string{"app": "red"}, Created: created.Time},
		{Key: "b/two", UID: "uid-b/two", RV: "2"},
		{Key: "c/three", UID: "uid-c/three", RV: "3", Labels: map[string]string{"app": "blue"}},
	}
	// known removes values that depend on the backend from a header.
	known := func(header store.Header) store.Header {
		if h.cfg.Persistent && header.Bytes <= 0 {
			h.Errorf("header of %q has Bytes = %d", header.Key, header.Bytes)
		}
		header.Bytes = 0
		return header
	}
	for _, written := range []bool{false, true} {
		if written {
			must(h, h.Flush(h.Context()))
		}
		var got []store.Header
		for header, err := range store.HeadersOfAll(h) {
			must(h, err)
			got = append(got, known(header))
		}
		same(h, "Headers", got, want)
		some, err := h.HeadersOf([]string{"c/three", "nosuch", "a/one"})
		must(h, err)
		got = nil
		for _, header := range some {
			got = append(got, known(header))
		}
		same(h, "HeadersOf", got, []store.Header{want[2], want[0]})
	}
	for _, err := range store.HeadersOfAll(h) {
		must(h, err)
		break
	}
}

func testHeadersWhileWritten(h *harness) {
	h.fill("1", many(700, "1", "red"))
	var keys []string
	for header, err := range store.HeadersOfAll(h) {
		must(h, err)
		keys = append(keys, header.Key)
		var i int
		if _, err := fmt.Sscanf(header.Key, "many/%d", &i); err == nil {
			h.churn(i)
		}
	}
	h.wantInOrder(keys)
}
