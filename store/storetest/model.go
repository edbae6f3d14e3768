package storetest

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"github.com/informctl/informctl/store"
)

// RunModel applies random writes to a backend and to a plain map, and compares everything
// that can be read after each step. After a failure it prints how to repeat the same
// steps.
func RunModel(t *testing.T, cfg Config) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "model")
		must(rt, err)
		m := &model{cfg: cfg, t: t, dir: dir, objects: map[string]*corev1.ConfigMap{}}
		m.db = cfg.Open(t, dir)
		defer func() { must(rt, m.db.Close()) }()
		m.open(rt)
		m.Replace(rt) // so that there is a complete list to compare with
		rt.Repeat(rapid.StateMachineActions(m))
	})
}

// model is a map of objects and the store that must match it. Its exported methods are
// the steps.
type model struct {
	cfg Config
	t   *testing.T
	dir string
	db  store.Backend
	s   indexed

	objects  map[string]*corev1.ConfigMap
	revision int    // resource version of the last object
	rv       string // of the checkpoint
	lastRV   string
	lastSet  bool         // lastRV was set since the store was opened
	earlier  store.Before // of a step before
}

func (m *model) open(rt *rapid.T) {
	s, err := m.db.Open(configMapScope(), options(m.t))
	must(rt, err)
	m.s, m.lastSet = indexer(s), false
}

// next returns a new resource version.
func (m *model) next() string {
	m.revision++
	return fmt.Sprint(m.revision)
}

func (m *model) last(rv string) { m.lastRV, m.lastSet = rv, true }

// longKey is longer than a key in a file may be: Kubernetes does not limit the length of
// the names of Roles.
var longKey = "a/x" + strings.Repeat("long ", 9000)

// key draws one of a few keys. Some of them are prefixes of others.
func (m *model) key(rt *rapid.T) string {
	return rapid.SampledFrom([]string{"a/x", "a/xy", "a/y", "a-b/x", "b/x", "b/xx", "x", "xy", longKey}).Draw(rt, "key")
}

// object draws an object. Its resource version is new, or sometimes that of the existing
// object, whose content may differ.
func (m *model) object(rt *rapid.T, key string) *corev1.ConfigMap {
	rv := m.next()
	if old := m.objects[key]; old != nil && rapid.Bool().Draw(rt, "equal rv") {
		rv = old.ResourceVersion
	}
	text := rapid.SampledFrom([]string{"", "red", "red blue", "blue red red", "re", "\x00 red\x00"}).Draw(rt, "words")
	return configMap(key, rv, text)
}

// Add stores one object.
func (m *model) Add(rt *rapid.T) {
	cm := m.object(rt, m.key(rt))
	must(rt, m.s.Add(cm))
	m.store(cm)
	m.last(cm.ResourceVersion)
}

// Update stores another state of an existing object.
func (m *model) Update(rt *rapid.T) {
	if len(m.objects) == 0 {
		rt.Skip("nothing there")
	}
	cm := m.object(rt, rapid.SampledFrom(slices.Sorted(maps.Keys(m.objects))).Draw(rt, "existing"))
	must(rt, m.s.Update(cm))
	m.store(cm)
	m.last(cm.ResourceVersion)
}

func (m *model) store(cm *corev1.ConfigMap) {
	m.objects[cache.MetaObjectToName(cm).String()] = cm.DeepCopy()
}

// Delete removes one object, if it exists.
func (m *model) Delete(rt *rapid.T) {
	key := m.key(rt)
	rv := m.next()
	must(rt, m.s.Delete(configMap(key, rv, "")))
	delete(m.objects, key)
	m.last(rv)
}

