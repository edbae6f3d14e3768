package manager_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/informctl/informctl/store"
)

var (
	pods       = corev1.SchemeGroupVersion.WithKind("Pod")
	services   = corev1.SchemeGroupVersion.WithKind("Service")
	accounts   = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	nodes      = corev1.SchemeGroupVersion.WithKind("Node")
	namespaces = corev1.SchemeGroupVersion.WithKind("Namespace")
)

// forms are the forms in which a cache is read.
var forms = []store.Form{store.Typed, store.Unstructured, store.Metadata}

func newObject(t *testing.T, form store.Form, kind schema.GroupVersionKind) client.Object {
	t.Helper()
	switch form {
	case store.Unstructured:
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		return u
	case store.Metadata:
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(kind)
		return m
	case store.Typed:
	}
	return newTyped(t, kind).(client.Object)
}

func newList(t *testing.T, form store.Form, kind schema.GroupVersionKind) client.ObjectList {
	t.Helper()
	kind.Kind += "List"
	switch form {
	case store.Unstructured:
		u := &unstructured.UnstructuredList{}
		u.SetGroupVersionKind(kind)
		return u
	case store.Metadata:
		m := &metav1.PartialObjectMetadataList{}
		m.SetGroupVersionKind(kind)
		return m
	case store.Typed:
	}
	return newTyped(t, kind).(client.ObjectList)
}

func newTyped(t *testing.T, kind schema.GroupVersionKind) runtime.Object {
	t.Helper()
	obj, err := scheme.Scheme.New(kind)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// inForm returns an object as an informer of that form returns it.
func inForm(t *testing.T, form store.Form, kind schema.GroupVersionKind, obj client.Object) client.Object {
	t.Helper()
	out := newObject(t, form, kind)
	var err error
	switch out := out.(type) {
	case *unstructured.Unstructured:
		out.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		out.SetGroupVersionKind(kind)
	case *metav1.PartialObjectMetadata:
		out.ObjectMeta = *obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta).DeepCopy()
	default:
		out = obj.DeepCopyObject().(client.Object)
		out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return out
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// shape is one configuration of a cache.
type shape struct {
	name    string
	options crcache.Options
	hidden  string // the namespace that it does not cache
	shares  bool   // it returns the objects that it holds, without copying
	decoded int64  // its informers' budget for decoded objects
}

// shapes are the configurations with which controller-runtime runs its suite.
var shapes = []shape{
	{name: "whole cluster"},
	{name: "several namespaces", hidden: "three", options: crcache.Options{DefaultNamespaces: map[string]crcache.Config{
		crcache.AllNamespaces: {FieldSelector: fields.OneTermEqualSelector("metadata.namespace", "one")},
		"two":                 {},
		"default":             {},
	}}},
	{name: "shared objects", shares: true, options: crcache.Options{DefaultUnsafeDisableDeepCopy: new(true)}},
}

// decoded is a shape for the checks of shared objects.
var decoded = shape{name: "shared objects, all decoded", shares: true, decoded: -1, options: shapes[2].options}

// visible removes the keys of the hidden namespace.
func (s shape) visible(keys ...string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return s.hidden != "" && strings.HasPrefix(key, s.hidden+"/") })
}

// reader reads a session in one form.
type reader struct {
	*session
	shape shape
	form  store.Form
}

func (r reader) object(t *testing.T, kind schema.GroupVersionKind) client.Object {
	t.Helper()
	return newObject(t, r.form, kind)
}

// items returns the objects of a list, sorted by key.
func (r reader) items(t *testing.T, kind schema.GroupVersionKind, opts ...client.ListOption) []client.Object {
	t.Helper()
	list := newList(t, r.form, kind)
	if err := r.List(t.Context(), list, opts...); err != nil {
		t.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]client.Object, len(items))
	for i, item := range items {
		out[i] = item.(client.Object)
	}
	slices.SortFunc(out, func(a, b client.Object) int { return strings.Compare(keyOf(a), keyOf(b)) })
	return out
}

func keyOf(obj client.Object) string {
	if obj.GetNamespace() == "" {
		return obj.GetName()
	}
	return client.ObjectKeyFromObject(obj).String()
}

// keys returns the keys of the objects of a list.
func (r reader) keys(t *testing.T, kind schema.GroupVersionKind, opts ...client.ListOption) []string {
	t.Helper()
	out := []string{}
	for _, obj := range r.items(t, kind, opts...) {
		out = append(out, keyOf(obj))
	}
	return out
}

// wantKeys checks the keys of a list.
func (r reader) wantKeys(t *testing.T, kind schema.GroupVersionKind, want []string, opts ...client.ListOption) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), r.keys(t, kind, opts...)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", kind.Kind, diff)
	}
}

func (r reader) get(t *testing.T, kind schema.GroupVersionKind, namespace, name string, opts ...client.GetOption) client.Object {
	t.Helper()
	out := r.object(t, kind)
	if err := r.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, out, opts...); err != nil {
		t.Fatal(err)
	}
	return out
}

// getError returns the error of a Get.
func (r reader) getError(t *testing.T, kind schema.GroupVersionKind, namespace, name string) error {
	t.Helper()
	return r.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, r.object(t, kind))
}

// wantSame is strict: nil is not equal to empty.
func wantSame(t *testing.T, what string, want, got any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf("%s: (-want +got):\n%s", what, cmp.Diff(want, got))
	}
}

// mark changes an object in place.
func mark(t *testing.T, obj client.Object) {
	t.Helper()
	if u, ok := obj.(*unstructured.Unstructured); ok {
		if err := unstructured.SetNestedField(u.Object, "yes", "metadata", "labels", "marked"); err != nil {
			t.Fatal(err)
		}
		return
	}
	obj.GetLabels()["marked"] = "yes"
}

func isMarked(obj client.Object) bool { return obj.GetLabels()["marked"] == "yes" }

// address identifies the memory of an object, to compare whether two objects share it.
func address(obj client.Object) uintptr {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return reflect.ValueOf(u.Object).Pointer()
	}
	return reflect.ValueOf(obj.GetLabels()).Pointer()
}
