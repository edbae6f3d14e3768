// Package objectdiff compares two objects field by field.
package objectdiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/internal/secret"
)

// Field is a field that differs, with its two values.
type Field struct {
	Path, a, b string
	brief      string // of the one that is not absent, for text; "" is all of it
}

// String returns the difference as a line of text.
func (d Field) String() string {
	a, b := d.a, d.b
	for _, text := range []*string{&a, &b} {
		if d.brief != "" && *text != absent {
			*text = d.brief
		}
	}
	return d.Path + ": " + a + " -> " + b
}

// Changed returns the difference as history prints it, without values that are not
// shown. Neither absent nor secret.Redacted is JSON.
func (d Field) Changed() ChangedField {
	p := ChangedField{Path: d.Path}
	if d.a != absent && d.a != secret.Redacted {
		p.Old = json.RawMessage(d.a)
	}
	if d.b != absent && d.b != secret.Redacted {
		p.New = json.RawMessage(d.b)
	}
	return p
}

// absent is printed as the value of a field that does not exist.
const absent = "(none)"

// Comparison says what is compared of two objects, and shown. The zero value leaves out
// managedFields and the values of Secrets.
type Comparison struct {
	Managed     bool // compare managedFields, too
	ShowSecrets bool
}

// Fields returns the fields that differ between two objects, one of which is a Secret if
// isSecret is set.
func (c Comparison) Fields(isSecret bool, a, b runtime.Object) ([]Field, error) {
	a, b = copied(a), copied(b)
	for _, obj := range []runtime.Object{a, b} {
		if m, err := meta.Accessor(obj); err == nil && !c.Managed {
			m.SetManagedFields(nil)
		}
	}
	found, err := compared(a, b)
	if err != nil {
		return nil, err
	}
	if isSecret && !c.ShowSecrets {
		found = redacted(found)
	}
	return found, nil
}

// copied returns a copy of an object whose metadata and fields can be set. It shares what
// is below them.
func copied(obj runtime.Object) runtime.Object {
	if u, isMap := obj.(*unstructured.Unstructured); isMap {
		content := maps.Clone(u.Object)
		if metadata, ok := content["metadata"].(map[string]any); ok {
			content["metadata"] = maps.Clone(metadata)
		}
		return &unstructured.Unstructured{Object: content}
	}
	out := reflect.New(reflect.TypeOf(obj).Elem())
	out.Elem().Set(reflect.ValueOf(obj).Elem())
	return out.Interface().(runtime.Object)
}

// compared returns the fields that differ between two objects, which it changes.
func compared(a, b runtime.Object) (found []Field, err error) {
	parts := []part{{a: a, b: b}}
	if reflect.TypeOf(a) == reflect.TypeOf(b) {
		differ := dropEqual(a, b)
		if len(differ) == 0 {
			return nil, nil
		}
		if !slices.ContainsFunc(differ, func(p part) bool { return p.name == "" }) {
			parts = differ // to turn the rest into maps takes longer than to compare them
		}
	}
	for _, p := range parts {
		x, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.a)
		if err != nil {
			return nil, err
		}
		y, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.b)
		if err != nil {
			return nil, err
		}
		found = differences(found, p.name, value{x, true}, value{y, true})
	}
	return found, nil
}

// part is two states of an object, or of a field of it that is a struct.
type part struct {
	name string // of the field in JSON; "" if it cannot be compared alone
	a, b any    // pointers
}

// dropEqual empties the fields that two objects of one type have in common, such as a
// whole spec, since nothing in them differs. It returns the others, by name.
func dropEqual(a, b runtime.Object) (differ []part) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		v, w := x.Field(i), y.Field(i)
		if v.IsZero() && w.IsZero() {
			continue
		}
		p := part{a: v.Addr().Interface(), b: w.Addr().Interface()}
		// The first comparison takes a fraction of the time of the second, which knows
		// that quantities and times of several forms are equal.
		if reflect.DeepEqual(p.a, p.b) || equality.Semantic.DeepEqual(p.a, p.b) {
			v.SetZero()
			w.SetZero()
			continue
		}
		// An empty one may not be there in JSON.
		if _, marshals := p.a.(json.Marshaler); v.Kind() == reflect.Struct && !marshals && !v.IsZero() && !w.IsZero() {
			p.name, _, _ = strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
		}
		differ = append(differ, p)
	}
	slices.SortFunc(differ, func(p, q part) int { return strings.Compare(p.name, q.name) })
	return differ
}

// redacted returns the differences without the values of a Secret, each hidden field
// once.
func redacted(all []Field) (out []Field) {
	for _, d := range all {
		if !secret.Shows(d.Path) {
			named := secret.Named(d.Path)
			inside := named != d.Path
			d.Path, d.brief = named, ""
			for _, text := range []*string{&d.a, &d.b} {
				if *text != absent || inside {
					*text = secret.Redacted
				}
			}
		}
		if n := len(out); n == 0 || out[n-1].Path != d.Path {
			out = append(out, d)
		}
	}
	return out
}

// isPlain reports whether a key needs no quotes in a path: it is a name as those of
// fields.
func isPlain(key string) bool {
	for i, c := range []byte(key) {
		isLetter := c == '_' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		if !isLetter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return key != ""
}

// value is a value that may be absent.
type value struct {
	any
	is bool
}

func (v value) String() string {
	if !v.is {
		return absent
	}
	text, err := json.Marshal(v.any)
	if err != nil {
		return "?"
	}
	return string(text)
}

// differences appends the paths, in order, at which two values differ.
func differences(found []Field, path string, a, b value) []Field {
	if a.is == b.is && reflect.DeepEqual(a.any, b.any) {
		return found
	}
	if x, ok := a.any.(map[string]any); ok {
		if y, ok := b.any.(map[string]any); ok {
			return mapDifferences(found, path, x, y)
		}
	}
	if x, ok := a.any.([]any); ok {
		if y, ok := b.any.([]any); ok {
			return listDifferences(found, path, x, y)
		}
	}
	return append(found, Field{Path: path, a: a.String(), b: b.String()})
}

func mapDifferences(found []Field, path string, a, b map[string]any) []Field {
	var differ []string
	for key, v := range a {
		if w, ok := b[key]; !ok || !reflect.DeepEqual(v, w) {
			differ = append(differ, key)
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			differ = append(differ, key)
		}
	}
	slices.Sort(differ)
	for _, key := range differ {
		at := key
		switch {
		case !isPlain(key):
			at = fmt.Sprintf("%s[%q]", path, key)
		case path != "":
			at = path + "." + key
		}
		found = differences(found, at, entry(a, key), entry(b, key))
	}
	return found
}

func entry(m map[string]any, key string) value {
	v, ok := m[key]
	return value{v, ok}
}
