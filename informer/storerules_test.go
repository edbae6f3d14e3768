package informer_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/informer"
	"github.com/informctl/informctl/store"
)

// These tests apply the rules of client-go's tests for stores and indexes to the store of
// a running informer.

// byWords indexes an object under each word of its value.
func byWords(obj any) ([]string, error) {
	return strings.Fields(obj.(*corev1.ConfigMap).Data["v"]), nil
}

// onEachStore runs a rule on the store of each informer, with an empty server.
func onEachStore(t *testing.T, indexers cache.Indexers, rule func(s *subjectOf, store cache.Indexer)) {
	t.Helper()
	onEach(t, 0, indexers, func(s *subjectOf) {
		s.start().sync()
		rule(s, s.inf.GetIndexer())
	})
}

// TestIndexFollowsWrites checks an index after each write, whether the change comes from
// the server or is written to the store.
func TestIndexFollowsWrites(t *testing.T) {
	type index = map[string][]string // names by value
	steps := []struct {
		name, value string // "" deletes
		want        index
	}{
		{name: "one", value: "red", want: index{"red": {"one"}}},
		{name: "two", value: "blue", want: index{"red": {"one"}, "blue": {"two"}}},
		{name: "two", value: "red blue", want: index{"red": {"one", "two"}, "blue": {"two"}}},
		{name: "one", value: "red blue", want: index{"red": {"one", "two"}, "blue": {"one", "two"}}},
		{name: "three", value: "green red blue green", want: index{"red": {"one", "three", "two"}, "blue": {"one", "three", "two"}, "green": {"three"}}},
		{name: "one", value: "red", want: index{"red": {"one", "three", "two"}, "blue": {"three", "two"}, "green": {"three"}}},
		{name: "two", value: "blue", want: index{"red": {"one", "three"}, "blue": {"three", "two"}, "green": {"three"}}},
		{name: "one", want: index{"red": {"three"}, "blue": {"three", "two"}, "green": {"three"}}},
		{name: "three", want: index{"blue": {"two"}}},
		{name: "two", value: " ", want: index{}},
	}
	check := func(s *subjectOf, store cache.Indexer, want index) {
		s.Helper()
		got := index{}
		for _, value := range store.ListIndexFuncValues("words") {
			objs, err := store.ByIndex("words", value)
			if err != nil {
				s.Error(err)
			}
			for _, obj := range objs {
				got[value] = append(got[value], obj.(*corev1.ConfigMap).Name)
			}
			slices.Sort(got[value])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			s.Errorf("index (-want +got):\n%s", diff)
		}
		if objs, err := store.ByIndex("words", "never"); err != nil || len(objs) > 0 {
			s.Errorf("under a value that no object has: %v, %v", objs, err)
		}
	}
	t.Run("server", func(t *testing.T) {
		onEachStore(t, cache.Indexers{"words": byWords}, func(s *subjectOf, store cache.Indexer) {
			for _, step := range steps {
				if step.value == "" {
					s.drop(step.name)
				} else {
					s.put(step.name, step.value)
				}
				waitFor(0)
				check(s, store, step.want)
			}
		})
	})
	t.Run("store", func(t *testing.T) {
		onEachStore(t, cache.Indexers{"words": byWords}, func(s *subjectOf, store cache.Indexer) {
			for _, step := range steps {
				write := store.Update
				if step.value == "" {
					write = store.Delete
				}
				if err := write(valued(step.name, step.value)); err != nil {
					s.Error(err)
				}
				check(s, store, step.want)
			}
		})
	})
}

