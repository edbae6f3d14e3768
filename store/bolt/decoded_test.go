package bolt_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// failingCodec counts what it decodes, and fails if it is told to.
type failingCodec struct {
	codec.Codec
	decoded *atomic.Int64
	fails   *atomic.Bool
}

func (c failingCodec) Decode(data []byte) (kruntime.Object, error) {
	if c.fails.Load() {
		return nil, errors.New("the codec fails")
	}
	c.decoded.Add(1)
	return c.Codec.Decode(data)
}

func newCodec(t *testing.T) failingCodec {
	t.Helper()
	c, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	return failingCodec{c, &atomic.Int64{}, &atomic.Bool{}}
}

// large returns the n-th ConfigMap of about size bytes.
func large(n, size int, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("c%04d", n), UID: "u", ResourceVersion: "1"},
		Data:       map[string]string{"v": strings.Repeat(value, size/len(value))},
	}
}

// kindOf opens a scope of a kind of its own with n objects of about size bytes each.
func kindOf(t *testing.T, db *bolt.DB, kind string, n, size int, opts store.Options) store.Store {
	t.Helper()
	if opts.Codec == nil {
		opts.Codec = newCodec(t).Codec
	}
	s, err := db.Open(store.Scope{Resource: kind + "s", Kind: schema.GroupVersionKind{Version: "v1", Kind: kind}}, opts)
	must(t, err)
	b := store.Batch{RV: "1"}
	for i := range n {
		b.Changes = append(b.Changes, store.Change{Object: large(i, size, "0123456789")})
	}
	must(t, s.Apply(b))
	return s
}

func openFile(t *testing.T) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "informers.db"), bolt.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

func decodedBytes(s store.Store) int64 { return s.(store.ReadCounter).Reads().DecodedBytes }

// TestDecodedBudget checks which scopes share a budget for decoded objects, and that
// nobody has more than it.
func TestDecodedBudget(t *testing.T) {
	const size, mib = 100 << 10, int64(1 << 20)
	own := store.Options{DecodedBytes: 4 * mib}
	grouped := func(group any) store.Options { return store.Options{DecodedBytes: 4 * mib, DecodedGroup: group} }
	for name, c := range map[string]struct {
		opts         []store.Options // of the kinds, each in its own file
		objects      int             // of each kind: 0.3 MiB of the budget each
		budget, most int64           // of all kinds
	}{
		"default":          {opts: make([]store.Options, 3), objects: 120, most: 64 * mib},
		"one each":         {opts: []store.Options{own, own, own}, objects: 20, most: 12 * mib},
		"one of a group":   {opts: []store.Options{grouped("a"), grouped("a"), grouped("a")}, objects: 20, most: 4 * mib},
		"two groups":       {opts: []store.Options{grouped("a"), grouped("b"), grouped("a")}, objects: 20, most: 8 * mib},
		"a group, and own": {opts: []store.Options{grouped("a"), own, grouped("a")}, objects: 20, most: 8 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			var all []store.Store
			for i, opts := range c.opts {
				all = append(all, kindOf(t, openFile(t), fmt.Sprint("Kind", i), c.objects, size, opts))
			}
			for range 3 {
				for _, s := range all {
					for i := range c.objects {
						_, ok, err := s.Object(fmt.Sprintf("default/c%04d", i))
						if err != nil || !ok {
							t.Fatal(ok, err)
						}
					}
				}
			}
			sum := int64(0)
			for _, s := range all {
				sum += decodedBytes(s)
			}
			if sum > c.most || sum < c.most/2 {
				t.Errorf("%d KiB are decoded, want at most %d, and not much less", sum>>10, c.most>>10)
			}
		})
	}
}

// TestDecodedBudgetIsGivenBack checks that a scope that is closed or opened again leaves
// the budget to others.
func TestDecodedBudgetIsGivenBack(t *testing.T) {
	opts := store.Options{DecodedBytes: 10 << 20, DecodedGroup: "given back"}
	first, second := openFile(t), openFile(t)
	s := kindOf(t, first, "First", 10, 100<<10, opts)
	if n := decodedBytes(s); n < 2<<20 {
		t.Fatalf("only %d bytes are decoded", n)
	}
	other := kindOf(t, second, "Other", 10, 100<<10, opts)
	was := decodedBytes(other)
	must(t, first.Close())
	if n := decodedBytes(s); n != 0 {
		t.Errorf("%d bytes of a closed file are decoded", n)
	}
	if n := decodedBytes(other); n != was || n < 2<<20 {
		t.Errorf("%d bytes of the other file are decoded, %d before", n, was)
	}
}

