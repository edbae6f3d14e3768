package bolt_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// A script is an endless sequence of batches that is the same in every process. The
// content of a scope follows from its resource version alone, which is the number of the
// last batch.
type script struct {
	keys int // number of different keys
	pad  int // minimal size of an object in bytes
}

func (s script) key(i int) string { return fmt.Sprintf("ns%d/object-%04d", i%4, i) }

// object returns the object that batch n writes for key i.
func (s script) object(i, n int) *corev1.ConfigMap {
	namespace, name, _ := cache.SplitMetaNamespaceKey(s.key(i))
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + s.key(i)),
			ResourceVersion: strconv.Itoa(n), Labels: map[string]string{"app": fmt.Sprintf("app%d", (i+n)%5)},
		},
		Data: map[string]string{
			"content": strings.Repeat(fmt.Sprintf("%s@%d ", s.key(i), n), 1+s.pad/(len(s.key(i))+5)),
		},
	}
}

// numbers returns the changes of batch n: the numbers of the keys that it writes and of
// the key that it deletes. The first batch writes all keys.
func (s script) numbers(n int) (written []int, deleted int) {
	if n == 1 {
		for i := range s.keys {
			written = append(written, i)
		}
		return written, -1
	}
	seen := map[int]bool{}
	for j := range 5 {
		if i := (n*n*7 + n*3 + j*(n%13+1)) % s.keys; !seen[i] {
			seen[i] = true
			written = append(written, i)
		}
	}
	deleted = (n*11 + 5) % s.keys
	for seen[deleted] {
		deleted = (deleted + 1) % s.keys
	}
	return written, deleted
}

func (s script) batch(n int) store.Batch {
	written, deleted := s.numbers(n)
	b := store.Batch{RV: strconv.Itoa(n)}
	for _, i := range written {
		b.Changes = append(b.Changes, store.Change{Object: s.object(i, n)})
	}
	if deleted >= 0 {
		b.Changes = append(b.Changes, store.Change{Key: s.key(deleted), Departs: n%2 == 0, RV: b.RV})
	}
	return b
}

// state returns the objects after batch n.
func (s script) state(n int) map[string]*corev1.ConfigMap {
	last := map[int]int{}
	for m := 1; m <= n; m++ {
		written, deleted := s.numbers(m)
		for _, i := range written {
			last[i] = m
		}
		delete(last, deleted)
	}
	objects := map[string]*corev1.ConfigMap{}
	for i, m := range last {
		objects[s.key(i)] = s.object(i, m)
	}
	return objects
}

// want returns the result of describe for a store after batch n.
func (s script) want(n int) string {
	if n == 0 {
		return describeObjects("", nil)
	}
	return describeObjects(strconv.Itoa(n), s.state(n))
}

// describeObjects describes a state as text: resource version, objects and indexes.
func describeObjects(rv string, objects map[string]*corev1.ConfigMap) string {
	var b strings.Builder
	fmt.Fprintf(&b, "rv %q, %d objects\n", rv, len(objects))
	byIndex := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		b.WriteString(describeObject(objects[key]))
		byIndex["app="+objects[key].Labels["app"]+" "+key] = true
		byIndex["namespace="+objects[key].Namespace+" "+key] = true
	}
	for _, line := range slices.Sorted(maps.Keys(byIndex)) {
		b.WriteString(line + "\n")
	}
	return b.String()
}

func describeObject(cm *corev1.ConfigMap) string {
	return fmt.Sprintf("%s/%s %s %s %v %v\n", cm.Namespace, cm.Name, cm.UID, cm.ResourceVersion, cm.Labels, cm.Data)
}

// errInconsistent is returned by describe if two reads do not agree.
var errInconsistent = errors.New("reads do not agree")

// describe reads a store in every possible way. It returns the error of a read, or
// errInconsistent if reads do not agree.
func describe(s store.Store, script script) (string, error) {
	x := store.Indexer(s)
	listed := x.List()
	if err := x.Err(); err != nil {
		return "", err
	}
	objects := map[string]*corev1.ConfigMap{}
	for _, obj := range listed {
		cm := obj.(*corev1.ConfigMap)
		objects[cm.Namespace+"/"+cm.Name] = cm
	}
	keys := x.ListKeys()
	if err := x.Err(); err != nil {
		return "", err
	}
	if n := s.Len(); n != len(objects) || n != len(keys) {
		return "", fmt.Errorf("%w: Len is %d, List has %d, ListKeys %d", errInconsistent, n, len(objects), len(keys))
	}
	if err := describeGets(s, script, objects); err != nil {
		return "", err
	}
	if err := describeSelects(s, objects); err != nil {
		return "", err
	}
	all, headers := 0, 0
	for obj, err := range s.All() {
		if err != nil {
			return "", err
		}
		cm := obj.(*corev1.ConfigMap)
		if all++; objects[cm.Namespace+"/"+cm.Name] == nil {
			return "", fmt.Errorf("%w: All has %s, List has not", errInconsistent, cm.Name)
		}
	}
	for h, err := range store.HeadersOfAll(s) {
		if err != nil {
			return "", err
		}
		if headers++; objects[h.Key] == nil || objects[h.Key].ResourceVersion != h.RV {
			return "", fmt.Errorf("%w: Headers has %s at %s", errInconsistent, h.Key, h.RV)
		}
	}
	if all != len(objects) || headers != len(objects) {
		return "", fmt.Errorf("%w: List has %d, All %d, Headers %d", errInconsistent, len(objects), all, headers)
	}
	out := describeObjects(s.Checkpoint().RV, objects)
	indexes, err := describeIndexes(s)
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(out, indexes) || strings.Count(out, "\n") != 1+len(objects)+strings.Count(indexes, "\n") {
		return "", fmt.Errorf("%w: objects are\n%sindexes are\n%s", errInconsistent, out, indexes)
	}
	return out, nil
}

