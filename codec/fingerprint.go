package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"

	"google.golang.org/protobuf/reflect/protoreflect"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fingerprint hashes the parts of t that can be stored. It does not see what the methods
// of a type with its own form do.
func fingerprint(t reflect.Type) string {
	h := sha256.New()
	typeWalk{Writer: h, seen: map[typeIn]int{}}.add(t, "")
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// fieldsV1Type is in the metadata of every object. It has other fields with the build tag
// fieldsv1string, and the same form.
var fieldsV1Type = reflect.TypeFor[metav1.FieldsV1]()

var protoMessageType = reflect.TypeFor[protoreflect.ProtoMessage]()

// typeWalk writes a description of types.
type typeWalk struct {
	io.Writer
	// seen contains the types in the order of their first occurrence. A later occurrence
	// is written as a number.
	seen map[typeIn]int
}

// typeIn is a type and the package whose unexported fields count in it, "" for none.
type typeIn struct {
	t    reflect.Type // not embedded: the linker would keep all methods of all types
	form string
}

// add writes t. Unexported fields are stored only in the form that a type defines itself.
// They count in such a type, and in the types of its package, form, that it contains.
// They do not count in types of Go and Kubernetes, nor in protobuf messages: a release,
// or another generator, may change them, but not the form.
func (w typeWalk) add(t reflect.Type, form string) {
	if t.PkgPath() != "" && t.PkgPath() != form {
		form = ""
	}
	if ownForm(t) != nil && !isKnown(t) && !implements(t, protoMessageType) {
		form = t.PkgPath()
	}
	if n, ok := w.seen[typeIn{t, form}]; ok {
		w.put("seen %d\n", n)
		return
	}
	w.seen[typeIn{t, form}] = len(w.seen)
	w.put("type %q %q %s", t.PkgPath(), t.Name(), t.Kind())
	if t.Kind() != reflect.Interface {
		json, text := implements(t, marshalerType), implements(t, textMarshalerType)
		w.put(" json %t text %t", json, text)
		// ownForm takes a type that does only one of the two by its fields.
		if json != implements(t, unmarshalerType) {
			w.put(" half json")
		}
		if text != implements(t, textUnmarshalType) {
			w.put(" half text")
		}
	}
	w.put("\n")
	if t == fieldsV1Type {
		return
	}
	switch t.Kind() {
	case reflect.Array:
		w.put("%d\n", t.Len())
		w.add(t.Elem(), form)
	case reflect.Pointer, reflect.Slice:
		w.add(t.Elem(), form)
	case reflect.Map:
		w.add(t.Key(), form)
		w.add(t.Elem(), form)
	case reflect.Struct:
		w.addOneofs(t)
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && !f.Anonymous && form == "" {
				continue
			}
			w.put("field %q %t %q %q\n", f.Name, f.Anonymous, f.Tag.Get("json"), f.Tag.Get("protobuf"))
			w.add(f.Type, form)
		}
		w.put("end\n")
	}
}

// addOneofs writes what the oneofs of a protobuf message may contain: in Go each of them
// is an interface.
func (w typeWalk) addOneofs(t reflect.Type) {
	for _, o := range oneofs(t) {
		w.put("oneof %s\n", o.name)
		if o.message != nil {
			w.add(o.message, "")
		}
	}
}

// oneof is an alternative of a oneof of a protobuf message.
type oneof struct {
	name    string       // with its number and kind
	message reflect.Type // nil if it is none
}

func oneofs(t reflect.Type) (all []oneof) {
	// The zero value of a struct that embeds a message may have none.
	defer func() { _ = recover() }()
	m, ok := reflect.New(t).Interface().(protoreflect.ProtoMessage)
	if !ok {
		return nil
	}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.ContainingOneof() == nil {
			continue
		}
		o := oneof{name: fmt.Sprintf("%q %q %d %s", f.ContainingOneof().Name(), f.Name(), f.Number(), f.Kind())}
		if f.Message() != nil {
			o.message = reflect.TypeOf(m.ProtoReflect().NewField(f).Message().Interface())
		}
		all = append(all, o)
	}
	return all
}

// put ignores the error: a hash never returns one.
func (w typeWalk) put(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }
