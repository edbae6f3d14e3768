package storetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
)

var queryCases = []testCase{
	{"Select", testSelect},
	{"SelectUnknownIndex", testSelectUnknownIndex},
	{"SelectManyLabels", testSelectManyLabels},
	{"SelectDecodesNothingElse", testSelectDecodesNothingElse},
	{"SelectorOfOnesOwn", testSelectorOfOnesOwn},
	{"SelectWhileLoading", testSelectWhileLoading},
}

// selectors are combined with all other fields of a Query.
var selectors = []string{"", "app", "!app", "app=red", "app==blue", "app!=red", "app in (red,re)", "app notin (red,blue)", "app=red,other", "app>1"}

// testSelect runs all combinations of a Query on objects in memory, on disk and in both.
func testSelect(h *harness) {
	objects := map[string]*corev1.ConfigMap{}
	for i, key := range []string{"a/x", "a/y", "a/z", "a-b/x", "a.b/x", "ab/x", "b/x", "b/y", "cluster-wide", "a"} {
		objects[key] = configMap(key, "1", []string{"red", "red blue", "", "blue", "re", "7"}[i%6])
	}
	for i, key := range slices.Sorted(maps.Keys(objects)) {
		if i%2 == 0 {
			h.add(objects[key])
		}
	}
	must(h, h.Flush(h.Context()))
	for i, key := range slices.Sorted(maps.Keys(objects)) {
		if i%2 != 0 {
			h.add(objects[key])
		}
	}
	h.add(configMap("b/gone", "1", "red"))
	must(h, h.Delete(configMap("b/gone", "1", "")))
	for _, flush := range []bool{false, true} {
		if flush {
			must(h, h.Flush(h.Context()))
		}
		for _, namespace := range []string{"", "a", "a-b", "b", "cluster-wide", "missing"} {
			for _, selector := range selectors {
				for _, by := range [][2]string{{}, {"namespace", "a"}, {"label:app", "red"}, {"words", "blue"}, {"words", "none"}} {
					q := store.Query{Index: by[0], Values: []string{by[1]}, Namespace: namespace, Selector: parseSelector(h, selector)}
					checkSelect(h, h, q, objects)
					checkSelectInParts(h, h, q, objects)
				}
			}
		}
		checkSelect(h, h, store.Query{}, objects)
		checkSelect(h, h, store.Query{Selector: labels.Nothing()}, objects)
		checkSelect(h, h, store.Query{Selector: labels.Nothing(), Index: "words", Values: []string{"red"}}, objects)
		checkSelect(h, h, store.Query{Selector: labels.SelectorFromSet(labels.Set{"app": "red"})}, objects)
		checkSelect(h, h, store.Query{Selector: labels.SelectorFromValidatedSet(labels.Set{"app": "red"})}, objects)
		checkSelect(h, h, store.Query{Namespace: "a", After: "z"}, objects)
		checkSelect(h, h, store.Query{Index: "words", Values: []string{"red"}, After: "a/x", Limit: 1}, objects)
		checkSelect(h, h, store.Query{Index: "words", Values: []string{"red", "blue", "none"}}, objects)
		checkSelectInParts(h, h, store.Query{Index: "words", Values: []string{"red", "blue"}, Namespace: "a"}, objects)
		checkSelect(h, h, store.Query{Index: "words"}, objects)
	}
}

func parseSelector(t reporter, text string) labels.Selector {
	t.Helper()
	selector, err := labels.Parse(text)
	must(t, err)
	return selector
}

