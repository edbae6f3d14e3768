package secret_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/store"
)

// hunter2 is in all values, and in nothing that is shown.
const hunter2 = "hunter2"

// TestRedact checks that no value remains in any form, that names, labels, types and keys
// remain, and that the object itself does not change.
func TestRedact(t *testing.T) {
	fields := `{"f:data":{".":{},"f:x":{"v:hunter2":{}}},"f:metadata":{"f:annotations":{".":{},"f:a":{"k:{\"a\":\"hunter2\"}":{}}},"f:labels":{"f:l":{}},"f:odd":{"v:hunter2":{}}},"f:type":{},"v:hunter2":{}}`
	metadata := metav1.ObjectMeta{
		Name: "s", Labels: map[string]string{"l": "m"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: hunter2, "a": hunter2},
		ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "apply", FieldsV1: metav1.NewFieldsV1(fields)}, {Manager: "none"},
		},
		OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, Finalizers: []string{"f"},
	}
	typed := &corev1.Secret{
		ObjectMeta: metadata, Type: corev1.SecretTypeTLS, Immutable: ptr.To(true),
		Data: map[string][]byte{"x": []byte(hunter2)}, StringData: map[string]string{"y": hunter2},
	}
	shownMetadata := func() map[string]any {
		return map[string]any{
			"name": "s", "labels": map[string]any{"l": "m"}, "finalizers": []any{"f"},
			"annotations":     map[string]any{corev1.LastAppliedConfigAnnotation: secret.Redacted, "a": secret.Redacted},
			"ownerReferences": []any{map[string]any{"apiVersion": "", "kind": "", "name": "o", "uid": ""}},
			"managedFields": []any{
				map[string]any{"manager": "apply", "fieldsV1": map[string]any{
					"f:data": map[string]any{".": map[string]any{}, "f:x": map[string]any{}},
					"f:metadata": map[string]any{
						"f:annotations": map[string]any{".": map[string]any{}, "f:a": map[string]any{}},
						"f:labels":      map[string]any{"f:l": map[string]any{}}, "f:odd": map[string]any{},
					},
					"f:type": map[string]any{},
				}},
				map[string]any{"manager": "none"},
			},
		}
	}
	shown := func() map[string]any {
		return map[string]any{
			"metadata": shownMetadata(), "type": "kubernetes.io/tls", "immutable": true,
			"data": map[string]any{"x": secret.Redacted}, "stringData": map[string]any{"y": secret.Redacted},
		}
	}
	free := func(change func(map[string]any)) *unstructured.Unstructured {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			t.Fatal(err)
		}
		content["kind"] = "Secret"
		change(content)
		return &unstructured.Unstructured{Object: content}
	}
	with := func(content map[string]any, more map[string]any) map[string]any {
		maps.Copy(content, more)
		return content
	}
	kind := map[string]any{"kind": "Secret"}
	for name, c := range map[string]struct {
		obj  runtime.Object
		want map[string]any
	}{
		"typed":        {typed, shown()},
		"unstructured": {free(func(map[string]any) {}), with(shown(), kind)},
		"of a wrong shape": {
			free(func(content map[string]any) {
				content["data"], content["stringData"] = []any{hunter2}, hunter2
				content["items"], content["copy"] = []any{map[string]any{"a": hunter2}}, hunter2
				content["metadata"] = map[string]any{"annotations": hunter2, "managedFields": hunter2, "copy": hunter2}
			}),
			map[string]any{
				"kind": "Secret", "type": "kubernetes.io/tls", "immutable": true,
				"data": secret.Redacted, "stringData": secret.Redacted, "items": secret.Redacted, "copy": secret.Redacted,
				"metadata": map[string]any{"annotations": secret.Redacted, "managedFields": secret.Redacted, "copy": secret.Redacted},
			},
		},
		"without metadata": {
			&unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "metadata": hunter2}},
			map[string]any{"kind": "Secret", "metadata": secret.Redacted},
		},
		"metadata":   {&metav1.PartialObjectMetadata{ObjectMeta: metadata}, map[string]any{"metadata": shownMetadata()}},
		"typed list": {&corev1.SecretList{Items: []corev1.Secret{*typed}}, map[string]any{"metadata": map[string]any{}, "items": []any{shown()}}},
		"metadata list": {
			&metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metadata}}},
			map[string]any{"metadata": map[string]any{}, "items": []any{map[string]any{"metadata": shownMetadata()}}},
		},
		"list of several kinds": {
			&unstructured.Unstructured{Object: map[string]any{"kind": "List", "items": []any{
				free(func(map[string]any) {}).Object, map[string]any{"kind": "ConfigMap", "data": map[string]any{"a": "b"}}, hunter2,
			}}},
			map[string]any{"kind": "List", "items": []any{
				with(shown(), kind), map[string]any{"kind": "ConfigMap", "data": map[string]any{"a": "b"}}, secret.Redacted,
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.obj.DeepCopyObject()
			shown, err := secret.Redact(c.obj)
			if err != nil {
				t.Fatal(err)
			}
			got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(shown)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("shown (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, c.obj); diff != "" {
				t.Errorf("the object was changed:\n%s", diff)
			}
		})
	}
}

