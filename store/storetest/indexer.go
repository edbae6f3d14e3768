package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/store"
)

var indexerCases = []testCase{
	{"LikeClientGo", testLikeClientGo},
	{"Get", testGet},
	{"Index", testIndex},
	{"UnknownIndex", testUnknownIndex},
	{"UnnamedIndex", testUnnamedIndex},
	{"DeleteTombstone", testDeleteTombstone},
	{"Replace", testReplace},
	{"RefusedObjects", testRefusedObjects},
	{"NoRuntimeObject", testNoRuntimeObject},
	{"AddIndexers", testAddIndexers},
	{"AddIndexersConflict", testAddIndexersConflict},
	{"AddIndexersError", testAddIndexersError},
	{"GetIndexersIsACopy", testGetIndexersIsACopy},
}

// testLikeClientGo makes the same calls to client-go's indexer and compares everything
// that can be read after each call.
func testLikeClientGo(h *harness) {
	reference := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexes())
	for i, step := range []func(ix cache.Indexer) error{
		func(cache.Indexer) error { return nil },
		func(ix cache.Indexer) error { return ix.Add(configMap("b/one", "1", "red blue red")) },
		func(ix cache.Indexer) error { return ix.Add(configMap("a/two", "2", "blue")) },
		func(ix cache.Indexer) error { return ix.Add(configMap("cluster-wide", "3", "")) },
		func(ix cache.Indexer) error { return ix.Update(configMap("a/new", "4", "green red")) },
		func(ix cache.Indexer) error { return ix.Add(configMap("a/two", "5", "red \x00 zero")) },
		func(ix cache.Indexer) error { return ix.Update(configMap("b/one", "6", "blue")) },
		func(ix cache.Indexer) error { return ix.Update(configMap("b/one", "6", "")) },
		func(ix cache.Indexer) error { return ix.Delete(configMap("a/missing", "7", "")) },
		func(ix cache.Indexer) error { return ix.Delete(configMap("a/two", "8", "not what is stored")) },
		func(ix cache.Indexer) error { return ix.Delete(cache.ExplicitKey("a/new")) },
		func(ix cache.Indexer) error { return ix.Add(configMap("a/unversioned", "", "x")) },
		func(ix cache.Indexer) error { ix.Bookmark("90"); return nil },
		func(ix cache.Indexer) error { return ix.Resync() },
		func(ix cache.Indexer) error {
			return ix.Replace([]any{
				configMap("a/two", "91", "first"), configMap("c/x", "92", "x"), configMap("a/two", "93", "second"),
			}, "95")
		},
		func(ix cache.Indexer) error { return ix.Replace(nil, "96") },
	} {
		must(h, step(reference))
		must(h, step(h))
		same(h, fmt.Sprintf("after step %d", i), viewOf(h, h), viewOf(h, reference))
	}
}

func testGet(h *harness) {
	want := configMap("a/one", "1", "red")
	h.add(want)
	for _, by := range []any{configMap("a/one", "", ""), cache.ExplicitKey("a/one")} {
		got, ok, err := h.Get(by)
		if !ok || err != nil {
			h.Errorf("Get(%T) = %t, %v; want the object", by, ok, err)
		}
		same[any](h, "Get", got, want)
	}
	got, ok, err := h.Get(configMap("a/missing", "", ""))
	if got != nil || ok || err != nil {
		h.Errorf("Get of a missing object = %v, %t, %v; want nil, false, nil", got, ok, err)
	}
	got, ok, err = h.GetByKey("a/missing")
	if got != nil || ok || err != nil {
		h.Errorf("GetByKey of a missing key = %v, %t, %v; want nil, false, nil", got, ok, err)
	}
	if _, ok, err = h.Get(7); ok || err == nil {
		h.Errorf("Get(7) = %t, %v; want an error", ok, err)
	}
}

func testIndex(h *harness) {
	h.add(configMap("a/one", "1", "red blue"), configMap("a/two", "2", "blue"), configMap("b/three", "3", "red green"))
	for query, want := range map[string][]string{
		"red blue": {"a/one", "a/two", "b/three"}, // a/one has both, is returned once
		"blue":     {"a/one", "a/two"},
		"yellow":   {},
		"":         {},
	} {
		got, err := h.Index("words", configMap("not/stored", "", query))
		must(h, err)
		same(h, fmt.Sprintf("Index(words, an object with %q)", query), sortedKeys(h, got), want)
	}
	got, err := h.ByIndex("words", "yellow")
	must(h, err)
	same(h, "ByIndex of a value that is not there", got, nil)
	keys, err := h.IndexKeys("words", "yellow")
	must(h, err)
	same(h, "IndexKeys of a value that is not there", keys, nil)

	for _, how := range []string{"error", "panic"} {
		if _, err := h.Index("words", annotated(configMap("a/x", "", ""), how)); err == nil {
			h.Errorf("Index with a function that ends in %s: got no error", how)
		}
	}
}

