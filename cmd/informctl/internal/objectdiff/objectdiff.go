// Package objectdiff compares two objects field by field.
package objectdiff

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
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
	if reflect.TypeOf(a) == reflect.TypeOf(b) && !dropEqual(a, b) {
		return nil, nil
	}
	x, err := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	if err != nil {
		return nil, err
	}
	y, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return nil, err
	}
	found := differences(nil, "", value{x, true}, value{y, true})
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

// dropEqual empties the fields that two objects of one type have in common, such as a
// whole spec, since nothing in them differs. It reports whether one is left.
func dropEqual(a, b runtime.Object) (differ bool) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		v, w := x.Field(i).Interface(), y.Field(i).Interface()
		// The first comparison takes a fraction of the time of the second, which knows
		// that quantities and times of several forms are equal.
		if reflect.DeepEqual(v, w) || equality.Semantic.DeepEqual(v, w) {
			x.Field(i).SetZero()
			y.Field(i).SetZero()
		} else {
			differ = true
		}
	}
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

// plainKey matches a key that needs no quotes in a path.
var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

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
			both := maps.Clone(x)
			maps.Copy(both, y)
			for _, key := range slices.Sorted(maps.Keys(both)) {
				at := fmt.Sprintf("%s[%q]", path, key)
				if plainKey.MatchString(key) {
					at = strings.TrimPrefix(path+"."+key, ".")
				}
				found = differences(found, at, entry(x, key), entry(y, key))
			}
			return found
		}
	}
	if x, ok := a.any.([]any); ok {
		if y, ok := b.any.([]any); ok {
			return listDifferences(found, path, x, y)
		}
	}
	return append(found, Field{Path: path, a: a.String(), b: b.String()})
}

func entry(m map[string]any, key string) value {
	v, ok := m[key]
	return value{v, ok}
}