// TestStrip checks that nothing is left that stands for a value, or for the lack of one.
func TestStrip(t *testing.T) {
	content := map[string]any{
		"kind": "Secret", "type": secret.Redacted, "copy": secret.Redacted, "data": map[string]any{"x": secret.Redacted},
		"stringData": secret.Redacted, "metadata": map[string]any{
			"name": secret.Redacted, "copy": secret.Redacted,
			"annotations": map[string]any{"a": secret.Redacted, "b": "c"},
		},
	}
	secret.Strip(content)
	want := map[string]any{
		"kind": "Secret", "type": secret.Redacted,
		"metadata": map[string]any{"name": secret.Redacted, "annotations": map[string]any{"b": "c"}},
	}
	if diff := cmp.Diff(want, content); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	secret.Strip(map[string]any{"metadata": "none"})
}

// TestIs checks that a Secret is known by its type, its kind or its scope, and a list by
// what is in it.
func TestIs(t *testing.T) {
	free := func(kind string, items ...any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
		if items != nil {
			u.Object["items"] = items
		}
		return u
	}
	for name, c := range map[string]struct {
		scope store.Scope
		obj   runtime.Object
		want  bool
	}{
		"typed":             {obj: &corev1.Secret{}, want: true},
		"typed list":        {obj: &corev1.SecretList{}, want: true},
		"unstructured":      {obj: free("Secret"), want: true},
		"unstructured list": {obj: free("SecretList"), want: true},
		"in a list":         {obj: free("List", free("Pod").Object, free("Secret").Object), want: true},
		"of the scope":      {store.Scope{Resource: "secrets"}, &metav1.PartialObjectMetadata{}, true},
		"another kind":      {obj: &corev1.Pod{}},
		"another list":      {obj: free("List", free("Pod").Object)},
		"a field items":     {obj: free("Basket", "egg")},
	} {
		t.Run(name, func(t *testing.T) {
			if got := secret.Is(c.scope, c.obj); got != c.want {
				t.Errorf("a Secret: %t, want %t", got, c.want)
			}
		})
	}
}

// TestShows checks of which paths and indexes the values are shown, and what a hidden
// path names.
func TestShows(t *testing.T) {
	for path, want := range map[string]string{
		"type": "", "metadata.name": "", `metadata.labels["a/b"]`: "", "metadata.labels": "",
		"metadata.ownerReferences[uid=u].name": "",

		"data": "data", "data.password": "data.password", `data["a.b"].x[name=hunter2]`: `data["a.b"]`,
		"database[name=hunter2]": "database", "metadata": "metadata", "stringData.x": "stringData.x",
		`metadata.annotations["a\"]b"].x`: `metadata.annotations["a\"]b"]`, "metadata.annotations": "metadata.annotations",
		"metadata.managedFields[0].fieldsV1": "metadata.managedFields", "typed": "typed", "..password": "",
		`metadata.labels[?($.data.x=="a")]`: "metadata.labels", `["a b"].c`: `["a b"]`,
	} {
		if got := secret.Shows(path); got != (want == "" && path != "..password") {
			t.Errorf("%s: shown is %t", path, got)
		}
		if got := secret.Named(path); !secret.Shows(path) && got != want {
			t.Errorf("%s: it names %s, want %s", path, got, want)
		}
	}
	for _, name := range []string{"namespace", "label:app", "owner", "field:type", "field:metadata.labels.app"} {
		known, err := index.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if !secret.ShowsIndex(store.IndexInfo{Name: name, Identity: known.Identity()}) {
			t.Errorf("%s: its values are hidden", name)
		}
		if secret.ShowsIndex(store.IndexInfo{Name: name, Identity: "own"}) {
			t.Errorf("%s: the values of a function of the same name are shown", name)
		}
	}
	for _, name := range []string{"field:data.password", "field:metadata.annotations.a", "field:..password", "own"} {
		known, _ := index.Parse(name)
		if secret.ShowsIndex(store.IndexInfo{Name: name, Identity: known.Identity()}) {
			t.Errorf("%s: its values are shown", name)
		}
	}
}