func testUnknownIndex(h *harness) {
	h.add(configMap("a/one", "1", "red"))
	for _, name := range []string{"nope", ""} {
		_, err := h.Index(name, configMap("a/one", "1", "red"))
		wantIs(h, "Index", err, store.ErrNoIndex)
		_, err = h.ByIndex(name, "red")
		wantIs(h, "ByIndex", err, store.ErrNoIndex)
		_, err = h.IndexKeys(name, "red")
		wantIs(h, "IndexKeys", err, store.ErrNoIndex)
		_, err = h.Values(name)
		wantIs(h, "Values", err, store.ErrNoIndex)
		if err != nil && !strings.Contains(err.Error(), strconv.Quote(name)) {
			h.Errorf("error does not name the index: %v", err)
		}
		if got := h.ListIndexFuncValues(name); got != nil {
			h.Errorf("ListIndexFuncValues = %q, want nil", got)
		}
	}
}

// testUnnamedIndex checks that an index may have the name "", as client-go's may.
func testUnnamedIndex(h *harness) {
	must(h, h.AddIndexers(cache.Indexers{"": length}))
	h.add(configMap("a/one", "1", "red"), configMap("a/two", "2", "blue"), configMap("b/three", "3", "tea"))
	got, err := h.ByIndex("", "3")
	must(h, err)
	same(h, "ByIndex", sortedKeys(h, got), []string{"a/one", "b/three"})
	got, err = h.Index("", configMap("not/stored", "", "blue"))
	must(h, err)
	same(h, "Index", sortedKeys(h, got), []string{"a/two"})
	keys, err := h.IndexKeys("", "3")
	must(h, err)
	same(h, "IndexKeys", keys, []string{"a/one", "b/three"})
	same(h, "ListIndexFuncValues", h.ListIndexFuncValues(""), []string{"3", "4"})
	got, err = h.ByIndex("", "7")
	must(h, err)
	same(h, "ByIndex of a value that is not there", got, nil)
}

func testDeleteTombstone(h *harness) {
	one, two, three := configMap("a/one", "1", "x"), configMap("a/two", "2", "x"), configMap("a/three", "3", "x")
	h.add(one, two, three)
	must(h, h.Delete(cache.DeletedFinalStateUnknown{Key: "a/one", Obj: one}))
	must(h, h.Delete(cache.DeletedFinalStateUnknown{Key: "a/two"}))
	must(h, h.Delete(cache.DeletedFinalStateUnknown{Key: "a/missing"}))
	h.wantObjects(three)
	if err := h.Delete("a/three"); err == nil {
		h.Errorf("Delete of a string: got no error")
	}
	h.wantObjects(three)
}

func testReplace(h *harness) {
	h.add(configMap("a/old", "1", "red"), configMap("a/kept", "2", "red"))
	kept, added := configMap("a/kept", "3", "blue"), configMap("b/new", "4", "red")
	must(h, h.Replace([]any{kept, added}, "10"))
	h.wantObjects(kept, added)
	for name, object := range refused() {
		var objectErr *store.ObjectError
		if err := h.Replace([]any{configMap("a/kept", "5", "green"), object}, "11"); !errors.As(err, &objectErr) {
			h.Errorf("Replace with %s: got error %v, want an *ObjectError", name, err)
		}
	}
	h.wantObjects(kept, added)
	if got := h.Checkpoint().RV; got != "10" {
		h.Errorf("Checkpoint().RV = %q after a Replace that failed, want 10", got)
	}
	must(h, h.Replace(nil, ""))
	h.wantObjects()
	if c := h.Checkpoint(); c.RV != "" || c.Reason == "" {
		h.Errorf("Checkpoint() = %+v after Replace without a resource version, want a reason", c)
	}
}

// testRefusedObjects checks that a failed write changes nothing and that its error shows
// no content.
func testRefusedObjects(h *harness) {
	good := configMap("a/good", "1", "red")
	old := []runtime.Object{good, configMap("a/error", "2", "red"), configMap("a/panic", "3", "red blue")}
	h.add(old...)
	for name, object := range refused() {
		for method, write := range map[string]func(any) error{"Add": h.Add, "Update": h.Update} {
			err := write(object)
			var objectErr *store.ObjectError
			if !errors.As(err, &objectErr) {
				h.Errorf("%s of an object with %s: got error %v, want an *ObjectError", method, name, err)
				continue
			}
			if strings.Contains(err.Error(), secret) {
				h.Errorf("%s of an object with %s: the error shows its content: %v", method, name, err)
			}
			if strings.HasPrefix(name, "index") && objectErr.Key != keyOf(h, object) {
				h.Errorf("%s of an object with %s: error has key %q, want %q", method, name, objectErr.Key, keyOf(h, object))
			}
		}
	}
	h.wantObjects(old...)
	if got := h.LastStoreSyncResourceVersion(); got != "3" {
		h.Errorf("LastStoreSyncResourceVersion() = %q, want that of the last write which succeeded, 3", got)
	}
}

