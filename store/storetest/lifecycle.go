package storetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

var lifecycleCases = []testCase{
	{"InUse", testInUse},
	{"OpenError", testOpenError},
	{"TwoScopes", testTwoScopes},
	{"StoreClosed", testStoreClosed},
	{"BackendClosed", testBackendClosed},
	{"BackendClosedFirst", testBackendClosedFirst},
	{"Scopes", testScopes},
	{"Compare", testCompare},
}

func testInUse(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	_, err := h.db.Open(h.scope, h.opts)
	wantIs(h, "Open of a scope that is open", err, store.ErrInUse)
	fresh := h.opts
	fresh.Fresh = true
	_, err = h.db.Open(h.scope, fresh)
	wantIs(h, "Open with Fresh of a scope that is open", err, store.ErrInUse)
	h.wantObjects(configMap("a/one", "1", "red"))

	first := h.Store
	must(h, first.Close())
	h.indexed = h.open(h.scope, h.opts)
	must(h, first.Close()) // must not end the second lease
	_, err = h.db.Open(h.scope, h.opts)
	wantIs(h, "Open after the first store was closed twice", err, store.ErrInUse)
	h.wantObjects(configMap("a/one", "1", "red"))
}

// testOpenError checks that an Open that fails does not lease the scope.
func testOpenError(h *harness) {
	must(h, h.Close())
	bad := h.opts
	bad.Indexers = cache.Indexers{"label:app": words}
	if _, err := h.db.Open(h.scope, bad); err == nil {
		h.Errorf("Open with two indexes of one name: got no error")
	}
	bad.Indexers = cache.Indexers{"nil": nil}
	if _, err := h.db.Open(h.scope, bad); err == nil {
		h.Errorf("Open with an index without a function: got no error")
	}
	h.indexed = h.open(h.scope, h.opts)
}

func testTwoScopes(h *harness) {
	scope := h.scope
	scope.Namespace = "a"
	other := h.open(scope, h.opts)
	h.apply("1", put(configMap("a/one", "1", "red")), put(configMap("b/two", "1", "blue")))
	must(h, other.Apply(store.Batch{RV: "2", Changes: []store.Change{put(configMap("a/one", "2", "green"))}}))
	must(h, other.Add(configMap("a/other", "2", "red")))
	for range 2 {
		h.wantObjects(configMap("a/one", "1", "red"), configMap("b/two", "1", "blue"))
		same(h, "objects of the other scope", viewOf(h, other).Objects, map[string]any{
			"a/one": configMap("a/one", "2", "green"), "a/other": configMap("a/other", "2", "red"),
		})
		same(h, "index of the other scope", entriesOf(h, other, "words"), map[string][]string{"green": {"a/one"}, "red": {"a/other"}})
		same(h, "checkpoints", []string{h.Checkpoint().RV, other.Checkpoint().RV}, []string{"1", "2"})
		must(h, other.Close())
		h.reopen()
		other = h.open(scope, h.opts)
	}
	must(h, other.Replace(nil, "3"))
	h.wantObjects(configMap("a/one", "1", "red"), configMap("b/two", "1", "blue"))
}

// writes returns all methods that change a store and return an error.
func (h *harness) writes() map[string]func() error {
	return map[string]func() error{
		"Add":         func() error { return h.Add(configMap("a/new", "9", "red")) },
		"Update":      func() error { return h.Update(configMap("a/one", "9", "blue")) },
		"Delete":      func() error { return h.Delete(configMap("a/one", "9", "")) },
		"Replace":     func() error { return h.Replace(nil, "9") },
		"Apply":       func() error { return h.Apply(store.Batch{RV: "9", Changes: []store.Change{{Key: "a/one"}}}) },
		"AddIndexers": func() error { return h.AddIndexers(cache.Indexers{"length": length}) },
		"Invalidate":  func() error { return h.Invalidate(h.Context(), "late") },
		"Relist":      func() error { _, err := h.Relist(); return err },
	}
}

