// Package secret defines which parts of a Secret may be shown: its names, labels, types
// and keys, and no value.
package secret

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/store"
)

// Redacted replaces each value of a Secret.
const Redacted = "REDACTED"

// The fields that are shown as they are. All others are hidden: of maps of values the
// keys are shown, of all else nothing.
var (
	shownFields = set("apiVersion", "kind", "type", "immutable")
	shownMeta   = set("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "selfLink",
		"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "ownerReferences", "finalizers")
	keyedFields = set("data", "stringData")
)

func set(names ...string) map[string]bool {
	out := make(map[string]bool, len(names))
	for _, name := range names {
		out[name] = true
	}
	return out
}

// Is reports whether an object of a scope is a Secret, in any form, or a list that has
// one.
func Is(scope store.Scope, obj runtime.Object) bool {
	switch obj.(type) {
	case *corev1.Secret, *corev1.SecretList:
		return true
	}
	kind := obj.GetObjectKind().GroupVersionKind()
	if kind.Group == "" && (kind.Kind == "Secret" || kind.Kind == "SecretList") || scope.IsSecret() {
		return true
	}
	if !isList(obj) {
		return false
	}
	found := false
	err := meta.EachListItem(obj, func(item runtime.Object) error {
		// An element that is not decoded may be a Secret.
		found = found || item == nil || Is(store.Scope{}, item)
		return nil
	})
	return found || err != nil
}

// isList reports whether an object is a list. An unstructured object with a field items
// is not always one.
func isList(obj runtime.Object) bool {
	_, free := obj.(runtime.Unstructured)
	return meta.IsListType(obj) && (!free || strings.HasSuffix(obj.GetObjectKind().GroupVersionKind().Kind, "List"))
}

// Redact returns a Secret without its values, or a list with such Secrets: the values of
// data, stringData and annotations, and each field that is not a Secret's. The result is
// unstructured unless obj is metadata. Redact does not change obj, but the result may
// share parts of it. The error shows no content.
func Redact(obj runtime.Object) (runtime.Object, error) {
	if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
		return redactMetadata(m), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, errors.New("a Secret cannot be read, so it is not shown")
	}
	if isList(obj) {
		return &unstructured.Unstructured{Object: redactList(content)}, nil
	}
	return &unstructured.Unstructured{Object: redact(content)}, nil
}

func redactList(content map[string]any) map[string]any {
	out := redact(content)
	if items, ok := content["items"].([]any); ok {
		out["items"] = redactItems(items, content["kind"])
	}
	return out
}

// redactItems redacts the elements of a list, except those that a List of several kinds
// says are of another kind.
func redactItems(items []any, list any) []any {
	out := make([]any, len(items))
	for i, item := range items {
		content, ok := item.(map[string]any)
		kind, _ := content["kind"].(string)
		switch {
		case !ok:
			out[i] = Redacted
		case list == "List" && strings.HasSuffix(kind, "List"):
			out[i] = redactList(content)
		case list == "List" && kind != "" && kind != "Secret":
			out[i] = content
		default:
			out[i] = redact(content)
		}
	}
	return out
}

func redactMetadata(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: *m.ObjectMeta.DeepCopy()}
	for key := range out.Annotations {
		out.Annotations[key] = Redacted
	}
	for i, entry := range out.ManagedFields {
		if entry.FieldsV1 == nil {
			continue
		}
		var fields map[string]any
		out.ManagedFields[i].FieldsV1 = nil
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if b, err := json.Marshal(namedFields(fields)); err == nil {
			out.ManagedFields[i].FieldsV1 = metav1.NewFieldsV1(string(b))
		}
	}
	return out
}

// redact copies the maps that it changes, because other objects may share content.
func redact(content map[string]any) map[string]any {
	out := make(map[string]any, len(content))
	for name, v := range content {
		switch {
		case v == nil || shownFields[name]:
			out[name] = v
		case keyedFields[name]:
			out[name] = keysOf(v)
		case name == "metadata":
			metadata, ok := v.(map[string]any)
			if !ok {
				out[name] = Redacted
				continue
			}
			shown := make(map[string]any, len(metadata))
			for name, v := range metadata {
				switch {
				case v == nil || shownMeta[name]:
					shown[name] = v
				case name == "annotations":
					shown[name] = keysOf(v)
				case name == "managedFields":
					shown[name] = entriesOf(v)
				default:
					shown[name] = Redacted
				}
			}
			out[name] = shown
		default:
			out[name] = Redacted
		}
	}
	return out
}