// TestStoreRVOfWrites checks the store's resource version after writes that did not come
// from the server.
func TestStoreRVOfWrites(t *testing.T) {
	onEachStore(t, nil, func(s *subjectOf, store cache.Indexer) {
		for _, step := range []struct {
			name  string
			write func() error
			want  string
		}{
			{"add", func() error { return store.Add(versioned("a", "10")) }, "10"},
			{"add another of the same", func() error { return store.Add(versioned("b", "10")) }, "10"},
			{"update", func() error { return store.Update(versioned("a", "20")) }, "20"},
			{"delete", func() error { return store.Delete(versioned("a", "30")) }, "30"},
			{"replace", func() error { return store.Replace([]any{versioned("c", "40"), versioned("d", "35")}, "50") }, "50"},
			{"bookmark", func() error { store.Bookmark("60"); return nil }, "60"},
		} {
			if err := step.write(); err != nil {
				s.Errorf("%s: %v", step.name, err)
			}
			if rv := store.LastStoreSyncResourceVersion(); rv != step.want {
				s.Errorf("%s: resource version %q, want %q", step.name, rv, step.want)
			}
		}
	})
}

// TestObjectsWithoutKey checks that a value without metadata is refused with an error.
// client-go's error is a cache.KeyError, which prints the object; ours is a
// store.ObjectError, which does not, because the object may be a Secret.
func TestObjectsWithoutKey(t *testing.T) {
	onEachStore(t, nil, func(s *subjectOf, indexer cache.Indexer) {
		for name, call := range map[string]func() error{
			"Add":     func() error { return indexer.Add("content") },
			"Update":  func() error { return indexer.Update(7) },
			"Delete":  func() error { return indexer.Delete(struct{}{}) },
			"Get":     func() error { _, _, err := indexer.Get("content"); return err },
			"Replace": func() error { return indexer.Replace([]any{valued("a", "1"), "content"}, "9") },
		} {
			err := call()
			var keyErr cache.KeyError
			var objectErr *store.ObjectError
			switch {
			case !s.ours && !errors.As(err, &keyErr):
				s.Errorf("%s: %v, which is no cache.KeyError", name, err)
			case s.ours && (!errors.As(err, &objectErr) || objectErr.Key != "" || strings.Contains(err.Error(), "content")):
				s.Errorf("%s: %v", name, err)
			}
		}
		if keys := indexer.ListKeys(); len(keys) > 0 {
			s.Errorf("keys %q", keys)
		}
		if err := indexer.Delete(cache.DeletedFinalStateUnknown{Key: "default/none"}); err != nil {
			s.Errorf("a tombstone of what is not there: %v", err)
		}
	})
}

// TestListFunctions checks client-go's functions that listers use, on a store with and
// without a namespace index.
func TestListFunctions(t *testing.T) {
	for name, indexers := range map[string]cache.Indexers{
		"indexed":   {cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		"unindexed": {},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, 0, indexers, func(s *subjectOf) {
				for i, app := range []string{"red", "red", "blue", ""} {
					s.create([]string{"one", "two"}[i%2], "o-"+app+[]string{"1", "2"}[i%2], app)
				}
				s.start().sync()
				for _, ask := range []struct {
					namespace, selector string
					want                []string
				}{
					{"", "", []string{"one/o-blue1", "one/o-red1", "two/o-2", "two/o-red2"}},
					{"", "app=red", []string{"one/o-red1", "two/o-red2"}},
					{"", "app=green", nil},
					{"one", "", []string{"one/o-blue1", "one/o-red1"}},
					{"one", "app in (red,blue)", []string{"one/o-blue1", "one/o-red1"}},
					{"two", "!app", []string{"two/o-2"}},
					{"three", "", nil},
				} {
					selector, err := labels.Parse(ask.selector)
					if err != nil {
						s.Fatal(err)
					}
					lists := map[string]func(cache.AppendFunc) error{
						"ListAllByNamespace": func(f cache.AppendFunc) error {
							return cache.ListAllByNamespace(s.inf.GetIndexer(), ask.namespace, selector, f)
						},
					}
					if ask.namespace == "" {
						lists["ListAll"] = func(f cache.AppendFunc) error { return cache.ListAll(s.inf.GetStore(), selector, f) }
					}
					for list, do := range lists {
						var got []string
						err := do(func(obj any) { got = append(got, cache.MetaObjectToName(obj.(metav1.Object)).String()) })
						slices.Sort(got)
						if diff := cmp.Diff(ask.want, got); err != nil || diff != "" {
							s.Errorf("%s of %q, %q: %v (-want +got):\n%s", list, ask.namespace, ask.selector, err, diff)
						}
					}
				}
				checkGeneric(s)
			})
		})
	}
}

