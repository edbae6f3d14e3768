package codec

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// plan encodes and decodes the values of one Go type. Values are addressable; decode gets
// a zero value. A plan is immutable after it was built. It refers to the plans of the
// nested types and is cyclic if the type is recursive.
type plan interface {
	encode(w *writer, v reflect.Value) error
	decode(r *reader, v reflect.Value) error
}

var (
	anyType           = reflect.TypeFor[any]()
	marshalerType     = reflect.TypeFor[json.Marshaler]()
	unmarshalerType   = reflect.TypeFor[json.Unmarshaler]()
	textMarshalerType = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshalType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// planner builds the plans of a type and all nested types. It registers each plan before
// it builds the plans of its elements, so that a type may be recursive.
type planner map[reflect.Type]plan

func (b planner) plan(t reflect.Type) plan {
	if p := b[t]; p != nil {
		return p
	}
	own := ownForm(t)
	if own == nil {
		return b.ofKind(t)
	}
	if isKnown(t) {
		b[t] = own
		return own
	}
	p := &ownPlan{own: own}
	b[t] = p
	p.fields = b.ofKind(t)
	b[t] = p
	return p
}

// ofKind returns the plan of a type by its kind, whatever methods it has.
func (b planner) ofKind(t reflect.Type) plan {
	if p := scalar(t); p != nil {
		return p
	}
	switch t.Kind() {
	case reflect.Interface:
		if t == anyType {
			return anyPlan{}
		}
	case reflect.Pointer:
		p := &pointerPlan{}
		b[t] = p
		p.elem = b.plan(t.Elem())
		return p
	case reflect.Slice:
		p := &slicePlan{}
		b[t] = p
		p.elem = b.plan(t.Elem())
		return p
	case reflect.Array:
		p := &arrayPlan{}
		b[t] = p
		p.elem = b.plan(t.Elem())
		return p
	case reflect.Map:
		key := scalar(t.Key())
		switch key.(type) {
		case stringPlan, intPlan, uintPlan:
			p := &mapPlan{key: key}
			b[t] = p
			p.elem = b.plan(t.Elem())
			return p
		}
	case reflect.Struct:
		p := &structPlan{}
		b[t] = p
		b.fields(p, t)
		return p
	}
	return zeroPlan{}
}

// scalar returns the plan of a type without elements; nil for other types.
func scalar(t reflect.Type) plan {
	switch t.Kind() {
	case reflect.Bool:
		return boolPlan{}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intPlan{}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return uintPlan{}
	case reflect.Float32, reflect.Float64:
		return floatPlan{}
	case reflect.String:
		return stringPlan{}
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Uint8 && !implements(e, marshalerType) && !implements(e, textMarshalerType) {
			return bytesPlan{}
		}
	}
	return nil
}

// ownForm returns the plan of a type that marshals and unmarshals itself; nil for other
// types. If it does only one of these, the server's JSON is not what it marshals, or not
// what it unmarshals.
func ownForm(t reflect.Type) plan {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return nil
	}
	for _, form := range []struct {
		marshal, unmarshal reflect.Type
		plan               plan
	}{
		{marshalerType, unmarshalerType, jsonPlan{}},
		{textMarshalerType, textUnmarshalType, textPlan{}},
	} {
		if !implements(t, form.marshal) || !implements(t, form.unmarshal) {
			continue
		}
		if promotes(t, form.marshal) {
			return nil // the form of an embedded field would leave out the others
		}
		return form.plan
	}
	return nil
}

// isKnown reports whether the own form of a type is known to contain all of it: a type of
// Go's or of Kubernetes'.
func isKnown(t reflect.Type) bool {
	switch first, _, _ := strings.Cut(t.PkgPath(), "/"); first {
	case "k8s.io", "encoding", "math", "net", "time":
		return true
	}
	return false
}

func implements(t, iface reflect.Type) bool {
	return t.Implements(iface) || reflect.PointerTo(t).Implements(iface)
}

// promotes reports whether t may have its methods of iface only from an embedded field,
// beside other fields. It cannot tell whether a type that embeds such a field also has
// methods of its own.
func promotes(t, iface reflect.Type) bool {
	if t.Kind() != reflect.Struct || t.NumField() < 2 {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && implements(f.Type, iface) {
			return true
		}
	}
	return false
}