// keysOf returns the keys of a map of values.
func keysOf(v any) any {
	values, ok := v.(map[string]any)
	if !ok {
		return Redacted
	}
	out := make(map[string]any, len(values))
	for key := range values {
		out[key] = Redacted
	}
	return out
}

// entriesOf returns managedFields with the names of fields only.
func entriesOf(v any) any {
	entries, ok := v.([]any)
	if !ok {
		return Redacted
	}
	out := make([]any, 0, len(entries))
	for _, entry := range entries {
		entry, ok := entry.(map[string]any)
		if !ok {
			continue
		}
		entry = maps.Clone(entry)
		fields, _ := entry["fieldsV1"].(map[string]any)
		if delete(entry, "fieldsV1"); fields != nil {
			entry["fieldsV1"] = namedFields(fields)
		}
		out = append(out, entry)
	}
	return out
}

// namedFields returns the fields of a manager, of data and annotations the keys only: a
// path may contain values, too.
func namedFields(fields map[string]any) map[string]any {
	out := make(map[string]any, len(fields))
	for name, v := range fields {
		switch of := strings.TrimPrefix(name, "f:"); {
		case keyedFields[of]:
			out[name] = namedKeys(v)
		case of == "metadata":
			metadata, _ := v.(map[string]any)
			shown := make(map[string]any, len(metadata))
			for name, v := range metadata {
				switch of := strings.TrimPrefix(name, "f:"); {
				case of == "annotations":
					shown[name] = namedKeys(v)
				case shownMeta[of]:
					shown[name] = v
				case isName(name):
					shown[name] = map[string]any{}
				}
			}
			out[name] = shown
		case isName(name):
			out[name] = map[string]any{}
		}
	}
	return out
}

func namedKeys(v any) map[string]any {
	fields, _ := v.(map[string]any)
	out := make(map[string]any, len(fields))
	for name := range fields {
		if isName(name) {
			out[name] = map[string]any{}
		}
	}
	return out
}

// Strip removes from the content of a redacted Secret what does not stand for itself: all
// values, with their keys.
func Strip(content map[string]any) {
	hidden := func(_ string, v any) bool { return v == Redacted }
	maps.DeleteFunc(content, func(name string, v any) bool { return keyedFields[name] || hidden(name, v) && !shownFields[name] })
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return
	}
	maps.DeleteFunc(metadata, func(name string, v any) bool { return v == Redacted && !shownMeta[name] })
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		maps.DeleteFunc(annotations, hidden)
	}
}

// isName reports whether an element of a manager's path is the name of a field, or the
// field itself.
func isName(element string) bool { return element == "." || strings.HasPrefix(element, "f:") }

// shownPath matches the paths of what is shown. Below a shown field, a path has neither
// filters nor another root.
var shownPath = regexp.MustCompile(`^(` + alternatives(shownFields) + `|metadata\.(` + alternatives(shownMeta) + `)(\b[^?$]*)?)$`)

func alternatives(names map[string]bool) string {
	var all []string
	for name := range names {
		all = append(all, name)
	}
	return strings.Join(all, "|")
}

// Shows reports whether the value at a path of a Secret, as metadata.labels["a"], is
// shown.
func Shows(path string) bool { return shownPath.MatchString(path) && !strings.Contains(path, "..") }

// namedPath matches the part of a path that consists of names of fields and keys of
// values.
var namedPath = regexp.MustCompile(`^(?:(?:data|stringData|metadata\.annotations)\b(?:` + step + `)?|metadata(?:` + step + `)|\w+|` + step + `)`)

const step = `\.\w+|\["(?:[^"\\]|\\.)*"\]`

// Named returns what a path of a Secret names, without what it selects in a hidden value.
func Named(path string) string {
	if Shows(path) {
		return path
	}
	return namedPath.FindString(path)
}

// ShowsIndex reports whether the values of an index of Secrets are values that are shown,
// so that it may be asked for one. Those of a function that is not known may be any.
func ShowsIndex(info store.IndexInfo) bool {
	known, err := index.Parse(info.Name)
	if err != nil || known.Identity() != info.Identity {
		return false
	}
	path, isField := strings.CutPrefix(known.Name, "field:")
	return isField && Shows(path) || strings.HasPrefix(known.Name, "label:") || known.Name == "owner" || known.Name == cache.NamespaceIndex
}
