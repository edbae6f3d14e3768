package informer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/internal/fakeapi"
	"github.com/informctl/informctl/store"
)

func listerOf(w *world, inf *informer.Informer) *informer.Lister[*corev1.ConfigMap] {
	w.Helper()
	l, err := informer.NewLister[*corev1.ConfigMap](inf)
	if err != nil {
		w.Fatal(err)
	}
	return l
}

func (w *world) create(namespace, name, app string) {
	w.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"v": "content-of-" + name}}
	if app != "" {
		cm.Labels = map[string]string{"app": app}
	}
	if _, err := w.server.Create(cm); err != nil {
		w.Fatal(err)
	}
}

// told returns the keys of a lister's result.
func told(w *world, objects []*corev1.ConfigMap, err error) []string {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
	keys := []string{}
	for _, obj := range objects {
		keys = append(keys, cache.MetaObjectToName(obj).String())
	}
	return keys
}

func wantKeys(w *world, what string, got []string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// collected returns the keys that All yields.
func collected(w *world, all func(yield func(*corev1.ConfigMap, error) bool)) []string {
	w.Helper()
	keys := []string{}
	for obj, err := range all {
		keys = append(keys, told(w, []*corev1.ConfigMap{obj}, err)...)
	}
	return keys
}

// TestListerLikeClientGo compares the lister with client-go's lister of the same
// informer, in memory and on disk.
func TestListerLikeClientGo(t *testing.T) {
	for _, decoded := range []int64{0, 1, -1} {
		inBubble(t, func(w *world) {
			for i := range 600 { // several chunks
				w.create(fmt.Sprintf("ns-%d", i%2), fmt.Sprintf("object-%03d", i), []string{"", "red", "blue"}[i%3])
			}
			opts := informer.Options{Indexes: []index.Index{index.Namespace(), index.Label("app")}, DecodedBytes: decoded}
			r := w.run(opts).sync()
			for range 2 { // after a list, and after a warm start
				l, reference := listerOf(w, r.inf), corelisters.NewConfigMapLister(r.inf.GetIndexer())
				for _, text := range []string{"", "app", "!app", "app=red", "app in (red,blue)", "app!=red", "app=red,other"} {
					selector, err := labels.Parse(text)
					if err != nil {
						t.Fatal(err)
					}
					sameAsClientGo(w, "List "+text, l.List, l.All(selector), reference.List, selector)
					in := l.InNamespace("ns-1")
					sameAsClientGo(w, "List in ns-1 "+text, in.List, in.All(selector), reference.ConfigMaps("ns-1").List, selector)
				}
				sameAsClientGo(w, "List Nothing", l.List, l.All(labels.Nothing()), reference.List, labels.Nothing())
				for _, name := range []string{"object-001", "object-002", "missing"} {
					got, err := l.InNamespace("ns-1").Get(name)
					want, wantErr := reference.ConfigMaps("ns-1").Get(name)
					if (err == nil) != (wantErr == nil) || apierrors.IsNotFound(err) != apierrors.IsNotFound(wantErr) || !cmp.Equal(got, want) {
						t.Errorf("Get(%s) = %v, %v; client-go %v, %v", name, got, err, want, wantErr)
					}
				}
				r.end()
				r = w.run(opts).sync()
			}
			r.end()
		})
	}
}

// TestListerPages checks that the pages of a query are its answer, and that the last one
// says so.
func TestListerPages(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 50 {
			w.create(fmt.Sprintf("ns-%d", i%2), fmt.Sprintf("object-%02d", i), []string{"", "red", "blue"}[i%3])
		}
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app")}}).sync()
		l, err := informer.ListerOf[*corev1.ConfigMap](r.inf)
		if err != nil {
			t.Fatal(err)
		}
		red := labels.SelectorFromSet(labels.Set{"app": "red"})
		for what, q := range map[string]store.Query{
			"all": {}, "a namespace": {Namespace: "ns-1"}, "a selector": {Selector: red}, "no object": {Namespace: "none"},
			"an index": {Index: index.Label("app").Name, Values: []string{"red", "blue"}},
			"both":     {Index: index.Label("app").Name, Values: []string{"red"}, Namespace: "ns-0"},
			"keys":     {Keys: []string{"ns-0/object-00", "ns-1/object-01", "ns-1/missing"}},
		} {
			q.Limit = 1000
			whole, next, err := l.Page(q)
			want := told(w, whole, err)
			if next != "" {
				t.Errorf("%s: %q follows a page of everything", what, next)
			}
			for _, limit := range []int{1, 7, max(len(want), 1)} {
				var got []string
				q.Limit, q.After = limit, ""
				for {
					objects, next, err := l.Page(q)
					got = append(got, told(w, objects, err)...)
					if q.After = next; next == "" {
						break
					}
					if len(objects) != limit {
						t.Fatalf("%s: a page of %d objects, want %d", what, len(objects), limit)
					}
				}
				wantKeys(w, fmt.Sprintf("%s in pages of %d", what, limit), append([]string{}, got...), want...)
			}
		}
		if _, _, err := l.Page(store.Query{}); err == nil {
			t.Error("a page without a Limit is returned")
		}
		if _, _, err := l.Page(store.Query{Limit: 1, Values: []string{"red"}}); err == nil {
			t.Error("a page of values without their index is returned")
		}
		if _, _, err := l.Page(store.Query{Limit: 1, Index: "none"}); !errors.Is(err, store.ErrNoIndex) {
			t.Errorf("a page by an unknown index: %v", err)
		}
		r.end()
	})
}