// selected returns the keys that a Query must find. It checks every object.
func selected(t reporter, q store.Query, objects map[string]*corev1.ConfigMap) []string {
	t.Helper()
	keys := []string{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		cm := objects[key]
		fits := key > q.After && (q.Namespace == "" || cm.Namespace == q.Namespace)
		if q.Selector != nil {
			fits = fits && q.Selector.Matches(labels.Set(cm.Labels))
		}
		if q.Index != "" {
			values, err := indexes()[q.Index](cm)
			must(t, err)
			fits = fits && slices.ContainsFunc(q.Values, func(v string) bool { return slices.Contains(values, v) })
		}
		if fits && (q.Limit == 0 || len(keys) < q.Limit) {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkSelect reports a Query whose result differs from selected, by Select, Keys or
// Objects.
func checkSelect(t reporter, s store.Store, q store.Query, objects map[string]*corev1.ConfigMap) []store.Entry {
	t.Helper()
	entries, err := s.Select(q)
	must(t, err)
	keys := []string{}
	for _, e := range entries {
		keys = append(keys, e.Key)
		if (e.Object == nil) == (e.Raw == nil) {
			t.Errorf("Select(%+v): entry %q has both or neither of Object and Raw", q, e.Key)
		}
	}
	want := selected(t, q, objects)
	same(t, fmt.Sprintf("keys of Select(%+v)", q), keys, want)
	only, err := s.Keys(q)
	must(t, err)
	same(t, fmt.Sprintf("Keys(%+v)", q), only, want)
	found, err := s.Objects(q)
	must(t, err)
	same(t, fmt.Sprintf("keys of Objects(%+v)", q), sortedKeys(t, found), want)
	decoded, err := store.DecodeAll[*corev1.ConfigMap](s, entries)
	must(t, err)
	for i, cm := range decoded {
		same(t, "selected object", cm, objects[keys[i]])
	}
	return entries
}

// checkSelectInParts runs the query with a limit of two.
func checkSelectInParts(t reporter, s store.Store, q store.Query, objects map[string]*corev1.ConfigMap) {
	t.Helper()
	for q.Limit = 2; ; {
		part := checkSelect(t, s, q, objects)
		if len(part) < q.Limit {
			return
		}
		q.After = part[len(part)-1].Key
	}
}

func testSelectUnknownIndex(h *harness) {
	h.add(configMap("a/one", "1", "red"))
	for _, selector := range []labels.Selector{nil, labels.Nothing(), parseSelector(h, "app=red")} {
		entries, err := h.Select(store.Query{Index: "nope", Values: []string{"red"}, Selector: selector})
		wantIs(h, "Select", err, store.ErrNoIndex)
		if err != nil && !strings.Contains(err.Error(), "nope") || len(entries) > 0 {
			h.Errorf("Select by an unknown index = %d entries; error does not name the index: %v", len(entries), err)
		}
	}
}

// testSelectManyLabels checks labels of every length that a store may encode in a
// different way.
func testSelectManyLabels(h *harness) {
	objects := map[string]*corev1.ConfigMap{}
	for i, n := range []int{0, 1, 15, 16, 40, 70_000} {
		cm := configMap(fmt.Sprintf("a/%d", i), "1", "")
		cm.Labels = map[string]string{"app": strings.Repeat("v", n)}
		for j := range min(n, 40) {
			cm.Labels[strings.Repeat("k", 10*j)+fmt.Sprint(j)] = strings.Repeat("w", j*j)
		}
		objects[keyOf(h, cm)] = cm
		h.add(cm)
	}
	bare := configMap("a/bare", "1", "")
	objects["a/bare"] = bare
	h.add(bare)
	must(h, h.Flush(h.Context()))
	for _, cm := range objects {
		for key, value := range cm.Labels {
			checkSelect(h, h, store.Query{Selector: labels.SelectorFromSet(labels.Set{key: value})}, objects)
		}
	}
	checkSelect(h, h, store.Query{Selector: parseSelector(h, "!app")}, objects)
	checkSelect(h, h, store.Query{Selector: parseSelector(h, "39")}, objects)
}

// countingCodec counts the decoded objects.
type countingCodec struct {
	codec.Codec
	decoded *atomic.Int64
}

func (c countingCodec) Decode(data []byte) (runtime.Object, error) {
	c.decoded.Add(1)
	return c.Codec.Decode(data)
}

// testSelectDecodesNothingElse checks that only objects that match a Query are decoded.
func testSelectDecodesNothingElse(h *harness) {
	for i := range 100 {
		h.add(configMap(fmt.Sprintf("a/%02d", i), "1", []string{"red", "blue", "blue", "blue"}[i%4]))
	}
	counter := countingCodec{h.opts.Codec, &atomic.Int64{}}
	// Without Indexers: computing their entries would decode the objects.
	h.opts.Codec, h.opts.Indexers = counter, nil
	h.reopen()
	counter.decoded.Store(0)
	for _, q := range []store.Query{
		{Selector: parseSelector(h, "app!=blue")},
		{Selector: parseSelector(h, "app=red")},
		{Index: "namespace", Values: []string{"a"}, Selector: parseSelector(h, "app=red")},
	} {
		entries, err := h.Select(q)
		must(h, err)
		if n := counter.decoded.Load(); n != 0 || len(entries) != 25 {
			h.Errorf("Select(%+v) gave %d entries and decoded %d objects, want 25 and none", q, len(entries), n)
		}
	}
}

// ownSelector makes the calls that a user's selector may make. It selects app=red.
type ownSelector struct {
	labels.Selector
	h     *harness
	asked *int
}

func (s ownSelector) Requirements() (labels.Requirements, bool) {
	*s.asked++
	// This call would block for ever if a lock were held.
	s.h.add(configMap("a/own", "2", "red"))
	must(s.h, s.h.Flush(s.h.Context()))
	return s.Selector.Requirements()
}

func (s ownSelector) Matches(labels.Labels) bool {
	s.h.Errorf("Matches of a caller's selector was called")
	return false
}

func testSelectorOfOnesOwn(h *harness) {
	h.add(configMap("a/one", "1", "red"), configMap("a/two", "1", "blue"))
	for _, q := range []store.Query{{}, {Namespace: "a"}, {Index: "words", Values: []string{"red"}}, {Limit: 7}} {
		asked := 0
		q.Selector = ownSelector{parseSelector(h, "app=red"), h, &asked}
		entries, err := h.Select(q)
		if asked != 1 {
			h.Errorf("Requirements was called %d times, want once", asked)
		}
		must(h, err)
		var keys []string
		for _, e := range entries {
			keys = append(keys, e.Key)
		}
		same(h, "keys", keys, []string{"a/one", "a/own"})
	}
}

// testSelectWhileLoading checks that an incomplete first list is not visible.
func testSelectWhileLoading(h *harness) {
	list := h.relist()
	for _, object := range many(300, "1", "red") {
		must(h, list.Add(object))
	}
	for _, q := range []store.Query{{}, {Namespace: "many"}, {Index: "words", Values: []string{"red"}}, {Selector: parseSelector(h, "app=red")}} {
		checkSelect(h, h, q, nil)
	}
	must(h, list.Close())
}
