package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

var reopenCases = []testCase{
	{"Everything", testReopenEverything},
	{"NeverListed", testReopenNeverListed},
	{"Invalidated", testReopenInvalidated},
	{"IndexIdentity", testReopenIndexIdentity},
	{"IndexDropped", testReopenIndexDropped},
	{"IndexFails", testReopenIndexFails},
	{"OtherTransform", testReopenOtherTransform},
	{"OtherType", testReopenOtherType},
	{"OtherScope", testReopenOtherScope},
	{"Fresh", testReopenFresh},
	{"WithoutCodec", testReopenWithoutCodec},
	{"Pods", testReopenPods},
	{"Unstructured", testReopenUnstructured},
	{"Mutation", testReopenMutation},
}

func testReopenEverything(h *harness) {
	h.fill("1", many(50, "1", "red"))
	h.reopen()
	h.wantObjects(many(50, "1", "red")...)
	must(h, h.Replace([]any{configMap("a/one", "2", "red blue")}, "2"))
	h.apply("3", put(configMap("a/two", "3", "blue")), put(configMap("a/one", "3", "green red")))
	h.reopen()
	one, two := configMap("a/one", "3", "green red"), configMap("a/two", "3", "blue")
	h.wantObjects(one, two)
	before := h.Checkpoint()
	if before.RV != "3" || before.Reason != "" || before.Time.IsZero() {
		h.Errorf("Checkpoint() = %+v after opening again, want RV 3 and its time", before)
	}
	must(h, h.Delete(one))
	h.reopen() // with other content at the same checkpoint
	h.wantObjects(two)
	if got := h.Checkpoint(); got.RV != before.RV || !got.Time.Equal(before.Time) {
		h.Errorf("Checkpoint() = %+v, want %+v", got, before)
	}
	h.Bookmark("9")
	h.reopen()
	if got := h.Checkpoint().RV; got != "9" {
		h.Errorf("Checkpoint().RV = %q after a bookmark and opening again, want 9", got)
	}
}

// testReopenNeverListed checks that a program that uses a store without an informer need
// not set a resource version.
func testReopenNeverListed(h *harness) {
	h.add(configMap("a/one", "1", "red"))
	h.reopen()
	h.wantObjects(configMap("a/one", "1", "red"))
	if c := h.Checkpoint(); c.RV != "" || c.Reason == "" {
		h.Errorf("Checkpoint() = %+v, want a reason", c)
	}
}

func testReopenInvalidated(h *harness) {
	h.apply("5", put(configMap("a/one", "1", "red")))
	must(h, h.Invalidate(h.Context(), "history was lost"))
	h.reopen()
	h.wantObjects(configMap("a/one", "1", "red"))
	if c := h.Checkpoint(); c.RV != "" || c.Reason != "history was lost" {
		h.Errorf("Checkpoint() = %+v, want the reason of Invalidate", c)
	}
}

// fixed returns an index that gives every object the same value.
func fixed(version, value string) index.Index {
	return index.Index{Name: "fixed", Version: version, Func: func(any) ([]string, error) {
		return []string{value}, nil
	}}
}

// testReopenIndexIdentity checks that entries are reused if and only if the identity is
// the same, whatever the function returns.
func testReopenIndexIdentity(h *harness) {
	object := configMap("a/one", "1", "red")
	h.apply("1", put(object))
	for i, step := range []struct {
		index index.Index
		want  string
	}{
		{fixed("1", "first"), "first"},   // new: built from the stored objects
		{fixed("1", "ignored"), "first"}, // same identity: not called
		{fixed("2", "second"), "second"},
		{fixed("1", "third"), "third"}, // the identity before the last one
	} {
		h.opts.Indexes = []index.Index{index.Namespace(), step.index}
		h.reopen()
		same(h, fmt.Sprintf("entries after opening %d", i), entriesOf(h, h, "fixed"), map[string][]string{step.want: {"a/one"}})
	}
	h.opts.Indexes = []index.Index{index.Namespace()}
	h.opts.Indexers = cache.Indexers{"fixed": fixed("", "without identity").Func}
	h.reopen()
	same(h, "entries of a function without identity", entriesOf(h, h, "fixed"), map[string][]string{"without identity": {"a/one"}})
}