// testStoreClosed checks that a closed store can be read but not written.
func testStoreClosed(h *harness) {
	one := configMap("a/one", "1", "red")
	h.apply("1", put(one))
	entry, _, err := h.Entry("a/one")
	must(h, err)
	list := h.relist()
	must(h, h.Close())
	must(h, h.Close())
	for name, write := range h.writes() {
		wantIs(h, name+" after Close", write(), store.ErrClosed)
	}
	wantIs(h, "Add to a relist after Close of its store", list.Add(one), store.ErrClosed)
	must(h, list.Close())
	h.Bookmark("9")
	h.wantObjects(one)
	must(h, h.Err())
	if got := h.Checkpoint().RV; got != "1" {
		h.Errorf("Checkpoint().RV = %q after Close, want 1", got)
	}
	same(h, "All after Close", keysOf(h, h.Store), []string{"a/one"})
	checkSelect(h, h, store.Query{Namespace: "a"}, map[string]*corev1.ConfigMap{"a/one": one})
	got, err := h.Decode(entry)
	must(h, err)
	same[any](h, "Decode after Close", got, one)
}

// keysOf returns the keys that All yields.
func keysOf(h *harness, s store.Store) []string {
	h.Helper()
	var keys []string
	for object, err := range s.All() {
		must(h, err)
		keys = append(keys, keyOf(h, object))
	}
	return keys
}

// testBackendClosed checks that a store whose backend is closed returns no content, and
// returns an error if the method has one.
func testBackendClosed(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	entry, _, err := h.Entry("a/one")
	must(h, err)
	closed := h.indexed
	must(h, closed.Close())
	h.indexed = h.open(h.scope, h.opts)
	must(h, h.db.Close())
	must(h, h.db.Close())
	for _, s := range []indexed{closed, h.indexed} {
		h.indexed = s
		h.wantClosed()
		if _, err := h.Decode(entry); err != nil {
			h.Errorf("Decode after Close of the backend: %v", err)
		}
		must(h, h.Close())
	}
	_, err = h.db.Open(h.scope, h.opts)
	wantIs(h, "Open after Close of the backend", err, store.ErrClosed)
	_, err = h.db.Scopes()
	wantIs(h, "Scopes after Close of the backend", err, store.ErrClosed)
}

// wantClosed calls every method of a store whose backend is closed.
func (h *harness) wantClosed() {
	h.Helper()
	for name, write := range h.writes() {
		wantIs(h, name, write(), store.ErrClosed)
	}
	_, _, err := h.Get(configMap("a/one", "", ""))
	wantIs(h, "Get", err, store.ErrClosed)
	_, _, err = h.GetByKey("a/one")
	wantIs(h, "GetByKey", err, store.ErrClosed)
	_, err = h.Index("words", configMap("a/one", "", "red"))
	wantIs(h, "Index", err, store.ErrClosed)
	_, err = h.ByIndex("words", "red")
	wantIs(h, "ByIndex", err, store.ErrClosed)
	_, err = h.IndexKeys("words", "red")
	wantIs(h, "IndexKeys", err, store.ErrClosed)
	_, _, err = h.Entry("a/one")
	wantIs(h, "Entry", err, store.ErrClosed)
	_, err = h.Select(store.Query{Limit: 1})
	wantIs(h, "Pages", err, store.ErrClosed)
	_, err = h.Select(store.Query{})
	wantIs(h, "Select", err, store.ErrClosed)
	_, _, err = h.Object("a/one")
	wantIs(h, "Object", err, store.ErrClosed)
	_, err = h.Objects(store.Query{})
	wantIs(h, "Objects", err, store.ErrClosed)
	_, err = h.Keys(store.Query{})
	wantIs(h, "Keys", err, store.ErrClosed)
	_, err = h.Values("words")
	wantIs(h, "Values", err, store.ErrClosed)
	n := 0
	for _, err := range h.All() {
		wantIs(h, "All", err, store.ErrClosed)
		n++
	}
	for _, err := range store.HeadersOfAll(h) {
		wantIs(h, "Headers", err, store.ErrClosed)
		n++
	}
	if n != 2 {
		h.Errorf("All and Headers yield %d times, want one error each", n)
	}
	if got := h.List(); len(got) != 0 {
		h.Errorf("List has %d objects", len(got))
	}
	wantIs(h, "Err", h.Err(), store.ErrClosed)
	if got := h.ListIndexFuncValues("words"); len(got) != 0 {
		h.Errorf("ListIndexFuncValues = %q", got)
	}
	h.Bookmark("9")
	_, _, _, _ = h.ListKeys(), h.GetIndexers(), h.Len(), h.Checkpoint() // must not panic
}