// Batch applies several changes at once, prepared or not, with or without an RV.
func (m *model) Batch(rt *rapid.T) {
	keys := rapid.SliceOfNDistinct(rapid.Custom(m.key), 0, 5, rapid.ID[string]).Draw(rt, "keys")
	b := store.Batch{Before: m.before(rt, keys)}
	for _, key := range keys {
		if rapid.Bool().Draw(rt, "delete") {
			b.Changes = append(b.Changes, store.Change{Key: key})
			delete(m.objects, key)
			continue
		}
		cm := m.object(rt, key)
		b.Changes = append(b.Changes, put(cm))
		m.store(cm)
	}
	if rapid.Bool().Draw(rt, "with rv") {
		b.RV = m.next()
		m.rv = b.RV
		m.last(b.RV)
	}
	if rapid.Bool().Draw(rt, "prepare") {
		must(rt, m.s.Prepare(&b))
	}
	must(rt, m.s.Apply(b))
}

// before draws what a batch knows of what it replaces: nothing, the present state or an
// earlier one.
func (m *model) before(rt *rapid.T, keys []string) store.Before {
	switch rapid.SampledFrom([]string{"nothing", "now", "earlier"}).Draw(rt, "before") {
	case "nothing":
		return store.Before{}
	case "earlier":
		return m.earlier
	}
	b, err := m.s.Before(keys)
	must(rt, err)
	held, want := map[string]runtime.Object{}, map[string]runtime.Object{}
	for _, key := range keys {
		if cm := m.objects[key]; cm != nil {
			want[key] = cm
		}
	}
	for key, h := range b.Held {
		must(rt, h.Err)
		obj, err := m.s.Decode(h.Entry)
		must(rt, err)
		held[key] = obj
		if cm := m.objects[key]; cm != nil && (h.RV != cm.ResourceVersion || h.UID != string(cm.UID)) {
			rt.Errorf("Before says that %s has UID %q at RV %q, want %q at %q", key, h.UID, h.RV, cm.UID, cm.ResourceVersion)
		}
	}
	same(rt, "Before", held, want)
	m.earlier = b
	return b
}

// list draws a complete list.
func (m *model) list(rt *rapid.T) []*corev1.ConfigMap {
	var list []*corev1.ConfigMap
	for _, key := range rapid.SliceOfNDistinct(rapid.Custom(m.key), 0, 8, rapid.ID[string]).Draw(rt, "keys") {
		if old := m.objects[key]; old != nil && rapid.Bool().Draw(rt, "unchanged") {
			list = append(list, old.DeepCopy())
		} else {
			list = append(list, m.object(rt, key))
		}
	}
	return list
}

// become sets the model to the list.
func (m *model) become(list []*corev1.ConfigMap, rv string) {
	m.objects = map[string]*corev1.ConfigMap{}
	for _, cm := range list {
		m.store(cm)
	}
	m.rv = rv
	m.last(rv)
}

// Replace replaces all objects.
func (m *model) Replace(rt *rapid.T) {
	var objects []any
	list := m.list(rt)
	for _, cm := range list {
		objects = append(objects, cm)
	}
	rv := m.next()
	must(rt, m.s.Replace(objects, rv))
	m.become(list, rv)
}

// Relist compares the store with a list. Sometimes it stops early.
func (m *model) Relist(rt *rapid.T) {
	relist, err := m.s.Relist()
	must(rt, err)
	defer func() { must(rt, relist.Close()) }()
	list := m.list(rt)
	for _, cm := range list {
		if rapid.IntRange(0, 3).Draw(rt, "taken back before") == 0 {
			must(rt, relist.Add(m.object(rt, cache.MetaObjectToName(cm).String())))
			relist.Remove(cache.MetaObjectToName(cm).String())
		}
		must(rt, relist.Add(cm))
	}
	if gone := m.key(rt); !slices.ContainsFunc(list, func(cm *corev1.ConfigMap) bool { return cache.MetaObjectToName(cm).String() == gone }) {
		must(rt, relist.Add(m.object(rt, gone)))
		relist.Remove(gone)
	}
	if rapid.IntRange(0, 3).Draw(rt, "end early") == 0 {
		return
	}
	rv := m.next()
	for b, err := range relist.Parts(rv) {
		must(rt, err)
		for _, c := range b.Changes {
			m.checkChange(rt, c, list)
		}
		must(rt, m.s.Apply(b))
	}
	m.become(list, rv)
}

