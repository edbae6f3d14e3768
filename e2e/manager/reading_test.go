package manager_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/store"
)

// TestReading contains the checks of controller-runtime's own suite for a cache as a
// reader. It runs them for each shape of cache and each form of object, on a cold and on
// a warm file.
func TestReading(t *testing.T) {
	w := theWorld(t)
	for _, shape := range append(slices.Clone(shapes), decoded) {
		for _, form := range forms {
			for _, row := range reading {
				if shape.decoded != 0 && !row.shares {
					continue
				}
				t.Run(shape.name+"/"+form.String()+"/"+row.name, func(t *testing.T) {
					t.Parallel()
					s := setup{options: shape.options, decoded: shape.decoded}
					if row.index != nil {
						s.before = func(t *testing.T, c crcache.Cache) {
							for field, fn := range row.index {
								if err := c.IndexField(t.Context(), newObject(t, form, row.indexed), field, fn); err != nil {
									t.Fatal(err)
								}
							}
						}
					}
					w.coldAndWarm(t, s, func(t *testing.T, c *session) { row.check(t, reader{c, shape, form}) })
				})
			}
		}
	}
}

var reading = []struct {
	name    string
	shares  bool // it checks shared objects
	indexed schema.GroupVersionKind
	index   map[string]client.IndexerFunc // added before the cache is started
	check   func(*testing.T, reader)
}{
	{name: "lists a kind that nobody has watched", check: func(t *testing.T, r reader) {
		r.wantKeys(t, services, []string{"default/kubernetes", "one/service-1", "two/service-2"})
	}},
	{name: "gets a kind that nobody has watched", check: func(t *testing.T, r reader) {
		got := r.get(t, services, "default", "kubernetes")
		if keyOf(got) != "default/kubernetes" {
			t.Errorf("got %s", keyOf(got))
		}
	}},
	{name: "lists by label in one namespace", check: func(t *testing.T, r reader) {
		r.wantKeys(t, pods, []string{"two/pod-2"}, client.InNamespace("two"), client.MatchingLabels{"name": "pod-2"})
	}},
	{name: "lists by label in all namespaces", check: func(t *testing.T, r reader) {
		r.wantKeys(t, pods, []string{"one/pod-1", "two/pod-2"}, client.MatchingLabels{"group": "a"})
	}},
	{name: "lists by namespace", check: func(t *testing.T, r reader) {
		r.wantKeys(t, pods, []string{"one/pod-1", "one/pod-5"}, client.InNamespace("one"))
	}},
	{name: "says the kind of what it lists", check: checkKind},
	{name: "gets what the server has, as a copy unless told otherwise", shares: true, check: checkCopy},
	{name: "lists what the server has, as copies unless told otherwise", shares: true, check: checkCopies},
	{name: "hands out what it holds to a Get that asks for it", shares: true, check: func(t *testing.T, r reader) {
		mark(t, r.get(t, pods, "two", "pod-2", client.UnsafeDisableDeepCopy))
		if !isMarked(r.get(t, pods, "two", "pod-2", client.UnsafeDisableDeepCopy)) {
			t.Error("a change of what the cache holds was not seen")
		}
	}},
	{name: "hands out what it holds to a List that asks for it", shares: true, check: func(t *testing.T, r reader) {
		mark(t, r.items(t, pods, client.UnsafeDisableDeepCopy, client.InNamespace("two"))[1])
		if !isMarked(r.items(t, pods, client.UnsafeDisableDeepCopy, client.InNamespace("two"))[1]) {
			t.Error("a change of what the cache holds was not seen")
		}
	}},
	{name: "says that an object is not there", check: func(t *testing.T, r reader) {
		if err := r.getError(t, services, "one", "unknown"); !apierrors.IsNotFound(err) {
			t.Errorf("got %v, want NotFound", err)
		}
	}},
	{name: "fails for a namespace that is not watched", check: func(t *testing.T, r reader) {
		err := r.getError(t, services, "unknown", "unknown")
		if err == nil || r.shape.hidden == "" && !apierrors.IsNotFound(err) {
			t.Errorf("got %v", err)
		}
	}},
	{name: "fails when the context has ended before the cache has synced", check: func(t *testing.T, r reader) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.List(ended, newList(t, r.form, pods), client.InNamespace("one")); !apierrors.IsTimeout(err) {
			t.Errorf("List: got %v, want a timeout", err)
		}
		if err := r.Get(ended, types.NamespacedName{Namespace: "one", Name: "service-1"}, r.object(t, services)); !apierrors.IsTimeout(err) {
			t.Errorf("Get: got %v, want a timeout", err)
		}
		r.wantKeys(t, pods, []string{"one/pod-1", "one/pod-5"}, client.InNamespace("one"))
		r.wantKeys(t, services, []string{"one/service-1"}, client.InNamespace("one"))
	}},
	{name: "lists no more than the limit", check: func(t *testing.T, r reader) {
		r.keys(t, pods) // a list with a limit may not read all namespaces
		if got := r.keys(t, pods, client.Limit(3)); len(got) != 3 {
			t.Errorf("got %q", got)
		}
	}},
	{name: "lists no more than the limit of what has the label", check: func(t *testing.T, r reader) {
		r.keys(t, pods)
		got := r.items(t, pods, client.Limit(1), client.MatchingLabels{"group": "b"})
		if len(got) != 1 || got[0].GetLabels()["group"] != "b" {
			t.Errorf("got %d", len(got))
		}
	}},
	{name: "has no pages", check: func(t *testing.T, r reader) {
		list := newList(t, r.form, pods)
		if err := r.List(t.Context(), list); err != nil || list.GetContinue() != "continue-not-supported" {
			t.Errorf("got %q, %v", list.GetContinue(), err)
		}
		for _, token := range []string{list.GetContinue(), "token"} {
			err := r.List(t.Context(), list, client.Continue(token))
			if err == nil || err.Error() != "continue list option is not supported by the cache" {
				t.Errorf("%s: got %v", token, err)
			}
		}
	}},
	{name: "lists by a field that was indexed before the start", indexed: pods, index: map[string]client.IndexerFunc{"policy": policyOf}, check: checkPolicy},
	{name: "lists by a field that is indexed while it runs", check: func(t *testing.T, r reader) {
		r.keys(t, pods)
		if err := r.IndexField(t.Context(), r.object(t, pods), "policy", policyOf); err != nil {
			t.Fatal(err)
		}
		checkPolicy(t, r)
	}},
	{name: "indexes a field while the first objects come", check: func(t *testing.T, r reader) {
		if err := r.IndexField(t.Context(), r.object(t, pods), "policy", policyOf); err != nil {
			t.Fatal(err)
		}
		checkPolicy(t, r)
	}},
	{name: "lists by a field of several values", indexed: pods, index: map[string]client.IndexerFunc{"either": eitherOf}, check: func(t *testing.T, r reader) {
		r.wantKeys(t, pods, []string{"two/pod-3"}, client.MatchingFields{"either": "pod-3"})
		r.wantKeys(t, pods, r.shape.visible("three/pod-4", "two/pod-3"), client.MatchingFields{"either": "b"})
		r.wantKeys(t, pods, []string{"two/pod-2"}, client.MatchingFields{"either": "a"}, client.InNamespace("two"))
	}},
	{name: "leaves the values of a cluster's objects as they are", indexed: namespaces, index: map[string]client.IndexerFunc{"fixed": fixedValues}, check: func(t *testing.T, r reader) {
		for _, value := range []string{"a", "b", "c"} {
			got := r.keys(t, namespaces, client.MatchingFields{"fixed": value})
			if !slices.Contains(got, "one") {
				t.Errorf("by %s: got %q", value, got)
			}
			r.wantKeys(t, namespaces, got)
		}
		wantSame(t, "values", []string{"a", "b", "c"}, fixed)
	}},
	{name: "lists by several fields at once", indexed: pods, index: map[string]client.IndexerFunc{"policy": policyOf, "group": groupOf}, check: func(t *testing.T, r reader) {
		r.wantKeys(t, pods, []string{"one/pod-1", "two/pod-2"}, client.MatchingFields{"group": "a"})
		r.wantKeys(t, pods, r.shape.visible("one/pod-1", "one/pod-5", "three/pod-4"), client.MatchingFields{"policy": "Never"})
		r.wantKeys(t, pods, []string{"one/pod-1"}, client.MatchingFields{"policy": "Never", "group": "a"})
		r.wantKeys(t, pods, []string{"two/pod-3"}, client.MatchingFields{"policy": "OnFailure", "group": "b"}, client.InNamespace("two"))
		r.wantKeys(t, pods, nil, client.MatchingFields{"policy": "OnFailure", "group": "a"})
	}},
	{name: "fails for a field that is not indexed", indexed: pods, index: map[string]client.IndexerFunc{"policy": policyOf}, check: func(t *testing.T, r reader) {
		for _, by := range []client.MatchingFields{{"group": "a"}, {"group": "a", "policy": "Never"}} {
			if err := r.List(t.Context(), newList(t, r.form, pods), by); err == nil {
				t.Errorf("%v: no error", by)
			}
		}
	}},
	{name: "refuses a second index of one field", indexed: pods, index: map[string]client.IndexerFunc{"policy": policyOf}, check: func(t *testing.T, r reader) {
		r.keys(t, pods)
		if err := r.IndexField(t.Context(), r.object(t, pods), "policy", groupOf); err == nil {
			t.Error("no error")
		}
		checkPolicy(t, r)
	}},
}