// TestListerOfOtherInformer checks the error for an informer of client-go.
func TestListerOfOtherInformer(t *testing.T) {
	other := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, nil)
	if _, err := informer.ListerOf[*corev1.ConfigMap](other); err == nil || !strings.Contains(err.Error(), "want an *informer.Informer") {
		t.Errorf("ListerOf: %v", err)
	}
}

func sameAsClientGo(
	w *world, what string,
	list func(labels.Selector) ([]*corev1.ConfigMap, error), all func(yield func(*corev1.ConfigMap, error) bool),
	reference func(labels.Selector) ([]*corev1.ConfigMap, error), selector labels.Selector,
) {
	w.Helper()
	objects, err := reference(selector)
	want := told(w, objects, err)
	slices.Sort(want)
	objects, err = list(selector)
	wantKeys(w, what, told(w, objects, err), want...)
	wantKeys(w, what+", by All", collected(w, all), want...)
}

// TestListerThroughItsLife checks that the lister returns nothing before Run, the objects
// while the informer runs, and the last objects afterwards.
func TestListerThroughItsLife(t *testing.T) {
	inBubble(t, func(w *world) {
		w.create("a", "one", "red")
		w.create("b", "two", "blue")
		var l *informer.Lister[*corev1.ConfigMap]
		r := w.run(informer.Options{Indexes: []index.Index{index.Label("app")}}, func(inf *informer.Informer) {
			l = listerOf(w, inf)
			objects, err := l.List(nil)
			wantKeys(w, "List before Run", told(w, objects, err))
			objects, err = l.ByIndex("label:app", "red", nil)
			wantKeys(w, "ByIndex before Run", told(w, objects, err))
			wantKeys(w, "All before Run", collected(w, l.All(nil)))
			if _, err := l.Get("a", "one"); !apierrors.IsNotFound(err) {
				t.Errorf("Get before Run: %v, want NotFound", err)
			}
		}).sync()
		running := func() {
			t.Helper()
			objects, err := l.List(nil)
			wantKeys(w, "List", told(w, objects, err), "a/one", "b/two")
			wantKeys(w, "All", collected(w, l.All(labels.Everything())), "a/one", "b/two")
			objects, err = l.ByIndex("label:app", "red", nil)
			wantKeys(w, "ByIndex", told(w, objects, err), "a/one")
			objects, err = l.ByIndex("label:app", "red", labels.SelectorFromSet(labels.Set{"app": "blue"}))
			wantKeys(w, "ByIndex with a selector that leaves it out", told(w, objects, err))
			if got, err := l.Get("b", "two"); err != nil || got.Data["v"] != "content-of-two" {
				t.Errorf("Get = %v, %v", got, err)
			}
		}
		running()
		for _, name := range []string{"nope", ""} {
			if _, err := l.ByIndex(name, "red", nil); !errors.Is(err, store.ErrNoIndex) {
				t.Errorf("ByIndex of the unknown index %q: %v, want %v", name, err, store.ErrNoIndex)
			}
		}
		if err := r.inf.AddIndexers(cache.Indexers{"": index.Label("app").Func}); err != nil {
			t.Error(err)
		}
		objects, err := l.ByIndex("", "red", nil)
		wantKeys(w, "ByIndex of an index without a name", told(w, objects, err), "a/one")
		n := 0
		for _, err := range l.All(nil) {
			if n++; err != nil {
				t.Error(err)
			}
			break
		}
		if n != 1 {
			t.Errorf("All went on after break to %d", n)
		}
		r.stop()
		<-r.done
		running()
		if err := r.db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.List(nil); !errors.Is(err, store.ErrClosed) {
			t.Errorf("List after the Backend was closed: %v, want %v", err, store.ErrClosed)
		}
		if _, err := l.Get("a", "one"); !errors.Is(err, store.ErrClosed) {
			t.Errorf("Get after the Backend was closed: %v, want %v", err, store.ErrClosed)
		}
		n = 0
		for _, err := range l.All(nil) {
			if n++; !errors.Is(err, store.ErrClosed) {
				t.Errorf("All after the Backend was closed: %v, want %v", err, store.ErrClosed)
			}
		}
		if n != 1 {
			t.Errorf("All after the Backend was closed yields %d times, want one error", n)
		}
	})
}

