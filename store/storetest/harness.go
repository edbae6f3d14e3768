package storetest

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// reporter contains the common methods of *testing.T and *rapid.T.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// indexed is a store together with its cache.Indexer.
type indexed struct {
	store.Store
	*store.CacheIndexer
}

func indexer(s store.Store) indexed { return indexed{s, store.Indexer(s)} }

// harness is a backend in a directory, with one open scope.
type harness struct {
	*testing.T
	indexed
	cfg   Config
	dir   string
	db    store.Backend
	scope store.Scope
	opts  store.Options
}

func newHarness(t *testing.T, cfg Config) *harness {
	h := &harness{T: t, cfg: cfg, dir: t.TempDir(), scope: configMapScope(), opts: options(t)}
	h.db = cfg.Open(t, h.dir)
	h.indexed = h.open(h.scope, h.opts)
	t.Cleanup(func() {
		if err := h.db.Close(); err != nil {
			t.Errorf("close backend: %v", err)
		}
	})
	return h
}

// options returns the options for configMapScope: two indexes with an identity and one
// without.
func options(t *testing.T) store.Options {
	return store.Options{
		Codec:    codecFor(t, &corev1.ConfigMap{}),
		Indexers: cache.Indexers{"words": words},
		Indexes:  []index.Index{index.Namespace(), index.Label("app")},
	}
}

func codecFor(t *testing.T, example runtime.Object) codec.Codec {
	t.Helper()
	c, err := codec.For(example)
	if err != nil {
		t.Fatalf("codec for %T: %v", example, err)
	}
	return c
}

// open opens a scope. It fails the test on an error.
func (h *harness) open(scope store.Scope, opts store.Options) indexed {
	h.Helper()
	s, err := h.db.Open(scope, opts)
	if err != nil {
		h.Fatalf("Open(%s): %v", scope, err)
	}
	return indexer(s)
}

// reopen closes the store, and the backend if it is persistent, and opens both again.
func (h *harness) reopen() {
	h.Helper()
	h.shut()
	h.indexed = h.open(h.scope, h.opts)
}

// shut is the first half of reopen.
func (h *harness) shut() {
	h.Helper()
	must(h, h.Close())
	if h.cfg.Persistent {
		must(h, h.db.Close())
		h.db = h.cfg.Open(h.T, h.dir)
	}
}

// must fails the test if err is not nil.
func must(t reporter, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// wantIs reports an error if got is not want.
func wantIs(t reporter, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

var semantic = func() conversion.Equalities {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(time.Time.Equal); err != nil {
		panic(err)
	}
	return e
}()

// same reports a difference. Objects are compared like in the API server: nil and empty
// are equal, and times and quantities are compared by value.
func same[T any](t reporter, what string, got, want T) {
	t.Helper()
	if !semantic.DeepEqual(got, want) { // much faster than cmp
		t.Errorf("%s (-want +got):\n%s", what, cmp.Diff(want, got, cmpopts.EquateEmpty()))
	}
}

// add adds objects one by one.
func (h *harness) add(objects ...runtime.Object) {
	h.Helper()
	for _, object := range objects {
		must(h, h.Add(object))
	}
}

// apply prepares and applies a batch.
func (h *harness) apply(rv string, changes ...store.Change) {
	h.Helper()
	b := store.Batch{RV: rv, Changes: changes}
	must(h, h.Prepare(&b))
	must(h, h.Apply(b))
}

// put returns the change that stores an object.
func put(object runtime.Object) store.Change { return store.Change{Object: object} }

// view contains everything that readers of a cache.Indexer can see.
type view struct {
	Objects map[string]any
	Indexes map[string]map[string][]string // name -> value -> keys
	LastRV  string
}

// viewOf reads everything with every method and reports methods that disagree.
func viewOf(t reporter, ix cache.Indexer) view {
	t.Helper()
	v := view{Objects: map[string]any{}, Indexes: map[string]map[string][]string{}, LastRV: ix.LastStoreSyncResourceVersion()}
	for _, object := range ix.List() {
		key := keyOf(t, object)
		if _, twice := v.Objects[key]; twice {
			t.Errorf("List: %q occurs twice", key)
		}
		v.Objects[key] = object
		got, ok, err := ix.GetByKey(key)
		if err != nil || !ok {
			t.Errorf("GetByKey(%q) = %t, %v for a key that List has", key, ok, err)
		}
		same(t, "GetByKey against List", got, object)
	}
	same(t, "ListKeys against List", slices.Sorted(slices.Values(ix.ListKeys())), slices.Sorted(maps.Keys(v.Objects)))
	for name := range ix.GetIndexers() {
		v.Indexes[name] = entriesOf(t, ix, name)
	}
	return v
}

// entriesOf reads the entries of one index. The keys are in the order of IndexKeys.
func entriesOf(t reporter, ix cache.Indexer, name string) map[string][]string {
	t.Helper()
	entries := map[string][]string{}
	for _, value := range ix.ListIndexFuncValues(name) {
		keys, err := ix.IndexKeys(name, value)
		if err != nil {
			t.Fatalf("IndexKeys(%q, %q): %v", name, value, err)
		}
		if _, twice := entries[value]; twice || len(keys) == 0 {
			t.Errorf("ListIndexFuncValues(%q): value %q occurs twice or has no object", name, value)
		}
		entries[value] = keys
		objects, err := ix.ByIndex(name, value)
		if err != nil {
			t.Fatalf("ByIndex(%q, %q): %v", name, value, err)
		}
		same(t, "ByIndex against IndexKeys", sortedKeys(t, objects), keys)
	}
	return entries
}

// keyOf returns the key of an object.
func keyOf(t reporter, object any) string {
	t.Helper()
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		t.Fatalf("a %T without a key came back: %v", object, err)
	}
	return key
}

// sortedKeys returns the keys of objects in order.
func sortedKeys[T any](t reporter, objects []T) []string {
	t.Helper()
	keys := make([]string, len(objects))
	for i, object := range objects {
		keys[i] = keyOf(t, object)
	}
	slices.Sort(keys)
	return keys
}

// wantObjects reports an error if the scope does not hold exactly these objects with
// their index entries.
func (h *harness) wantObjects(want ...runtime.Object) {
	h.Helper()
	got, expect := viewOf(h, h), expected(want)
	got.LastRV = ""
	same(h, "objects and index entries", got, expect)
	if h.Len() != len(want) {
		h.Errorf("Len() = %d, want %d", h.Len(), len(want))
	}
}

// expected returns the expected view of config maps with options.
func expected(objects []runtime.Object) view {
	v := view{Objects: map[string]any{}, Indexes: map[string]map[string][]string{}}
	reference := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexes())
	for _, object := range objects {
		if err := reference.Add(object); err != nil {
			panic(err)
		}
	}
	for _, key := range reference.ListKeys() {
		v.Objects[key], _, _ = reference.GetByKey(key)
	}
	for _, name := range indexNames {
		v.Indexes[name] = map[string][]string{}
		for _, value := range reference.ListIndexFuncValues(name) {
			v.Indexes[name][value], _ = reference.IndexKeys(name, value)
		}
	}
	return v
}
