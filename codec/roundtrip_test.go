package codec_test

import (
	"bytes"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeserializer "k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/informctl/informctl/codec"
)

const perKind = 8

// isMsgpack reports whether a kind with generated protobuf is nevertheless encoded as
// msgpack: a Workload's templates contain templates, and generated code does not limit
// the nesting depth; the others have a nested TypeMeta, which generated code omits. Every
// other kind with generated protobuf must be encoded as protobuf. All kinds must pass the
// round trip.
func isMsgpack(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "Workload", "StatefulSet":
		return true
	case "Eviction":
		return gvk.Group == "policy"
	case "List", "APIResourceList":
		return false
	}
	return strings.HasSuffix(gvk.Kind, "List")
}

// typeMetas fills every TypeMeta, like a client that speaks JSON; apimachinery's own
// function leaves them blank.
func typeMetas(runtimeserializer.CodecFactory) []any {
	return []any{func(m *metav1.TypeMeta, c randfill.Continue) { m.APIVersion, m.Kind = c.String(0), c.String(0) }}
}

func TestRoundTripEveryKind(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("-codec.seed=%d", seed)
	kinds := scheme.Scheme.AllKnownTypes()
	order := make([]schema.GroupVersionKind, 0, len(kinds))
	for gvk := range kinds {
		if gvk.Version != runtime.APIVersionInternal {
			order = append(order, gvk)
		}
	}
	slices.SortFunc(order, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	for i, gvk := range order {
		t.Run(gvk.Group+"/"+gvk.Version+"/"+gvk.Kind, func(t *testing.T) {
			fuzz := fuzzer.FuzzerFor(
				fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, typeMetas), rand.NewSource(seed+int64(i)), scheme.Codecs)
			roundTripKind(t, fuzz, gvk)
		})
	}
}

func roundTripKind(t *testing.T, fuzz *randfill.Filler, gvk schema.GroupVersionKind) {
	example, err := scheme.Scheme.New(gvk)
	if err != nil {
		t.Fatal(err)
	}
	first, err := codec.For(example)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := example.(runtime.ProtobufMarshaller); (ok && !isMsgpack(gvk)) != (first.Name() == "protobuf") {
		t.Errorf("codec is %s, generated protobuf: %t", first.Name(), ok)
	}
	second, err := codec.Msgpack(example)
	if err != nil {
		t.Fatal(err)
	}
	for i := range perKind {
		obj := example.DeepCopyObject()
		fuzz.Fill(obj)
		// API servers and caches differ in whether they set the kind.
		if i%2 == 0 {
			obj.GetObjectKind().SetGroupVersionKind(gvk)
		} else {
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
		roundTrip(t, first, obj)
		roundTrip(t, second, obj)
		asUnstructured(t, second, obj)
	}
}

// roundTrip checks that obj is unchanged after encoding and decoding. Protobuf loses the
// difference between nil and empty, which semantic equality ignores; msgpack must not.
func roundTrip(t *testing.T, c codec.Codec, obj runtime.Object) {
	t.Helper()
	want := obj.DeepCopyObject()
	data, err := c.Encode(obj)
	if err != nil {
		t.Fatalf("%s: %v", c.Name(), err)
	}
	got, err := c.Decode(data)
	if err != nil {
		t.Fatalf("%s: %v", c.Name(), err)
	}
	if !equal(want, got) {
		t.Errorf("%s: %s", c.Name(), cmp.Diff(want, got, exportAll))
	}
	if c.Name() == "msgpack" && !sameNils(reflect.ValueOf(want), reflect.ValueOf(got)) {
		t.Errorf("%s: nil against empty: %s", c.Name(), cmp.Diff(want, got, exportAll))
	}
	if again, err := c.Encode(want.DeepCopyObject()); err != nil || !bytes.Equal(data, again) {
		t.Errorf("%s: other bytes the second time: %v", c.Name(), err)
	}
	if again, err := c.Encode(got); c.Name() == "msgpack" && (err != nil || !bytes.Equal(data, again)) {
		t.Errorf("%s: other bytes for what was decoded: %v", c.Name(), err)
	}
	copied := bytes.Clone(data)
	got, _ = c.Decode(copied)
	clear(copied)
	if !equal(want, got) {
		t.Errorf("%s: object shares memory with its bytes", c.Name())
	}
}

// equal is semantic equality. Types with private fields, for which semantic equality
// panics, are compared exactly.
func equal(a, b runtime.Object) bool {
	if _, ok := a.(*odd); ok {
		return cmp.Equal(a, b, exportAll)
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

var exportAll = cmp.Exporter(func(reflect.Type) bool { return true })

// sameNils reports whether a and b, which are semantically equal, have nil in the same
// places.
func sameNils(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Pointer, reflect.Interface:
		return a.IsNil() == b.IsNil() && (a.IsNil() || sameNils(a.Elem(), b.Elem()))
	case reflect.Slice:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return false
		}
		for i := range a.Len() {
			if !sameNils(a.Index(i), b.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		if a.IsNil() != b.IsNil() {
			return false
		}
		for _, k := range a.MapKeys() {
			if !sameNils(a.MapIndex(k), b.MapIndex(k)) {
				return false
			}
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() && !sameNils(a.Field(i), b.Field(i)) {
				return false
			}
		}
	}
	return true
}

// asUnstructured checks that a record of a struct can be decoded without the Go type to
// the struct's unstructured form, and that this form is unchanged after encoding and
// decoding with its own codec.
func asUnstructured(t *testing.T, c codec.Codec, obj runtime.Object) {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.DecodeAny(codec.IDMsgpack, schema.GroupVersionKind{}, data)
	if err != nil {
		t.Fatal(err)
	}
	want := &unstructured.Unstructured{Object: content}
	if !reflect.DeepEqual(want, got) {
		t.Errorf("without the Go type: %s", cmp.Diff(want, got))
	}
	roundTrip(t, mustFor(t, want), want)
}

func mustFor(t testing.TB, example runtime.Object) codec.Codec {
	t.Helper()
	c, err := codec.For(example)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustMsgpack(t testing.TB, example runtime.Object) codec.Codec {
	t.Helper()
	c, err := codec.Msgpack(example)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRoundTripPartialObjectMetadata(t *testing.T) {
	fuzz := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(1), runtimeserializer.CodecFactory{})
	for range perKind {
		obj := &metav1.PartialObjectMetadata{}
		fuzz.Fill(obj)
		roundTrip(t, mustFor(t, obj), obj)
		roundTrip(t, mustMsgpack(t, obj), obj)
	}
}