// testReopenIndexDropped checks that an index that is added again includes the changes
// made while it was not there.
func testReopenIndexDropped(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")), put(configMap("a/two", "1", "red")))
	with := h.opts
	h.opts.Indexes, h.opts.Indexers = []index.Index{index.Namespace()}, nil
	h.reopen()
	for _, name := range []string{"label:app", "words"} {
		if _, err := h.ByIndex(name, "red"); !errors.Is(err, store.ErrNoIndex) {
			h.Errorf("ByIndex(%q) after the index was dropped: got error %v, want %v", name, err, store.ErrNoIndex)
		}
	}
	h.apply("2", put(configMap("a/one", "2", "blue")), put(configMap("a/three", "2", "red")), store.Change{Key: "a/two"})
	h.opts = with
	h.reopen()
	h.wantObjects(configMap("a/one", "2", "blue"), configMap("a/three", "2", "red"))
}

// testReopenIndexFails checks that if an index function fails for one stored object, only
// the entry of that object is missing, and that this is reported at each start.
func testReopenIndexFails(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")), put(configMap("a/odd", "1", "red")), put(configMap("a/two", "1", "red")))
	picky := func(obj any) ([]string, error) {
		if obj.(*corev1.ConfigMap).Name == "odd" {
			return nil, errors.New("no")
		}
		return []string{"all"}, nil
	}
	with := h.opts
	with.Indexers = cache.Indexers{"picky": picky}
	with.Indexes = append(slices.Clone(with.Indexes), index.Index{Name: "picky too", Version: "1", Func: picky})
	for start := range 2 {
		var rejected []string
		with.Rejected = func(bad *store.ObjectError) { rejected = append(rejected, bad.Key) }
		h.shut()
		h.indexed = h.open(h.scope, with)
		if len(rejected) == 0 || slices.ContainsFunc(rejected, func(key string) bool { return key != "a/odd" }) {
			h.Errorf("start %d: told that %q are rejected, want a/odd", start, rejected)
		}
		same(h, "keys", h.ListKeys(), []string{"a/odd", "a/one", "a/two"})
		for name := range map[string]bool{"picky": true, "picky too": true} {
			keys, err := h.IndexKeys(name, "all")
			must(h, err)
			same(h, "keys of index "+name, keys, []string{"a/one", "a/two"})
		}
		var objectErr *store.ObjectError
		if err := h.Add(configMap("a/odd", "2", "blue")); !errors.As(err, &objectErr) {
			h.Errorf("start %d: Add of the rejected object: got error %v, want an *ObjectError", start, err)
		}
	}
	h.apply("3", store.Change{Key: "a/odd"})
	h.reopen()
	h.wantObjects(configMap("a/one", "1", "red"), configMap("a/two", "1", "red"))
}

// wantEmpty reports a scope that contains anything.
func (h *harness) wantEmpty(what string) {
	h.Helper()
	if keys := h.ListKeys(); len(keys) != 0 || h.Len() != 0 {
		h.Errorf("%s: the scope has %q, want nothing", what, keys)
	}
	if c := h.Checkpoint(); c.RV != "" || c.Reason == "" {
		h.Errorf("%s: Checkpoint() = %+v, want a reason", what, c)
	}
}

func testReopenOtherTransform(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	h.opts.TransformVersion = "v2"
	h.reopen()
	h.wantEmpty("another transform")
	h.apply("2", put(configMap("a/two", "2", "red")))
	h.reopen()
	h.wantObjects(configMap("a/two", "2", "red"))
	h.opts.TransformVersion = ""
	h.reopen()
	h.wantEmpty("the first transform again")
}

func testReopenOtherType(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	h.opts = store.Options{Codec: codecFor(h.T, &corev1.Pod{})}
	h.reopen()
	h.wantEmpty("another type")
	h.opts = options(h.T)
	h.reopen()
	h.wantEmpty("the first type again")
}

func testReopenOtherScope(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	h.shut()
	for what, change := range map[string]func(*store.Scope){
		"cluster":        func(s *store.Scope) { s.Cluster = "other" },
		"resource":       func(s *store.Scope) { s.Resource = "configmaps.example.com" },
		"version":        func(s *store.Scope) { s.Kind.Version = "v2" },
		"namespace":      func(s *store.Scope) { s.Namespace = "a" },
		"label selector": func(s *store.Scope) { s.LabelSelector = "app=red" },
		"field selector": func(s *store.Scope) { s.FieldSelector = "metadata.name=one" },
		"form":           func(s *store.Scope) { s.Form = store.Metadata },
	} {
		scope := configMapScope()
		change(&scope)
		h.indexed = h.open(scope, h.opts)
		h.wantEmpty("another " + what)
		must(h, h.Close())
	}
	h.indexed = h.open(h.scope, h.opts)
	h.wantObjects(configMap("a/one", "1", "red"))
}

