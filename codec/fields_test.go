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

func TestForFields(t *testing.T) {
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	pod := testobjects.Pod(1, 1)
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data, err := codec.ForKind(kind).Encode(pod)
	if err != nil {
		t.Fatal(err)
	}
	decoded := func(names ...string) runtime.Object {
		t.Helper()
		obj, err := codec.ForFields(kind, names...).Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	for name, test := range map[string]struct{ got, want runtime.Object }{
		"all":     {decoded("metadata", "spec", "status"), pod},
		"spec":    {decoded("spec", "nosuch"), &corev1.Pod{TypeMeta: pod.TypeMeta, Spec: pod.Spec}},
		"two":     {decoded("metadata", "status"), &corev1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: pod.ObjectMeta, Status: pod.Status}},
		"nothing": {decoded("kind"), &corev1.Pod{TypeMeta: pod.TypeMeta}},
	} {
		if diff := cmp.Diff(test.want, test.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if _, err := codec.ForFields(kind, "spec").Encode(pod); err == nil {
		t.Error("a codec of some fields encodes")
	}
	if _, err := codec.ForFields(kind, "spec").Decode(data[:len(data)-1]); err == nil {
		t.Error("what is cut short is decoded")
	}
	if c := codec.ForFields(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "spec"); c != nil {
		t.Errorf("of a kind without protobuf there is %v", c)
	}
}