// testBackendClosedFirst checks that closing the backend writes the pending changes of
// its stores.
func testBackendClosedFirst(h *harness) {
	if !h.cfg.Persistent {
		h.Skip("forgets")
	}
	h.apply("1", put(configMap("a/one", "1", "red")))
	must(h, h.db.Close())
	must(h, h.Close())
	h.db = h.cfg.Open(h.T, h.dir)
	h.indexed = h.open(h.scope, h.opts)
	h.wantObjects(configMap("a/one", "1", "red"))
	if got := h.Checkpoint().RV; got != "1" {
		h.Errorf("Checkpoint().RV = %q, want 1", got)
	}
}

func testScopes(h *harness) {
	must(h, h.Close())
	pods := store.Scope{Resource: "pods", Kind: corev1.SchemeGroupVersion.WithKind("Pod")}
	in := h.scope
	in.Namespace = "a"
	selected := h.scope
	selected.LabelSelector = "app=red"
	for _, scope := range []store.Scope{pods, selected, in} {
		must(h, h.open(scope, store.Options{Codec: h.opts.Codec, Fresh: true}).Close())
	}
	h.indexed = h.open(h.scope, h.opts)
	h.listed(configMap("a/one", "1", "red"), configMap("b/two", "1", "red"), configMap("b/three", "1", "blue"))
	must(h, h.Flush(h.Context()))
	want := []store.IndexInfo{
		{Name: "label:app", Identity: index.Label("app").Identity(), Values: 2},
		{Name: "namespace", Identity: index.Namespace().Identity(), Values: 2},
	}
	for _, open := range []bool{true, false} {
		if !open {
			h.shut()
		}
		infos, err := h.db.Scopes()
		must(h, err)
		var names []string
		for _, info := range infos {
			names = append(names, info.Scope.String())
			if info.ID != info.Scope.ID() {
				h.Errorf("%s has ID %q, want %q", info.Scope, info.ID, info.Scope.ID())
			}
		}
		same(h, fmt.Sprintf("scopes while one is open: %t", open), names,
			[]string{"configmaps", "configmaps with labels app=red", "configmaps in a", "pods"})
		h.wantInfo(infos, h.scope, 3, true, "10", want)
		h.wantInfo(infos, in, 0, false, "", nil)
	}
}

// wantInfo reports a wrong description of a scope. It compares the indexes with an
// identity, if want is not nil.
func (h *harness) wantInfo(infos []store.Info, scope store.Scope, objects int, complete bool, rv string, want []store.IndexInfo) {
	h.Helper()
	for _, info := range infos {
		if info.Scope != scope {
			continue
		}
		if info.Objects != objects || info.Complete != complete || info.Checkpoint.RV != rv || info.Codec != h.opts.Codec.Name() {
			h.Errorf("Info of %s = %+v; want %d objects, complete %t, RV %q, codec %s",
				scope, info, objects, complete, rv, h.opts.Codec.Name())
		}
		if h.cfg.Persistent && (info.Bytes > 0) != (objects > 0) {
			h.Errorf("Info of %s has %d bytes for %d objects", scope, info.Bytes, objects)
		}
		var got []store.IndexInfo
		for _, ix := range info.Indexes {
			if ix.Identity != "" {
				got = append(got, ix)
			}
		}
		if want != nil {
			same(h, "indexes of "+scope.String(), got, want)
		}
		return
	}
	h.Errorf("no Info of %s", scope)
}

// testCompare checks the header of an object, and that its content is compared regardless
// of its resource version.
func testCompare(h *harness) {
	stored := configMap("ns/a", "1", "x")
	must(h, h.Apply(store.Batch{RV: "1", Changes: []store.Change{{Object: stored}}}))
	for range 2 {
		held, same, err := h.Compare(stored.DeepCopyObject())
		if must(h, err); !same || held.Key != "ns/a" || held.RV != stored.ResourceVersion || held.UID != string(stored.UID) {
			h.Errorf("the same object: %v, %+v", same, held)
		}
		kinded := stored.DeepCopy()
		kinded.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		if _, same, err = h.Compare(kinded); err != nil || !same || kinded.Kind == "" {
			h.Errorf("the same object with apiVersion and kind: %v, %v, %q", same, err, kinded.Kind)
		}
		other := stored.DeepCopy()
		other.Data = map[string]string{"other": "content"}
		if held, same, err = h.Compare(other); err != nil || same || held.Key != "ns/a" {
			h.Errorf("other content: %v, %+v, %v", same, held, err)
		}
		if held, same, err = h.Compare(configMap("ns/b", "1", "x")); err != nil || same || held.Key != "" {
			h.Errorf("an object that is not stored: %v, %+v, %v", same, held, err)
		}
		h.reopen()
	}
}