func checkKind(t *testing.T, r reader) {
	got := r.items(t, pods)
	if want := len(r.shape.visible("one/1", "one/5", "two/2", "two/3", "two/6", "three/4")); len(got) != want {
		t.Errorf("%d pods, want %d", len(got), want)
	}
	want := pods
	if r.form == store.Typed && r.shape.shares {
		want = schema.GroupVersionKind{} // objects are returned as they were received
	}
	for _, obj := range got {
		if kind := obj.GetObjectKind().GroupVersionKind(); kind != want {
			t.Errorf("%s is a %q, want %q", keyOf(obj), kind, want)
		}
	}
}

// known returns the server's object in the form in which the reader should return it.
func known(t *testing.T, r reader, namespace, name string) client.Object {
	t.Helper()
	out := r.object(t, pods)
	if err := r.world.direct.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, out); err != nil {
		t.Fatal(err)
	}
	if r.form == store.Typed && r.shape.shares {
		out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	} else {
		out.GetObjectKind().SetGroupVersionKind(pods)
	}
	return out
}

func checkCopy(t *testing.T, r reader) {
	first := r.get(t, pods, "two", "pod-2")
	wantSame(t, "first", known(t, r, "two", "pod-2"), first)
	if r.shape.shares {
		if address(first) != address(r.get(t, pods, "two", "pod-2")) {
			t.Error("not the object that the cache holds")
		}
		return
	}
	mark(t, first)
	wantSame(t, "second", known(t, r, "two", "pod-2"), r.get(t, pods, "two", "pod-2"))
}