// TestListerOfClusterScope checks objects without a namespace, and the error for a
// missing one.
func TestListerOfClusterScope(t *testing.T) {
	inBubble(t, func(w *world) {
		w.server = fakeapi.New(&corev1.Node{}, &corev1.NodeList{}, fakeapi.Options{})
		if _, err := w.server.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}); err != nil {
			t.Fatal(err)
		}
		inf, err := informer.New(w.server, &corev1.Node{}, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		r := &run{w: w, inf: inf, done: make(chan struct{})}
		r.start()
		r.sync()
		l, err := informer.NewLister[*corev1.Node](inf)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := l.Get("", "n1"); err != nil || got.Name != "n1" {
			t.Errorf("Get = %v, %v", got, err)
		}
		for range 2 { // the second time, the resource is cached
			_, err = l.Get("", "n2")
			if want := apierrors.NewNotFound(corev1.Resource("nodes"), "n2"); !cmp.Equal(err, error(want)) {
				t.Errorf("Get of what is missing: %v, want %v", err, want)
			}
		}
		for namespace, want := range map[string]int{"": 1, "n1": 0} {
			if nodes, err := l.InNamespace(namespace).List(nil); err != nil || len(nodes) != want {
				t.Errorf("List in namespace %q has %d nodes, %v; want %d", namespace, len(nodes), err, want)
			}
		}
		r.end()
	})
}

func TestListerOfAnotherType(t *testing.T) {
	inf, err := informer.New(fakeapi.New(&corev1.ConfigMap{}, &corev1.ConfigMapList{}, fakeapi.Options{}), &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, secretErr := informer.NewLister[*corev1.Secret](inf)
	_, anyErr := informer.NewLister[runtime.Object](inf)
	_, unstructuredErr := informer.NewLister[*unstructured.Unstructured](inf)
	_, nilErr := informer.NewLister[*corev1.ConfigMap](nil)
	for _, err := range []error{secretErr, anyErr, unstructuredErr, nilErr} {
		if err == nil {
			t.Error("a Lister of another type or of nothing: got no error")
		}
	}
}

// TestListerMeetsDamage checks that a damaged object causes an error at once, and does
// not affect reads of other objects (promise 5).
func TestListerMeetsDamage(t *testing.T) {
	inBubble(t, func(w *world) {
		w.create("a", "one", "red")
		w.create("b", "two", "blue")
		w.run(informer.Options{}).sync().end()
		r := w.run(informer.Options{}).sync()
		r.stop()
		<-r.done
		l := listerOf(w, r.inf)
		damage(t, w.path, "content-of-one")
		if _, err := l.List(nil); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("List: %v, want %v", err, store.ErrCorrupt)
		}
		if _, err := l.Get("a", "one"); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Get: %v, want %v", err, store.ErrCorrupt)
		}
		n := 0
		for _, err := range l.All(nil) {
			if n++; !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("All: %v, want %v", err, store.ErrCorrupt)
			}
		}
		if n != 1 {
			t.Errorf("All yields %d times, want one error", n)
		}
		objects, err := l.InNamespace("b").List(nil)
		wantKeys(w, "List of what is not damaged", told(w, objects, err), "b/two")
		if err := r.db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestListerWhileWritten iterates while objects are added and deleted. The objects come
// in order, each once, and the loop body waits for no lock.
func TestListerWhileWritten(t *testing.T) {
	inBubble(t, func(w *world) {
		for i := range 600 {
			w.create("a", fmt.Sprintf("object-%03d", i), "red")
		}
		r := w.run(informer.Options{}).sync()
		var keys []string
		for obj, err := range listerOf(w, r.inf).All(labels.SelectorFromSet(labels.Set{"app": "red"})) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, obj.Name)
			if i := len(keys); i%100 == 0 {
				w.create("a", fmt.Sprintf("object-%03d-and", i), "red")
				w.create("a", fmt.Sprintf("zz-%03d", i), "blue")
				<-time.After(2 * time.Second) // until changes are applied and committed
				synctest.Wait()
			}
		}
		if !slices.IsSorted(keys) || len(keys) < 600 || len(slices.Compact(slices.Clone(keys))) != len(keys) {
			t.Errorf("%d keys, sorted: %v", len(keys), slices.IsSorted(keys))
		}
		if slices.ContainsFunc(keys, func(key string) bool { return key[0] == 'z' }) {
			t.Error("All yields what the selector leaves out")
		}
		r.end()
	})
}
