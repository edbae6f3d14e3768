package codec_test

import (
	"bytes"
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/codec"
)

// eachMessage calls f with random objects of every kind that an API server can send in
// protobuf, and with their messages.
func eachMessage(t *testing.T, f func(t *testing.T, c codec.FromServer, obj runtime.Object, message []byte)) {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("-codec.seed=%d", seed)
	fuzz := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs)
	kinds := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		c, ok := codec.ForKind(gvk).(codec.FromServer)
		if !ok || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		kinds++
		for range perKind {
			obj, err := scheme.Scheme.New(gvk)
			if err != nil {
				t.Fatal(err)
			}
			fuzz.Fill(obj)
			if _, err := meta.Accessor(obj); err != nil {
				break // no object
			}
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			// Once around, because a nil []byte in a map becomes an empty one.
			data, err := c.Encode(obj)
			if err == nil {
				obj, err = c.Decode(data)
			}
			if err == nil {
				data, err = c.Encode(obj)
			}
			if err != nil {
				t.Fatal(err)
			}
			message, ok := c.Message(data)
			if !ok {
				t.Fatalf("%s: no message in %.10q", gvk, data)
			}
			f(t, c, obj, message)
		}
	}
	if kinds < 100 {
		t.Errorf("only %d kinds", kinds)
	}
}

func TestMessages(t *testing.T) {
	eachMessage(t, func(t *testing.T, c codec.FromServer, obj runtime.Object, message []byte) {
		got, ok := c.AppendMessage([]byte("before"), message)
		if want, _ := c.Encode(obj); !ok || !bytes.Equal(got, append([]byte("before"), want...)) {
			t.Errorf("%T: its own message is not accepted, or changed", obj)
		}
		unknown := protowire.AppendString(protowire.AppendTag(bytes.Clone(message), 999, protowire.BytesType), "x")
		twice := append(bytes.Clone(message), message...)
		for what, good := range map[string][]byte{"as sent": message, "unknown field": unknown} {
			if got, err := c.DecodeMessage(bytes.Clone(good), true); err != nil || !equality.Semantic.DeepEqual(got, obj) {
				t.Errorf("%T: decoded differently, %s: %v", obj, what, err)
			}
		}
		for what, bad := range map[string][]byte{"unknown field": unknown, "written twice": twice, "cut": message[:len(message)-1]} {
			if got, ok := c.AppendMessage(nil, bad); ok || got != nil {
				t.Errorf("%T: accepted with %s", obj, what)
			}
		}
	})
}

func TestReadMetadata(t *testing.T) {
	eachMessage(t, func(t *testing.T, _ codec.FromServer, obj runtime.Object, message []byte) {
		want, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := codec.ReadMetadata(message)
		if !ok {
			t.Fatalf("%T: not read", obj)
		}
		labels := map[string]string{}
		for key, value := range got.Labels() {
			labels[string(key)] = string(value)
		}
		if diff := cmp.Diff(want.GetLabels(), labels, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%T: labels (-want +got):\n%s", obj, diff)
		}
		created := int64(0)
		if at := want.GetCreationTimestamp(); !at.IsZero() {
			created = at.Unix()
		}
		type header struct {
			Name, Namespace, UID, RV, SelfLink string
			Created                            int64
		}
		if diff := cmp.Diff(header{
			want.GetName(), want.GetNamespace(), string(want.GetUID()), want.GetResourceVersion(), want.GetSelfLink(), created,
		}, header{
			string(got.Name), string(got.Namespace), string(got.UID), string(got.RV), string(got.SelfLink), got.Created,
		}); diff != "" {
			t.Errorf("%T (-want +got):\n%s", obj, diff)
		}
	})
}

// FuzzMessage checks that damaged messages do not panic, and that those that are accepted
// are what the codec writes.
func FuzzMessage(f *testing.F) {
	c, err := codec.For(&corev1.Pod{})
	if err != nil {
		f.Fatal(err)
	}
	data, err := c.Encode(&corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c"}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[2:])
	f.Fuzz(func(t *testing.T, message []byte) {
		if m, ok := codec.ReadMetadata(message); ok {
			for range m.Labels() {
			}
		}
		data, ok := c.(codec.FromServer).AppendMessage(nil, message)
		if !ok {
			return
		}
		obj, err := c.Decode(data)
		if err != nil {
			t.Fatalf("accepted, and not decoded: %v", err)
		}
		if again, err := c.Encode(obj); err != nil || !bytes.Equal(again, data) {
			t.Error("accepted, but encoded in another way")
		}
	})
}

func TestWithoutManagedFields(t *testing.T) {
	eachMessage(t, func(t *testing.T, c codec.FromServer, obj runtime.Object, message []byte) {
		accessor, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		accessor.SetManagedFields(nil)
		want, err := c.Encode(obj)
		if err != nil {
			t.Fatal(err)
		}
		whole, _ := c.AppendMessage(nil, message)
		head := whole[:len(whole)-len(message)]
		got, ok := codec.AppendWithoutManagedFields(bytes.Clone(head), message)
		if !ok || !bytes.Equal(got, want) {
			t.Errorf("%T: not what is encoded without managedFields", obj)
		}
	})
	if b, ok := codec.AppendWithoutManagedFields(nil, []byte{1, 2}); ok || b != nil {
		t.Errorf("something that is no message: %v", b)
	}
}
