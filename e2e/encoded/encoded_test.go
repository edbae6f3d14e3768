package encoded_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/codec"
)

// TestEncoded runs all tests on one API server.
func TestEncoded(t *testing.T) {
	w := newWorld(t)
	t.Run("lists", w.testLists)
	t.Run("events", w.testEvents)
	t.Run("informers", w.testInformers)
}

// inMsgpack are the kinds with a nested TypeMeta, which package codec does not store in
// protobuf.
var inMsgpack = sets.New("StatefulSet")

// testLists checks for each resource that the server sends what the codec writes, in each
// kind of list.
func (w *world) testLists(t *testing.T) {
	resources, kinds, items := 0, sets.New[schema.GroupKind](), 0
	for _, r := range w.resources {
		listed := w.list(t, r, "")
		if len(listed) == 0 {
			t.Errorf("%s: the server has no object: add one to testdata/objects.yaml", r.kind)
			continue
		}
		w.compareLists(t, r, listed)
		c := codecOf(t, r)
		if c == nil {
			continue
		}
		resources++
		kinds.Insert(r.kind.GroupKind())
		for _, m := range listed {
			items++
			checkMessage(t, r, c, m)
		}
	}
	if !t.Failed() {
		t.Logf("%d items of %d kinds in %d versions, of %d that the server has: all equal", items, len(kinds), resources, len(w.resources))
	}
}

// codecOf returns nil for a kind that is not stored in protobuf.
func codecOf(t *testing.T, r resource) codec.FromServer {
	t.Helper()
	c, err := codec.For(newObject(t, r, runtime.ContentTypeProtobuf))
	if err != nil {
		t.Fatal(err)
	}
	out, ok := c.(codec.FromServer)
	if ok == inMsgpack.Has(r.kind.Kind) {
		t.Errorf("%s: stored in protobuf: %t", r.kind, ok)
	}
	return out
}

func newObject(t *testing.T, r resource, form string) runtime.Object {
	t.Helper()
	if form == unstructuredForm {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(r.kind)
		return u
	}
	obj, err := scheme.Scheme.New(r.kind)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// checkMessage checks that the codec accepts a message, writes the same for the object
// that generated code decodes from it, and decodes that object. It also checks that the
// codec refuses the message with a field that no kind has.
func checkMessage(t *testing.T, r resource, c codec.FromServer, m message) {
	t.Helper()
	data, ok := c.AppendMessage(nil, m.raw)
	if !ok {
		t.Errorf("%s %s: refused", r.kind, m.key)
		return
	}
	want := newObject(t, r, runtime.ContentTypeProtobuf)
	if err := want.(interface{ Unmarshal([]byte) error }).Unmarshal(m.raw); err != nil {
		t.Fatal(err)
	}
	if again, err := c.Encode(want); err != nil || !bytes.Equal(data, again) {
		t.Errorf("%s %s: the server sends %d bytes, and %d are written for their object (%v)", r.kind, m.key, len(data), len(again), err)
	}
	got, err := c.Decode(data)
	if err != nil {
		t.Errorf("%s %s: %v", r.kind, m.key, err)
	} else if !apiequality.Semantic.DeepEqual(want, got) {
		t.Errorf("%s %s (-generated +codec):\n%s", r.kind, m.key, cmp.Diff(want, got))
	}
	more := protowire.AppendTag(bytes.Clone(m.raw), 9999, protowire.VarintType)
	if _, ok := c.AppendMessage(nil, append(more, 1)); ok {
		t.Errorf("%s %s: accepted with an unknown field", r.kind, m.key)
	}
}

// compareLists checks that a list from the watch cache and a streamed list have the same
// bytes as a list. An object that was changed in between, such as the server's own lease,
// is not compared.
func (w *world) compareLists(t *testing.T, r resource, listed map[string]message) {
	t.Helper()
	streamed := map[string]message{}
	events := w.watch(t, r, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
	for {
		kind, m := events.next()
		if kind == watch.Bookmark {
			break
		}
		streamed[m.key] = m
	}
	events.body.Close()
	for how, other := range map[string]map[string]message{"from the watch cache": w.list(t, r, "?resourceVersion=0"), "streamed": streamed} {
		compared := 0
		for key, m := range other {
			if listed[key].rv != m.rv {
				continue
			}
			if compared++; !bytes.Equal(listed[key].raw, m.raw) {
				t.Errorf("%s %s: %d bytes %s, and %d others listed", r.kind, key, len(m.raw), how, len(listed[key].raw))
			}
		}
		if compared < len(listed)-1 {
			t.Errorf("%s: %d objects of %d %s were compared", r.kind, compared, len(listed), how)
		}
	}
}

// testEvents checks that the events of each kind of write have the bytes of a list after
// it.
func (w *world) testEvents(t *testing.T) {
	r := w.resourceOf(t, podKind)
	c := codecOf(t, r)
	const name, key = "events", "default/events"
	w.create(t, newPod(name))
	before := w.list(t, r, "")[key]
	events := w.watch(t, r, "resourceVersion="+before.rv)
	for _, x := range writes {
		w.write(t, name, x)
		kind, got := events.of(key)
		if kind != watch.Modified || got.rv == before.rv {
			t.Errorf("%s: a %s event at %s, before at %s", x.name, kind, got.rv, before.rv)
		}
		checkMessage(t, r, c, got)
		if listed := w.list(t, r, "")[key]; !bytes.Equal(listed.raw, got.raw) {
			t.Errorf("%s: %d bytes at %s, and %d others at %s in a list", x.name, len(got.raw), got.rv, len(listed.raw), listed.rv)
		}
		before = got
	}
	w.removeFinalizer(t, name)
	kind, got := events.of(key)
	for kind == watch.Modified { // the finalizer is removed before the pod
		kind, got = events.of(key)
	}
	checkMessage(t, r, c, got)
	w.checkDeletion(t)
	if !t.Failed() {
		t.Logf("events of %d writes and of 2 deletions: all equal", len(writes))
	}
}

// checkDeletion checks that the event of a deletion has the bytes of the object at the
// resource version of the deletion. A pod would be changed by it.
func (w *world) checkDeletion(t *testing.T) {
	t.Helper()
	r := w.resourceOf(t, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	const name, key = "gone", "default/gone"
	w.create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"a": "b"},
	}})
	before := w.list(t, r, "")[key]
	events := w.watch(t, r, "resourceVersion="+before.rv)
	if err := w.client(r).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kind, got := events.of(key)
	checkMessage(t, r, codecOf(t, r), got)
	want := atRV(t, r, before, got.rv)
	if kind != watch.Deleted || got.rv == before.rv || !bytes.Equal(want, got.raw) {
		t.Errorf("a %s event of %d bytes at %s, want %d others for the object, which was at %s before", kind, len(got.raw), got.rv, len(want), before.rv)
	}
}

// atRV returns the message of an object whose resource version is set to rv.
func atRV(t *testing.T, r resource, m message, rv string) []byte {
	t.Helper()
	obj := newObject(t, r, runtime.ContentTypeProtobuf).(interface {
		metav1.Object
		Unmarshal([]byte) error
		Marshal() ([]byte, error)
	})
	if err := obj.Unmarshal(m.raw); err != nil {
		t.Fatal(err)
	}
	obj.SetResourceVersion(rv)
	out, err := obj.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return out
}
