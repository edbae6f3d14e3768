package index_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
)

func pod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "shop",
			Labels:            map[string]string{"app": "web", "empty": ""},
			CreationTimestamp: metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
			OwnerReferences:   []metav1.OwnerReference{{UID: "u2"}, {UID: "u1"}, {UID: "u2"}},
		},
		Spec: corev1.PodSpec{
			NodeName:    "n1",
			HostNetwork: true,
			Containers: []corev1.Container{
				{
					Name: "c1", Image: "img:1",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
					LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
						HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080)},
					}},
				},
				{Name: "c2", Image: "img:1"},
				{Name: "c3", Image: "img:0"},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func unstructuredOf(t testing.TB, obj any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func TestValuesOfReadyIndexes(t *testing.T) {
	tests := []struct {
		spec string
		want []string
	}{
		{"namespace", []string{"shop"}},
		{"label:app", []string{"web"}},
		{"label:empty", []string{""}},
		{"label:none", nil},
		{"owner", []string{"u1", "u2"}},
		{"node", []string{"n1"}},
		{"field:spec.nodeName", []string{"n1"}},
		{"field:{.status.phase}", []string{"Running"}},
		{"field:spec.hostNetwork", []string{"true"}},
		{"field:spec.priority", nil},
		{"field:spec.schedulerName", nil},
		{"field:no.such.field", nil},
		{"field:metadata.labels.app", []string{"web"}},
		{"field:metadata.labels['app']", []string{"web"}},
		{"field:metadata.creationTimestamp", []string{"2026-03-01T12:00:00Z"}},
		{"field:spec.containers[*].image", []string{"img:0", "img:1"}},
		{"field:..image", []string{"img:0", "img:1"}},
		{"field:spec.containers[0].name", []string{"c1"}},
		{"field:spec.containers[-1].name", []string{"c3"}},
		{"field:spec.containers[7].name", nil},
		{`field:spec.containers[?(@.image=="img:1")].name`, []string{"c1", "c2"}},
		{"field:spec.containers[0].resources.requests.cpu", []string{"100m"}},
		{"field:spec.containers[0].livenessProbe.httpGet.port", []string{"8080"}},
	}
	typed := pod()
	for _, test := range tests {
		ix, err := index.Parse(test.spec)
		if err != nil {
			t.Errorf("%s: %v", test.spec, err)
			continue
		}
		for _, obj := range []any{typed, unstructuredOf(t, typed)} {
			got, err := index.Values(ix.Func, obj)
			if err != nil {
				t.Errorf("%s of a %T: %v", test.spec, obj, err)
			}
			if len(got)+len(test.want) > 0 {
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("%s of a %T (-want +got):\n%s", test.spec, obj, diff)
				}
			}
		}
	}
	if diff := cmp.Diff(pod(), typed); diff != "" {
		t.Errorf("an index function changed the object:\n%s", diff)
	}
}

