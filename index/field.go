package index

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// Field returns the index named "field:PATH" of a field selected by a JSONPath in
// kubectl's syntax. The path uses JSON names, for typed and unstructured objects;
// "spec.nodeName", ".spec.nodeName", "$.spec.nodeName" and "{.spec.nodeName}" are
// equivalent and named "field:spec.nodeName". It must be one expression without range.
//
// Each result of the path is a value, written as in JSON without quotes: times,
// quantities and other types with their own JSON form are indexed by that form. A missing
// field, null, an empty string, and an index beyond the end of a list have no value. A
// zero number or boolean has a value ("0", "false") if the object has the field; a typed
// object always has it unless the field is a pointer. A result that is an object or a
// list has no value, nor has a part of the object that the path does not fit. For an
// object that has no value for one of these two reasons, the function returns an error
// that is ErrNoValue.
//
// Field returns an error if the path cannot be parsed.
func Field(path string) (Index, error) {
	name, template := canonical(path)
	if name == "" {
		return Index{}, errors.New("index: field path is empty")
	}
	parser, err := jsonpath.Parse(name, template)
	if err != nil {
		return Index{}, fmt.Errorf("index: parse field path %q: %w", path, err)
	}
	single, err := inspect(parser.Root)
	if err != nil || len(parser.Root.Nodes) != 1 {
		return Index{}, fmt.Errorf("index: field path %q: want one expression without range", path)
	}
	f := &field{path: name, template: template, single: single}
	for _, step := range steps(name) {
		f.steps = append(f.steps, &field{path: step, template: "{" + step + "}"})
	}
	return Index{Name: "field:" + name, Version: "2", Params: name, Func: f.values}, nil
}

// ErrNoValue is the error of an index function for an object that does not fit it. A
// store keeps such an object without a value in the index; see Values.
var ErrNoValue = errors.New("index: the object has no value")

// noValue is an ErrNoValue with its own text.
type noValue struct {
	text  string
	cause error // may be nil
}

func (e *noValue) Error() string        { return e.text }
func (e *noValue) Unwrap() error        { return e.cause }
func (e *noValue) Is(target error) bool { return target == ErrNoValue }

// canonical returns the path without its optional prefix and braces, and its JSONPath
// template.
func canonical(path string) (name, template string) {
	name = strings.TrimSpace(path)
	if inner, ok := strings.CutPrefix(name, "{"); ok && strings.HasSuffix(inner, "}") {
		name = strings.TrimSpace(strings.TrimSuffix(inner, "}"))
	}
	name = strings.TrimPrefix(name, "$")
	if !strings.HasPrefix(name, "..") {
		name = strings.TrimPrefix(name, ".")
	}
	if strings.HasPrefix(name, "..") || strings.HasPrefix(name, "[") {
		return name, "{" + name + "}"
	}
	return name, "{." + name + "}"
}

// steps cuts a path into parts of one selection each, which begin with "." or "[".
func steps(name string) (steps []string) {
	if !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "[") {
		name = "." + name
	}
	for len(name) > 0 {
		end := stepEnd(name)
		steps, name = append(steps, name[:end]), name[end:]
	}
	return steps
}

// stepEnd returns the length of the first step of a path.
func stepEnd(name string) int {
	depth, quote := 0, byte(0)
	start := len(name) - len(strings.TrimLeft(name, "."))
	for i := start; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case depth > 0 && (c == '\'' || c == '"'):
			quote = c
		case c == '[' && depth == 0 && i > start, c == '.' && depth == 0:
			return i
		case c == '[' || c == '(':
			depth++
		case c == ']' || c == ')':
			if depth--; depth == 0 && c == ']' {
				return i + 1
			}
		}
	}
	return len(name)
}

// inspect reports whether the parsed path has at most one result. Keywords are an error:
// evaluating a range changes the parsed path, so that it works only once.
func inspect(list *jsonpath.ListNode) (single bool, err error) {
	single = true
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *jsonpath.FieldNode:
		case *jsonpath.ArrayNode:
			single = single && node.Params[1].Derived // [n], not [n:m]
		case *jsonpath.ListNode:
			s, err := inspect(node)
			if err != nil {
				return false, err
			}
			single = single && s
		case *jsonpath.WildcardNode, *jsonpath.RecursiveNode, *jsonpath.FilterNode, *jsonpath.UnionNode:
			single = false
		default:
			return false, fmt.Errorf("index: a field path has no %s", node.Type())
		}
	}
	return single, nil
}

// field evaluates one path.
type field struct {
	path     string
	template string
	single   bool // the path has at most one result
	steps    []*field

	// evaluators contains *jsonpath.JSONPath values. Only one goroutine may use one at a
	// time.
	evaluators sync.Pool
}

