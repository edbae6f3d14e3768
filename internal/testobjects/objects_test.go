package testobjects_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/testobjects"
)

var kinds = map[string]func(i int, seed int64) runtime.Object{
	"pod":       func(i int, seed int64) runtime.Object { return testobjects.Pod(i, seed) },
	"configmap": func(i int, seed int64) runtime.Object { return testobjects.ConfigMap(i, seed) },
	"secret":    func(i int, seed int64) runtime.Object { return testobjects.Secret(i, seed, 100) },
	"widget":    func(i int, seed int64) runtime.Object { return testobjects.Widget(i, seed) },
	"node":      func(i int, seed int64) runtime.Object { return testobjects.Node(i, seed) },
	"endpointslice": func(i int, seed int64) runtime.Object {
		return testobjects.EndpointSlice(i, seed)
	},
	"typedwidget": func(i int, seed int64) runtime.Object { return testobjects.NewTypedWidget(i, seed) },
}

func metadata(t *testing.T, obj runtime.Object) metav1.Object {
	t.Helper()
	m, err := meta.Accessor(obj)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func marshal(t *testing.T, obj any) []byte {
	t.Helper()
	data, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSameNumberAndSeedGiveSameObject(t *testing.T) {
	for name, newObject := range kinds {
		for _, i := range []int{0, 1, 299, 300, 49_999} {
			if diff := cmp.Diff(newObject(i, 7), newObject(i, 7)); diff != "" {
				t.Errorf("%s %d differs between two calls:\n%s", name, i, diff)
			}
			one, two := metadata(t, newObject(i, 7)), metadata(t, newObject(i, 8))
			if one.GetNamespace() != two.GetNamespace() || one.GetName() != two.GetName() {
				t.Errorf("%s %d: the key depends on the seed", name, i)
			}
			if one.GetUID() == two.GetUID() {
				t.Errorf("%s %d: the seed does not change the UID", name, i)
			}
		}
	}
}

func TestCopiesAreEqual(t *testing.T) {
	for name, newObject := range kinds {
		obj := newObject(3, 1)
		if diff := cmp.Diff(obj, obj.DeepCopyObject()); diff != "" {
			t.Errorf("the copy of %s differs:\n%s", name, diff)
		}
	}
}

func TestKeysAreUnique(t *testing.T) {
	const n = 5_000
	for name, newObject := range kinds {
		keys, uids, inDefault, namespaces := map[string]bool{}, map[string]bool{}, 0, map[string]bool{}
		for i := range n {
			m := metadata(t, newObject(i, 1))
			keys[m.GetNamespace()+"/"+m.GetName()] = true
			uids[string(m.GetUID())] = true
			namespaces[m.GetNamespace()] = true
			if m.GetNamespace() == metav1.NamespaceDefault {
				inDefault++
			}
			if name == "pod" {
				if namespace, podName := testobjects.PodKey(i); namespace != m.GetNamespace() || podName != m.GetName() {
					t.Fatalf("PodKey(%d) = %s/%s, want %s/%s", i, namespace, podName, m.GetNamespace(), m.GetName())
				}
			}
		}
		want := []int{n, n, n / 50, testobjects.Namespaces + 1}
		if name == "node" {
			want = []int{n, n, 0, 1} // the namespace is ""
		}
		got := []int{len(keys), len(uids), inDefault, len(namespaces)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: keys, UIDs, objects in default, namespaces (-want +got):\n%s", name, diff)
		}
	}
}

func TestSizes(t *testing.T) {
	within := func(name string, got, want int) {
		t.Helper()
		if got < want*8/10 || got > want*12/10 {
			t.Errorf("%s has %d bytes, want %d within 20 %%", name, got, want)
		}
	}
	jsonBytes, protobuf, bare, widget, configMap, node, slice := 0, 0, 0, 0, 0, 0, 0
	const n = 600
	for i := range n {
		pod := testobjects.Pod(i, 1)
		jsonBytes += len(marshal(t, pod))
		protobuf += pod.Size()
		pod.ManagedFields = nil
		bare += pod.Size()
		widget += len(marshal(t, testobjects.Widget(i, 1)))
		configMap += len(marshal(t, testobjects.ConfigMap(i, 1)))
		node += len(marshal(t, testobjects.Node(i, 1)))
		slice += len(marshal(t, testobjects.EndpointSlice(i, 1)))
	}
	t.Logf("mean bytes: pod %d JSON, %d protobuf, %d without managed fields; widget %d JSON; config map %d JSON",
		jsonBytes/n, protobuf/n, bare/n, widget/n, configMap/n)
	within("a pod as JSON", jsonBytes/n, 13_000)
	within("a pod as protobuf", protobuf/n, 9_600)
	within("a pod as protobuf without managed fields", bare/n, 3_900)
	within("a widget as JSON", widget/n, 5_000)
	within("a config map as JSON", configMap/n, 2_000)
	within("a node as JSON", node/n, 13_000)
	within("an endpoint slice as JSON", slice/n, 4_000)
}

func TestManagedFieldsAreJSON(t *testing.T) {
	for name, newObject := range kinds {
		for _, entry := range metadata(t, newObject(1, 1)).GetManagedFields() {
			if !json.Valid(entry.FieldsV1.GetRawBytes()) {
				t.Errorf("%s: the fields of %s are no JSON: %s", name, entry.Manager, entry.FieldsV1.GetRawBytes())
			}
		}
	}
}

func TestTypedWidgetIsWidget(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := testobjects.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	typed, err := scheme.New(testobjects.WidgetKind)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(testobjects.Widget(5, 1).Object, typed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(marshal(t, testobjects.NewTypedWidget(5, 1))), string(marshal(t, typed))); diff != "" {
		t.Errorf("the widget changed on its way through Unstructured (-want +got):\n%s", diff)
	}
}

func BenchmarkPod(b *testing.B) {
	for i := range b.N {
		testobjects.Pod(i, 1)
	}
}