func testReopenFresh(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	h.opts.Fresh = true
	h.reopen()
	h.wantEmpty("Fresh")
	same(h, "index entries", entriesOf(h, h, "label:app"), nil)
	h.apply("2", put(configMap("a/two", "2", "blue")))
	h.opts.Fresh = false
	h.reopen()
	h.wantObjects(configMap("a/two", "2", "blue"))
}

// testReopenWithoutCodec checks that a program without Go types can read.
func testReopenWithoutCodec(h *harness) {
	h.apply("1", put(configMap("a/one", "1", "red")))
	full := h.opts
	h.opts = store.Options{}
	h.reopen()
	if got := h.collect(); len(got) != 1 || keyOf(h, got[0]) != "a/one" {
		h.Errorf("All without a codec yields %d objects, want a/one", len(got))
	}
	if err := h.Add(configMap("a/two", "2", "red")); err == nil {
		h.Errorf("Add without a codec: got no error")
	}
	h.opts = full
	h.reopen()
	h.wantObjects(configMap("a/one", "1", "red"))
}

// pod returns an object with values that encodings often change.
func pod(name string) *corev1.Pod {
	grace, now := int64(0), metav1.NewTime(time.Date(2026, 3, 29, 2, 30, 0, 0, time.FixedZone("CEST", 7200)))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: name, ResourceVersion: "7", UID: "u", CreationTimestamp: now,
			DeletionTimestamp: &now, DeletionGracePeriodSeconds: &grace,
			Annotations: map[string]string{"binary": "\x01 \u2028 \U0001F600", "empty": ""},
			Finalizers:  []string{"example.com/f"},
		},
		Spec: corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{
			Name: "c", Image: "i",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{
				"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("0.5Gi"), "zero": {},
			}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now},
	}
}

func testReopenPods(h *harness) {
	h.scope.Resource, h.scope.Kind.Kind = "pods", "Pod"
	h.shut()
	h.opts = store.Options{Codec: codecFor(h.T, &corev1.Pod{}), Indexes: []index.Index{index.NodeName()}}
	h.indexed = h.open(h.scope, h.opts)
	h.add(pod("one"), pod("two"))
	for range 2 {
		same(h, "pods", h.collect(), []runtime.Object{pod("one"), pod("two")})
		same(h, "index", entriesOf(h, h, "node"), map[string][]string{"node": {"a/one", "a/two"}})
		h.reopen()
	}
}

func testReopenUnstructured(h *harness) {
	h.scope = store.Scope{
		Resource: "widgets.example.com", Form: store.Unstructured,
		Kind: widget("", "", "").GroupVersionKind(),
	}
	h.shut()
	h.opts = store.Options{
		Codec:   codecFor(h.T, &unstructured.Unstructured{}),
		Indexes: []index.Index{index.Namespace(), index.Label("color")},
	}
	h.indexed = h.open(h.scope, h.opts)
	h.apply("3", put(widget("one", "1", "red")), put(widget("two", "2", "blue")))
	h.add(widget("two", "3", "red"))
	for range 2 {
		same(h, "widgets", h.collect(), []runtime.Object{widget("one", "1", "red"), widget("two", "3", "red")})
		same(h, "index", entriesOf(h, h, "label:color"), map[string][]string{"red": {"w/one", "w/two"}})
		h.reopen()
	}
	list, err := h.Relist()
	must(h, err)
	must(h, list.Add(widget("one", "1", "red")))
	must(h, list.Add(widget("two", "3", "green")))
	changed := h.applyParts(list, "9")
	same(h, "what a relist changes", changed, []string{"w/two"})
}

// testReopenMutation checks that an object is written as it was when it was passed to the
// store. Only a backend that encodes can guarantee that.
func testReopenMutation(h *harness) {
	if !h.cfg.Persistent {
		h.Skip("keeps live objects")
	}
	given := []*corev1.ConfigMap{configMap("a/0", "1", "red"), configMap("a/1", "1", "red"), configMap("a/2", "1", "red")}
	h.add(given[0])
	h.apply("1", put(given[1]))
	must(h, h.Apply(store.Batch{RV: "2", Changes: []store.Change{put(given[2])}}))
	for _, object := range given {
		object.Data["words"], object.Labels["app"] = "mutated", "mutated"
	}
	for _, object := range h.List() {
		object.(*corev1.ConfigMap).Data["words"] = "mutated"
	}
	h.reopen()
	h.wantObjects(configMap("a/0", "1", "red"), configMap("a/1", "1", "red"), configMap("a/2", "1", "red"))
}