// values is the index function.
func (f *field) values(obj any) (values []string, err error) {
	if _, err := accessor(obj); err != nil {
		return nil, err
	}
	data := obj
	if u, ok := obj.(runtime.Unstructured); ok {
		data = u.UnstructuredContent()
	}
	results, err := f.find(data)
	if err != nil {
		// jsonpath has no sentinel for this error. Its errors are not wrapped, because
		// they show parts of the object.
		if f.single && strings.Contains(err.Error(), "array index out of bounds") {
			return nil, nil
		}
		results = f.fitting(data)
	}
	var misfit error
	for _, result := range results {
		value, ok, err := scalar(result)
		if err != nil {
			misfit = err
		}
		if ok {
			values = append(values, value)
		}
	}
	switch {
	case len(values) > 0:
		return values, nil
	case misfit != nil:
		return nil, &noValue{fmt.Sprintf("index field %q of a %T: %v", f.path, obj, misfit), misfit}
	case err != nil:
		return nil, f.errorOn(obj)
	}
	return nil, nil
}

func (f *field) errorOn(obj any) error {
	return &noValue{text: fmt.Sprintf("index field %q: path does not fit this %T", f.path, obj)}
}

// fitting returns the results in those parts of an object that the path fits. It takes
// one step of the path at a time, and a filter one element at a time.
func (f *field) fitting(data any) []reflect.Value {
	found := []reflect.Value{reflect.ValueOf(data)}
	for _, step := range f.steps {
		var next []reflect.Value
		for _, v := range found {
			for _, part := range parts(v, step.path) {
				results, err := step.find(part)
				if err == nil {
					next = append(next, results...)
				}
			}
		}
		found = next
	}
	return found
}

// parts returns what a step is evaluated on: a value or, for a filter, lists of one
// element each.
func parts(v reflect.Value, step string) (parts []any) {
	for v.IsValid() && (v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer && strings.HasPrefix(step, "[")) {
		v = v.Elem()
	}
	if !v.IsValid() || !v.CanInterface() {
		return nil
	}
	if !strings.HasPrefix(step, "[?") || v.Kind() != reflect.Slice {
		return []any{v.Interface()}
	}
	for i := range v.Len() {
		parts = append(parts, v.Slice(i, i+1).Interface())
	}
	return parts
}

// find evaluates the path. It drops an evaluator that returned an error or has panicked,
// because its state is unknown.
func (f *field) find(data any) (found []reflect.Value, err error) {
	defer func() { // jsonpath panics if a filter accesses an unexported field
		if recover() != nil {
			found, err = nil, errPanicked
		}
	}()
	evaluator, ok := f.evaluators.Get().(*jsonpath.JSONPath)
	if !ok {
		evaluator = jsonpath.New(f.path).AllowMissingKeys(true)
		if err := evaluator.Parse(f.template); err != nil {
			return nil, err
		}
	}
	results, err := evaluator.FindResults(data)
	if err != nil {
		return nil, err
	}
	f.evaluators.Put(evaluator)
	return slices.Concat(results...), nil
}

var errPanicked = errors.New("evaluating the path panicked")

var errNotScalar = errors.New("result is neither a string, a number nor a boolean")

// scalar returns the JSON form of v without quotes. ok is false for null and for the
// empty string, because in a typed object they look like a missing field.
func scalar(v reflect.Value) (value string, ok bool, err error) {
	defer func() { // a type's own JSON form may panic
		if recover() != nil {
			value, ok, err = "", false, errNotScalar
		}
	}()
	for v.Kind() == reflect.Interface && !v.IsNil() {
		v = v.Elem()
	}
	if !v.IsValid() {
		return "", false, nil
	}
	if !v.CanInterface() {
		return "", false, errNotScalar
	}
	x := v.Interface()
	_, isJSON := x.(json.Marshaler)
	_, isText := x.(encoding.TextMarshaler)
	if v.Kind() == reflect.String && !isJSON && !isText {
		return v.String(), v.String() != "", nil
	}
	// A struct with its own JSON form may be a scalar. Other structs and maps are never
	// scalars, so their content is not encoded.
	if k := v.Kind(); (k == reflect.Struct || k == reflect.Map) && !isJSON && !isText {
		return "", false, errNotScalar
	}
	text, err := json.Marshal(x)
	if err != nil {
		return "", false, errNotScalar
	}
	switch text[0] {
	case '{', '[':
		return "", false, errNotScalar
	case 'n':
		return "", false, nil
	case '"':
		if err := json.Unmarshal(text, &value); err != nil {
			return "", false, errNotScalar
		}
		return value, value != "", nil
	}
	return string(text), true, nil
}