func checkCopies(t *testing.T, r reader) {
	for _, opts := range [][]client.ListOption{nil, {client.InNamespace("two")}} {
		first, second := r.items(t, pods, opts...), r.items(t, pods, opts...)
		if diff := cmp.Diff(len(first), len(second)); diff != "" {
			t.Fatalf("lengths (-first +second):\n%s", diff)
		}
		shared := 0
		for i := range first {
			wantSame(t, "first", known(t, r, first[i].GetNamespace(), first[i].GetName()), first[i])
			wantSame(t, "second", first[i], second[i])
			if address(first[i]) == address(second[i]) {
				shared++
			}
		}
		if want := len(first); r.shape.shares && shared != want || !r.shape.shares && shared != 0 {
			t.Errorf("%d of %d objects are those that the cache holds", shared, want)
		}
	}
}

func checkPolicy(t *testing.T, r reader) {
	t.Helper()
	r.wantKeys(t, pods, []string{"two/pod-3"}, client.MatchingFields{"policy": "OnFailure"})
	r.wantKeys(t, pods, []string{"one/pod-1", "one/pod-5"}, client.MatchingFields{"policy": "Never"}, client.InNamespace("one"))
	r.wantKeys(t, pods, nil, client.MatchingFields{"policy": "Sometimes"})
	if list := newList(t, r.form, pods); list.GetObjectKind().GroupVersionKind() != (schema.GroupVersionKind{}) {
		want := list.GetObjectKind().GroupVersionKind()
		if err := r.List(t.Context(), list, client.MatchingFields{"policy": "OnFailure"}); err != nil || list.GetObjectKind().GroupVersionKind() != want {
			t.Errorf("the list is a %q, want %q: %v", list.GetObjectKind().GroupVersionKind(), want, err)
		}
	}
}

func policyOf(obj client.Object) []string {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return []string{string(obj.Spec.RestartPolicy)}
	case *unstructured.Unstructured:
		policy, _, _ := unstructured.NestedString(obj.Object, "spec", "restartPolicy")
		return []string{policy}
	}
	return []string{obj.GetLabels()["policy"]}
}

func groupOf(obj client.Object) []string { return []string{obj.GetLabels()["group"]} }

func eitherOf(obj client.Object) []string { return append(groupOf(obj), obj.GetName()) }

var fixed = []string{"a", "b", "c"}

func fixedValues(client.Object) []string { return fixed }