// pointers returns the objects by name.
func pointers(t *testing.T, objects []any) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, obj := range objects {
		out[obj.(*corev1.ConfigMap).Name] = obj
	}
	return out
}

// TestReadersShareObjects checks that readers of one state of an object hold the same
// object, however they have read it and although it does not fit into the budget, and
// that it is decoded once.
func TestReadersShareObjects(t *testing.T) {
	const objects = 30
	for name, budget := range map[string]int64{"nothing fits": 1, "all fits": 64 << 20} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "informers.db")
			c := newCodec(t)
			opts := store.Options{Codec: c, DecodedBytes: budget, Indexers: cache.Indexers{"namespace": cache.MetaNamespaceIndexFunc}}
			db, err := bolt.Open(path, bolt.Options{})
			must(t, err)
			kindOf(t, db, "ConfigMap", objects, 100<<10, opts)
			must(t, db.Close())
			db, err = bolt.Open(path, bolt.Options{})
			must(t, err)
			defer func() { must(t, db.Close()) }()
			s, err := db.Open(store.Scope{Resource: "ConfigMaps", Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}, opts)
			must(t, err)
			c.decoded.Store(0)
			indexer := store.Indexer(s)

			held := make([][]any, 8)
			var readers sync.WaitGroup
			for i := range held {
				readers.Go(func() { held[i] = indexer.List() })
			}
			readers.Wait()
			byIndex, err := indexer.ByIndex("namespace", "default")
			must(t, err)
			held = append(held, byIndex, indexer.List())
			entries, err := s.Select(store.Query{})
			must(t, err)
			typed, err := store.DecodeAll[*corev1.ConfigMap](s, entries)
			must(t, err)
			held = append(held, nil)
			for _, obj := range typed {
				held[len(held)-1] = append(held[len(held)-1], obj)
			}
			want := pointers(t, held[0])
			for i := range held {
				got := pointers(t, held[i])
				for name, obj := range want {
					if got[name] != obj {
						t.Fatalf("reader %d has another %s than the first", i, name)
					}
				}
			}
			if obj, ok, err := s.Object("default/c0003"); err != nil || !ok || obj != want["c0003"] {
				t.Errorf("Object is another one (%v, %v)", ok, err)
			}
			if n := c.decoded.Load(); n != objects {
				t.Errorf("%d objects were decoded, want each of the %d once", n, objects)
			}

			// Another state is another object.
			must(t, s.Apply(store.Batch{RV: "2", Changes: []store.Change{{Object: large(3, 100<<10, "changed")}}}))
			now := pointers(t, indexer.List())
			if got := now["c0003"].(*corev1.ConfigMap).Data["v"][:7]; now["c0003"] == want["c0003"] || got != "changed" {
				t.Errorf("an object that was changed has the value %s", got)
			}
			if now["c0004"] != want["c0004"] {
				t.Error("an object that was not changed is another one")
			}
			if got := want["c0003"].(*corev1.ConfigMap).Data["v"][:7]; got != "0123456" {
				t.Errorf("the object that a reader holds was changed: %s", got)
			}
			runtime.KeepAlive(held)
		})
	}
}

// TestLentObjectsAreForgotten checks that nothing is left of objects that no reader
// holds any more.
func TestLentObjectsAreForgotten(t *testing.T) {
	const objects = 30
	s := kindOf(t, openFile(t), "ConfigMap", objects, 100<<10, store.Options{DecodedBytes: 1})
	list := store.Indexer(s).List()
	if n := len(list); n != objects {
		t.Fatal(n)
	}
	if n := bolt.LentStates(s); n == 0 {
		t.Error("no object is shared")
	}
	runtime.KeepAlive(list)
	for began := time.Now(); bolt.LentStates(s) > 0; runtime.GC() {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d objects are not forgotten", bolt.LentStates(s))
		}
	}
}

// TestSharedDecodingFails checks that a failure to decode is not shared with the readers
// that come after it.
func TestSharedDecodingFails(t *testing.T) {
	const objects = 30
	c := newCodec(t)
	s := kindOf(t, openFile(t), "ConfigMap", objects, 100<<10, store.Options{Codec: c, DecodedBytes: 1})
	c.fails.Store(true)
	entries, err := s.Select(store.Query{})
	must(t, err)
	if _, err := store.DecodeAll[kruntime.Object](s, entries); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("got error %v, want store.ErrCorrupt", err)
	}
	c.fails.Store(false)
	if found, err := s.Objects(store.Query{}); len(found) != objects || err != nil {
		t.Errorf("%d objects: %v", len(found), err)
	}
	runtime.KeepAlive(entries)
}