func TestFieldErrorsNameThePathOnly(t *testing.T) {
	secret := pod()
	secret.Spec.Containers[0].Name = "hunter2"
	secret.Annotations = map[string]string{"a": "hunter2"}
	for _, path := range []string{
		"spec.containers", "spec", "metadata.annotations", "spec.containers[0]",
		"spec[?(@.x==1)]", "spec.nodeName[0]", "metadata.annotations.a[?(@.x)]", "spec.containers[*].env[0].name",
		"metadata.creationTimestamp[0]", "spec.containers[?(@.name > 1)].name",
	} {
		ix, err := index.Field(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, obj := range []any{secret, unstructuredOf(t, secret)} {
			values, err := ix.Func(obj)
			if err == nil {
				// A list that is missing completely has no elements. Only an unstructured
				// object can have a missing list.
				if _, ok := obj.(*unstructured.Unstructured); ok && strings.Contains(path, "env") {
					continue
				}
				t.Errorf("%s of a %T: got %d values and no error", path, obj, len(values))
				continue
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: error shows the object: %v", path, err)
			}
			if !strings.Contains(err.Error(), ix.Params) && !strings.Contains(err.Error(), `\"`) {
				t.Errorf("%s: error does not name the path: %v", path, err)
			}
		}
	}
}

func TestFieldName(t *testing.T) {
	for _, path := range []string{"spec.nodeName", ".spec.nodeName", "{.spec.nodeName}", "{ .spec.nodeName }", "$.spec.nodeName", "{spec.nodeName}"} {
		ix, err := index.Field(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if ix.Name != "field:spec.nodeName" || ix.Params != "spec.nodeName" {
			t.Errorf("%s: got name %q, params %q", path, ix.Name, ix.Params)
		}
	}
}

func TestFieldRefusesPaths(t *testing.T) {
	for _, path := range []string{
		"", " ", ".", "$", "{}", "{.}", "spec[", "spec.containers[?(", "{.spec}{.status}", "{.spec} text", "spec range", "{range .spec.containers[*]}{.name}{end}",
		"spec.containers[*] end",
	} {
		if ix, err := index.Field(path); err == nil {
			_, ferr := ix.Func(pod())
			t.Errorf("%q: got index %q and no error (function: %v)", path, ix.Name, ferr)
		}
	}
}

func TestNonObjectsAreErrors(t *testing.T) {
	path, err := index.Field("spec.nodeName")
	if err != nil {
		t.Fatal(err)
	}
	var nilUnstructured *unstructured.Unstructured
	for _, ix := range []index.Index{index.Label("app"), index.OwnerUID(), index.NodeName(), path} {
		for _, obj := range []any{
			nil, 7, "x", (*corev1.Pod)(nil), nilUnstructured,
			corev1.Pod{},
			&struct{}{},
			map[string]any{},
			cache.DeletedFinalStateUnknown{Key: "a", Obj: pod()},
			new(int),
		} {
			if _, err := ix.Func(obj); err == nil {
				t.Errorf("%s of a %T: no error", ix.Name, obj)
			}
		}
		if _, err := ix.Func(&unstructured.Unstructured{}); err != nil {
			t.Errorf("%s of an empty object: %v", ix.Name, err)
		}
	}
	if _, err := index.NodeName().Func(&corev1.Node{}); err == nil {
		t.Error("node of a node: no error")
	}
	if _, err := index.Values(index.Namespace().Func, (*corev1.Pod)(nil)); err == nil {
		t.Error("namespace of a nil pod: no error")
	}
}

func TestParseListsForms(t *testing.T) {
	for _, spec := range []string{"", "nodes", "label", "label:", "label:a b", "field", "field:", "owner:x", "Namespace"} {
		_, err := index.Parse(spec)
		if err == nil {
			t.Errorf("%q: no error", spec)
		}
	}
	_, err := index.Parse("bogus")
	for _, form := range []string{"bogus", "namespace", "label:", "field:", "owner", "node"} {
		if !strings.Contains(err.Error(), form) {
			t.Errorf("error does not list %q: %v", form, err)
		}
	}
}

func TestIdentityIsUnambiguous(t *testing.T) {
	seen := map[string]index.Index{}
	parts := []string{"", "a", `"`, `" "`, `a" "b`, "\xff", " "}
	for _, n := range parts {
		for _, v := range parts {
			for _, p := range parts {
				ix := index.Index{Name: n, Version: v, Params: p}
				if other, ok := seen[ix.Identity()]; ok {
					t.Errorf("%+v and %+v are both %s", ix, other, ix.Identity())
				}
				seen[ix.Identity()] = ix
			}
		}
	}
}

func TestValues(t *testing.T) {
	shared := []string{"b", "a", "b"}
	got, err := index.Values(func(any) ([]string, error) { return shared, nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got[0] = "changed"
	if diff := cmp.Diff([]string{"b", "a", "b"}, shared); diff != "" {
		t.Errorf("the function's slice was changed (-want +got):\n%s", diff)
	}

	_, err = index.Values(func(any) ([]string, error) { panic("hunter2") }, pod())
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "string") {
		t.Errorf("panic: got error %v", err)
	}
	if _, err := index.Values(nil, pod()); err == nil {
		t.Error("nil function: no error")
	}
	errOwn := errors.New("own")
	if _, err := index.Values(func(any) ([]string, error) { return []string{"x"}, errOwn }, nil); !errors.Is(err, errOwn) {
		t.Errorf("got error %v", err)
	}
}

func TestIsNamespace(t *testing.T) {
	if !index.IsNamespace(index.Namespace().Func) || !index.IsNamespace(cache.MetaNamespaceIndexFunc) {
		t.Error("MetaNamespaceIndexFunc is not recognized")
	}
	if index.IsNamespace(nil) || index.IsNamespace(index.OwnerUID().Func) ||
		index.IsNamespace(func(obj any) ([]string, error) { return cache.MetaNamespaceIndexFunc(obj) }) {
		t.Error("another function is taken for it")
	}
}

func TestFieldIsSafeForConcurrentUse(t *testing.T) {
	ix, err := index.Field("spec.containers[*].name")
	if err != nil {
		t.Fatal(err)
	}
	obj := pod()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got, err := ix.Func(obj); err != nil || len(got) != 3 {
					t.Errorf("got %q, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkField(b *testing.B) {
	ix, err := index.Field("spec.nodeName")
	if err != nil {
		b.Fatal(err)
	}
	typed := pod()
	for name, obj := range map[string]any{"typed": typed, "unstructured": unstructuredOf(b, typed)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ix.Func(obj); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestFieldOfOtherShapes checks objects that a path fits in part or not at all: what fits
// has a value, and an object without one is no error of Values.
func TestFieldOfOtherShapes(t *testing.T) {
	container := func(ports ...int32) corev1.Container {
		c := corev1.Container{Name: "c"}
		for _, p := range ports {
			c.Ports = append(c.Ports, corev1.ContainerPort{ContainerPort: p})
		}
		return c
	}
	typed := func(containers ...corev1.Container) any {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
	}
	owner := func(owner any) any {
		return &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"owner": owner}}}
	}
	object := func(kv ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	for _, test := range []struct {
		path string
		obj  any
		want []string
	}{
		{"spec.containers[*].ports[0].containerPort", typed(container(80), container(), container(81)), []string{"80", "81"}},
		{"spec.containers[*].ports[0].containerPort", typed(container()), nil},
		{"spec.containers[*].ports[0].containerPort", typed(), nil},
		{"spec.containers[0,1].ports[0].containerPort", typed(container(), container(80)), []string{"80"}},
		{"spec.containers[0:2].ports[-1].containerPort", typed(container(), container(80, 81)), []string{"81"}},
		{"..ports[0].containerPort", typed(container(), container(80)), []string{"80"}},
		{"spec.containers[?(@.ports[0].containerPort==80)].name", typed(container(), container(80)), []string{"c"}},
		{"spec.containers[0].ports[0].containerPort", typed(container()), nil},
		{"spec.containers", typed(container()), nil},
		{"spec.owner", owner(object("name", "x")), nil},
		{"spec.owner", owner([]any{"x"}), nil},
		{"spec.owner", owner(nil), nil},
		{"spec.owner.name", owner("x"), nil},
		{"spec.owner.name", owner([]any{object("name", "x")}), nil},
		{"spec.owner.name", owner(int64(1)), nil},
		{"spec.owner.name", owner(nil), nil},
		{"spec.owner[0]", owner("x"), nil},
		{"spec.owner[0]", owner(object("0", "x")), nil},
		{"spec.owner[*]", owner("x"), nil},
		{"spec.owner[*]", owner([]any{"x", object("a", "y"), int64(2), nil}), []string{"2", "x"}},
		{"spec.owner[*].name", owner([]any{"x", object("name", "y"), []any{}}), []string{"y"}},
		{"spec.owner['a','b']", owner("x"), nil},
		{`spec.owner.a\.b[*].c`, owner(object("a.b", []any{"y", object("c", "x")})), []string{"x"}},
		{"spec.owner[?(@.a=='b')].c", owner("x"), nil},
		{"spec.owner[?(@.a=='b')].c", owner([]any{object("a", int64(1), "c", "x"), object("a", "b", "c", "y"), "z", object("c", "w")}), []string{"y"}},
		{"spec.owner[?(@.a=='[.')].c", owner([]any{object("a", int64(1)), object("a", "[.", "c", "y")}), []string{"y"}},
		{"spec.owner[?(@.a>1)].c", owner([]any{object("a", "b", "c", "x"), object("a", int64(2), "c", "y")}), []string{"y"}},
	} {
		ix, err := index.Field(test.path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := index.Values(ix.Func, test.obj)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, %v, want %q", test.path, got, err, test.want)
		}
		if _, err := ix.Func(test.obj); err != nil && !errors.Is(err, index.ErrNoValue) {
			t.Errorf("%s: error %v", test.path, err)
		}
	}
}