// checkGeneric checks client-go's generic lister.
func checkGeneric(s *subjectOf) {
	lister := cache.NewGenericLister(s.inf.GetIndexer(), schema.GroupResource{Resource: "configmaps"})
	obj, err := lister.Get("one/o-red1")
	if err != nil || obj.(*corev1.ConfigMap).Name != "o-red1" {
		s.Errorf("Get: %v, %v", obj, err)
	}
	if obj, err := lister.ByNamespace("two").Get("o-red2"); err != nil || obj.(*corev1.ConfigMap).Namespace != "two" {
		s.Errorf("Get in a namespace: %v, %v", obj, err)
	}
	if _, err := lister.ByNamespace("two").Get("o-red1"); !apierrors.IsNotFound(err) {
		s.Errorf("Get of what is in another namespace: %v", err)
	}
}

// TestIdentifiers checks which informers publish metrics: those whose name and resource
// no other informer has, until the name is released.
func TestIdentifiers(t *testing.T) {
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	for _, row := range []struct {
		name       string
		identifier func(name *cache.InformerName) cache.InformerNameAndResource
		publishes  bool
	}{
		{"its own", func(n *cache.InformerName) cache.InformerNameAndResource { return n.WithResource(configMaps) }, true},
		{"taken", func(n *cache.InformerName) cache.InformerNameAndResource {
			n.WithResource(configMaps)
			return n.WithResource(configMaps)
		}, false},
		{"of another resource", func(n *cache.InformerName) cache.InformerNameAndResource {
			n.WithResource(corev1.SchemeGroupVersion.WithResource("pods"))
			return n.WithResource(configMaps)
		}, true},
		{"released", func(n *cache.InformerName) cache.InformerNameAndResource {
			id := n.WithResource(configMaps)
			n.Release()
			return id
		}, false},
		{"none", func(*cache.InformerName) cache.InformerNameAndResource { return cache.InformerNameAndResource{} }, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			makers := map[string]func(w *world, id cache.InformerNameAndResource, p cache.InformerMetricsProvider) cache.SharedIndexInformer{
				"client-go": func(w *world, id cache.InformerNameAndResource, p cache.InformerMetricsProvider) cache.SharedIndexInformer {
					return cache.NewSharedIndexInformerWithOptions(w.server, &corev1.ConfigMap{}, cache.SharedIndexInformerOptions{Identifier: id, InformerMetricsProvider: p})
				},
				"ours": func(w *world, id cache.InformerNameAndResource, p cache.InformerMetricsProvider) cache.SharedIndexInformer {
					inf, err := informer.New(w.server, &corev1.ConfigMap{}, informer.Options{Identifier: id, MetricsProvider: p})
					if err != nil {
						w.Fatal(err)
					}
					return inf
				},
			}
			for _, maker := range slices.Sorted(maps.Keys(makers)) {
				t.Run(maker, func(t *testing.T) {
					inBubble(t, func(w *world) {
						name, err := cache.NewInformerName("test-identifiers")
						if err != nil {
							t.Fatal(err)
						}
						defer name.Release()
						provider := &gauges{values: map[string][]float64{}}
						s := &subjectOf{world: w, inf: makers[maker](w, row.identifier(name), provider), done: make(chan struct{})}
						s.put("a", "1")
						s.start().sync()
						if published := provider.last("rv") == 2; published != row.publishes {
							t.Errorf("published: %v", provider.values)
						}
						s.end()
					})
				})
			}
		})
	}
}