func describeGets(s store.Store, script script, listed map[string]*corev1.ConfigMap) error {
	for i := range script.keys {
		key := script.key(i)
		obj, exists, err := store.Indexer(s).GetByKey(key)
		if err != nil {
			return err
		}
		if exists != (listed[key] != nil) {
			return fmt.Errorf("%w: Get finds %s: %t, List: %t", errInconsistent, key, exists, listed[key] != nil)
		}
		if exists && describeObject(obj.(*corev1.ConfigMap)) != describeObject(listed[key]) {
			return fmt.Errorf("%w: Get and List of %s", errInconsistent, key)
		}
	}
	return nil
}

// describeSelects compares the objects selected by label with those listed, with and
// without the help of the label's index.
func describeSelects(s store.Store, listed map[string]*corev1.ConfigMap) error {
	want := map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		app := listed[key].Labels["app"]
		want[app] = append(want[app], key)
	}
	for i := range 5 {
		app := fmt.Sprintf("app%d", i)
		for _, limit := range []int{0, len(listed) + 1} {
			entries, err := s.Select(store.Query{Selector: labels.SelectorFromSet(labels.Set{"app": app}), Limit: limit})
			if err != nil {
				return err
			}
			decoded, err := store.DecodeAll[*corev1.ConfigMap](s, entries)
			if err != nil {
				return err
			}
			var got []string
			for j, cm := range decoded {
				if got = append(got, entries[j].Key); describeObject(cm) != describeObject(listed[entries[j].Key]) {
					return fmt.Errorf("%w: Select and List of %s", errInconsistent, entries[j].Key)
				}
			}
			if !slices.Equal(got, want[app]) {
				return fmt.Errorf("%w: Select of %s has %d objects, List %d", errInconsistent, app, len(got), len(want[app]))
			}
		}
	}
	return nil
}

func describeIndexes(s store.Store) (string, error) {
	var lines []string
	for prefix, name := range map[string]string{"app=": "label:app", "namespace=": cache.NamespaceIndex} {
		values, err := s.Values(name)
		if err != nil {
			return "", err
		}
		if prefix == "app=" {
			// Values that List does not have must not be found by value either.
			values = append(values, "app0", "app1", "app2", "app3", "app4")
		} else {
			values = append(values, "ns0", "ns1", "ns2", "ns3")
		}
		slices.Sort(values)
		for _, value := range slices.Compact(values) {
			keys, err := store.Indexer(s).IndexKeys(name, value)
			if err != nil {
				return "", err
			}
			objects, err := store.Indexer(s).ByIndex(name, value)
			if err != nil {
				return "", err
			}
			if len(keys) != len(objects) {
				return "", fmt.Errorf("%w: %s=%s has %d keys and %d objects", errInconsistent, name, value, len(keys), len(objects))
			}
			for _, key := range keys {
				lines = append(lines, prefix+value+" "+key+"\n")
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, ""), nil
}

func scriptScope() store.Scope {
	return store.Scope{Cluster: "test", Resource: "configmaps", Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}
}

func scriptOptions() store.Options {
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		panic(err)
	}
	return store.Options{Codec: c, Indexes: []index.Index{index.Namespace(), index.Label("app")}}
}

// openScript opens a database and the scope of scripts.
func openScript(path string, opts bolt.Options) (*bolt.DB, store.Store, error) {
	return openScriptWith(path, opts, scriptOptions())
}

func openScriptWith(path string, opts bolt.Options, with store.Options) (*bolt.DB, store.Store, error) {
	db, err := bolt.Open(path, opts)
	if err != nil {
		return nil, nil, err
	}
	s, err := db.Open(scriptScope(), with)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return db, s, nil
}

func mustOpenScript(t *testing.T, path string, opts bolt.Options) (*bolt.DB, store.Store) {
	t.Helper()
	return mustOpenScriptWith(t, path, opts, scriptOptions())
}

func mustOpenScriptWith(t *testing.T, path string, opts bolt.Options, with store.Options) (*bolt.DB, store.Store) {
	t.Helper()
	db, s, err := openScriptWith(path, opts, with)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db, s
}

// applyScript applies batches from to last and flushes after each.
func applyScript(t *testing.T, s store.Store, script script, from, last int) {
	t.Helper()
	for n := from; n <= last; n++ {
		must(t, s.Apply(script.batch(n)))
		must(t, s.Flush(t.Context()))
	}
}

// scriptFile makes a database of n batches and closes it.
func scriptFile(t *testing.T, path string, script script, n int) {
	t.Helper()
	db, s := mustOpenScript(t, path, bolt.Options{})
	applyScript(t, s, script, 1, n)
	must(t, db.Close())
}

// wantState fails unless the store has the script's state after batch n.
func wantState(t *testing.T, s store.Store, script script, n int) {
	t.Helper()
	got, err := describe(s, script)
	must(t, err)
	if diff := cmp.Diff(script.want(n), got); diff != "" {
		t.Fatalf("state is not that after batch %d (-want +got):\n%s", n, diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// child returns a command that runs one of children.
func child(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), childVar+"="+name, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// within fails unless fn returns in time. It is for functions that might deadlock.
func within(t *testing.T, what string, limit time.Duration, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s did not end within %s", what, limit)
	}
}

func configMap(key, rv, content string) runtime.Object {
	namespace, name, _ := cache.SplitMetaNamespaceKey(key)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: rv},
		Data:       map[string]string{"content": content},
	}
}