// checkChange reports a change that the list does not require.
func (m *model) checkChange(rt *rapid.T, c store.Change, list []*corev1.ConfigMap) {
	i := slices.IndexFunc(list, func(cm *corev1.ConfigMap) bool { return cache.MetaObjectToName(cm).String() == c.Key })
	if (i < 0) != c.IsDeletion() {
		rt.Errorf("relist deletes %q: %t; it is in the list: %t", c.Key, c.IsDeletion(), i >= 0)
	}
	if !c.IsDeletion() {
		obj, err := m.s.Decode(c.Entry())
		must(rt, err)
		if i >= 0 && !reflect.DeepEqual(obj, list[i]) {
			rt.Errorf("relist changes %q to %v, and it is %v in the list", c.Key, obj, list[i])
		}
	}
	if old := m.objects[c.Key]; i >= 0 && old != nil && old.ResourceVersion == list[i].ResourceVersion &&
		old.Data["words"] == list[i].Data["words"] {
		rt.Errorf("relist changes %q, which is the same in the list", c.Key)
	}
}

// Bookmark moves the checkpoint.
func (m *model) Bookmark(*rapid.T) {
	m.rv = m.next()
	m.s.Bookmark(m.rv)
	m.last(m.rv)
}

// Invalidate removes the RV of the checkpoint.
func (m *model) Invalidate(rt *rapid.T) {
	must(rt, m.s.Invalidate(m.t.Context(), "drawn"))
	m.rv = ""
}

// Flush waits for the disk.
func (m *model) Flush(rt *rapid.T) { must(rt, m.s.Flush(m.t.Context())) }

// Reopen closes the store, and the backend if it is persistent, and opens them again.
func (m *model) Reopen(rt *rapid.T) {
	must(rt, m.s.Close())
	if m.cfg.Persistent {
		must(rt, m.db.Close())
		m.db = m.cfg.Open(m.t, m.dir)
	}
	m.open(rt)
}

// Select compares the result of a query.
func (m *model) Select(rt *rapid.T) {
	index := rapid.SampledFrom(append([]string{""}, indexNames...)).Draw(rt, "index")
	q := store.Query{
		Index: index, Values: []string{rapid.SampledFrom([]string{"", "red", "blue", "a"}).Draw(rt, "value")},
		Namespace: rapid.SampledFrom([]string{"", "a", "a-b", "x"}).Draw(rt, "namespace"),
		After:     rapid.SampledFrom([]string{"", "a/x", "a0", "x"}).Draw(rt, "after"),
		Limit:     rapid.IntRange(0, 3).Draw(rt, "limit"),
	}
	if text := rapid.SampledFrom(append([]string{"nil"}, selectors...)).Draw(rt, "selector"); text != "nil" {
		q.Selector = parseSelector(rt, text)
	}
	q.Encoded = rapid.Bool().Draw(rt, "encoded")
	entries := checkSelect(rt, m.s, q, m.objects)
	if _, ok := m.s.Store.(store.Payloader); !ok || !q.Encoded {
		return
	}
	for _, e := range entries {
		checkPayload(rt, m.s.Store, e, m.objects[e.Key])
	}
}

// Check compares everything. It runs after each step.
func (m *model) Check(rt *rapid.T) {
	want := make([]runtime.Object, 0, len(m.objects))
	for _, cm := range m.objects {
		want = append(want, cm)
	}
	expect, got := expected(want), viewOf(rt, m.s)
	expect.LastRV = m.lastRV
	if !m.lastSet {
		expect.LastRV, got.LastRV = "", ""
	}
	same(rt, "what can be read", got, expect)
	var keys []string
	for header, err := range store.HeadersOfAll(m.s) {
		must(rt, err)
		keys = append(keys, header.Key)
	}
	same(rt, "keys of Headers", keys, slices.Sorted(maps.Keys(m.objects)))
	if got := m.s.Len(); got != len(m.objects) {
		rt.Errorf("Len() = %d, want %d", got, len(m.objects))
	}
	if got := m.s.Checkpoint(); got.RV != m.rv || (got.RV == "") == (got.Reason == "") {
		rt.Errorf("Checkpoint() = %+v, want RV %q", got, m.rv)
	}
}