func testNoRuntimeObject(h *harness) {
	for _, obj := range []any{nil, 7, "a/one", corev1.ConfigMap{}, struct{ S string }{secret}} {
		err := h.Add(obj)
		var objectErr *store.ObjectError
		if !errors.As(err, &objectErr) {
			h.Errorf("Add(%T): got error %v, want an *ObjectError", obj, err)
			continue
		}
		if obj != nil && !strings.Contains(err.Error(), fmt.Sprintf("%T", obj)) {
			h.Errorf("Add(%T): the error does not name the Go type: %v", obj, err)
		}
		if err := h.Replace([]any{obj}, "1"); !errors.As(err, &objectErr) {
			h.Errorf("Replace with a %T: got error %v, want an *ObjectError", obj, err)
		}
	}
	h.wantObjects()
}

// length indexes config maps by the length of their words.
func length(obj any) ([]string, error) {
	return []string{fmt.Sprint(len(obj.(*corev1.ConfigMap).Data["words"]))}, nil
}

func testAddIndexers(h *harness) {
	given := cache.Indexers{"empty": func(any) ([]string, error) { return nil, nil }}
	must(h, h.AddIndexers(given))
	must(h, h.AddIndexers(nil))
	if len(given) != 1 {
		h.Errorf("AddIndexers changed its argument: it has %d entries, had 1", len(given))
	}
	given["late"] = length // must not become an index of the store

	h.add(configMap("a/one", "1", "red"), configMap("a/two", "2", "blue"))
	must(h, h.AddIndexers(cache.Indexers{"length": length}))
	same(h, "index of what was there", entriesOf(h, h, "length"), map[string][]string{"3": {"a/one"}, "4": {"a/two"}})
	h.add(configMap("a/two", "3", "red"), configMap("b/three", "4", "green"))
	must(h, h.Delete(configMap("a/one", "1", "red")))
	same(h, "index after changes", entriesOf(h, h, "length"), map[string][]string{"3": {"a/two"}, "5": {"b/three"}})
	same(h, "empty index", entriesOf(h, h, "empty"), nil)
	same(h, "index from before", entriesOf(h, h, "words"), map[string][]string{"red": {"a/two"}, "green": {"b/three"}})
	if _, err := h.ByIndex("late", "3"); !errors.Is(err, store.ErrNoIndex) {
		h.Errorf("ByIndex of what was put into the caller's map later: got error %v, want %v", err, store.ErrNoIndex)
	}
}

func testAddIndexersConflict(h *harness) {
	h.add(configMap("a/one", "1", "red"))
	before := viewOf(h, h)
	for _, taken := range indexNames {
		if err := h.AddIndexers(cache.Indexers{"length": length, taken: words}); err == nil {
			h.Errorf("AddIndexers with the name %q, which is taken: got no error", taken)
		} else if !strings.Contains(err.Error(), taken) {
			h.Errorf("the error does not name the index %q: %v", taken, err)
		}
	}
	same(h, "after conflicts", viewOf(h, h), before)
	must(h, h.AddIndexers(cache.Indexers{"length": length}))
}

func testAddIndexersError(h *harness) {
	h.add(configMap("a/good", "1", "red"), configMap("b/bad", "2", "blue"))
	before := viewOf(h, h)
	for name, fail := range map[string]func() ([]string, error){
		"error": func() ([]string, error) { return nil, errors.New("no") },
		"panic": func() ([]string, error) { panic(secret) },
	} {
		err := h.AddIndexers(cache.Indexers{"length": length, "fails": func(obj any) ([]string, error) {
			if keyOf(h, obj) == "b/bad" {
				return fail()
			}
			return []string{"x"}, nil
		}})
		if err == nil {
			h.Errorf("AddIndexers with a function that ends in %s: got no error", name)
			continue
		}
		if text := err.Error(); !strings.Contains(text, "fails") || !strings.Contains(text, "b/bad") || strings.Contains(text, secret) {
			h.Errorf("AddIndexers with a function that ends in %s: error must name index and key only: %v", name, err)
		}
		same(h, "after AddIndexers that failed", viewOf(h, h), before)
	}
	h.add(configMap("b/bad", "3", "green"))
	must(h, h.AddIndexers(cache.Indexers{"length": length}))
}

func testGetIndexersIsACopy(h *harness) {
	got := h.GetIndexers()
	for _, name := range indexNames {
		if got[name] == nil {
			h.Errorf("GetIndexers has no function for %q", name)
		}
	}
	if len(got) != len(indexNames) {
		h.Errorf("GetIndexers has %d functions, want those of %q", len(got), indexNames)
	}
	values, err := got["words"](configMap("a/one", "1", "red"))
	must(h, err)
	same(h, "values by the function that was returned", values, []string{"red"})
	clear(got)
	got["length"] = length
	clear(h.opts.Indexers) // the map that was passed to Open
	h.add(configMap("a/one", "1", "red"))
	h.wantObjects(configMap("a/one", "1", "red"))
}
