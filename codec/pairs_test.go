package codec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/internal/testobjects"
)

// TestPairs checks what is left of two states of an object. That it is all that differs
// is checked where objects are compared.
func TestPairs(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	pairs := codec.PairsOf(kind)
	typeMeta := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	pod := testobjects.Pod(1, 1)
	pod.TypeMeta = typeMeta
	encoded := func(change func(*corev1.Pod)) runtime.Object {
		t.Helper()
		changed := pod.DeepCopy()
		change(changed)
		data, err := codec.ForKind(kind).Encode(changed)
		if err != nil {
			t.Fatal(err)
		}
		obj, err := pairs.Codec().Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, owned := range []bool{false, true} {
			alias, err := codec.DecodeAliased(pairs.Codec(), data, owned)
			if err != nil {
				t.Fatal(err)
			}
			raw := alias.(*runtime.Unknown).Raw
			if !cmp.Equal(alias, obj) || (&raw[0] == &data[0]) != owned {
				t.Errorf("owned %t: the encoded object is another, or in other memory", owned)
			}
		}
		return obj
	}
	same := encoded(func(*corev1.Pod) {})
	moved := encoded(func(p *corev1.Pod) { p.Spec.NodeName, p.ResourceVersion = "other", "9" })
	other := &corev1.Pod{TypeMeta: typeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}, Spec: corev1.PodSpec{NodeName: "other"}}
	was := &corev1.Pod{TypeMeta: typeMeta, ObjectMeta: metav1.ObjectMeta{ResourceVersion: pod.ResourceVersion}, Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName}}
	for name, test := range map[string]struct{ a, b, x, y runtime.Object }{
		"alike":           {same, same, &corev1.Pod{TypeMeta: typeMeta}, &corev1.Pod{TypeMeta: typeMeta}},
		"two fields":      {same, moved, was, other},
		"created":         {nil, same, nil, pod},
		"deleted":         {same, nil, pod, nil},
		"nothing":         {nil, nil, nil, nil},
		"one is decoded":  {pod, same, pod, pod},
		"both are":        {pod, pod, pod, pod},
		"another one was": {same, pod, pod, pod},
	} {
		x, y, err := pairs.Decode(test.a, test.b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff([]runtime.Object{test.x, test.y}, []runtime.Object{x, y}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := pairs.Codec().Encode(pod); err == nil {
		t.Error("a codec that leaves objects encoded encodes")
	}
	raw := same.(*runtime.Unknown).Raw
	for n := range raw {
		// Some beginnings are whole messages. None may panic, or look like no change.
		cut := &runtime.Unknown{Raw: raw[:n]}
		if x, y, err := pairs.Decode(cut, same); err == nil && cmp.Equal(x, y) {
			t.Errorf("%d bytes of %d are the same as all", n, len(raw))
		}
	}
	for _, gvk := range []schema.GroupVersionKind{{Group: "example.com", Version: "v1", Kind: "Widget"}, {Group: "apps", Version: "v1", Kind: "StatefulSet"}} {
		if codec.PairsOf(gvk) != nil {
			t.Errorf("%s is not encoded as protobuf", gvk)
		}
	}
}
